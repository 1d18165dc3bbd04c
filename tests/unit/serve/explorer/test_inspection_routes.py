"""/trace, /mask and /operations return the numbers of `model.trace`."""

import base64
from typing import Any

import numpy as np
import pytest
import torch
from small_server import TEXT, SmallServer, random_model
from tiny import SIZES

from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.serve.explorer.inspection_routes import compute_head_stats
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text import BOS, EOS, Words
from attendo.text_model import TextModel

TARGET = "猫 坐 着"
KINDS = ("encoder_self", "decoder_self", "cross")


def unpack_map(answer: dict[str, Any], kind: str) -> np.ndarray:
    numbers = np.frombuffer(base64.b64decode(answer["block"]), "<f2")
    layout = answer["maps"][kind]
    assert layout["byte_offset"] == 2 * layout["offset"]
    return numbers[layout["offset"] :][: np.prod(layout["shape"])].reshape(layout["shape"])


@pytest.mark.parametrize("target", [None, TARGET, ""])
@pytest.mark.parametrize("masked", [True, False])
def test_maps_and_predictions_equal_the_trace(
    server: SmallServer, small_model: TextModel, target: str | None, masked: bool
) -> None:
    answer = server.post("trace", target=target, masked=masked)
    trace = small_model.trace(TEXT, target, masked=masked)
    assert answer["source"]["pieces"] == list(trace.source_pieces)
    assert (answer["target"]["read"], answer["target"]["predicted"]) == (
        list(trace.read_pieces),
        list(trace.target_pieces),
    )
    assert answer["text"] == trace.text
    for kind in KINDS:
        expected = getattr(trace, kind).numpy()
        assert answer["maps"][kind]["shape"] == list(expected.shape)
        np.testing.assert_allclose(unpack_map(answer, kind), expected, atol=5e-4)
    assert len(base64.b64decode(answer["block"])) == 2 * sum(getattr(trace, kind).numel() for kind in KINDS)
    assert answer["loss"] == pytest.approx(trace.loss, abs=1e-5)
    log_probabilities = [token["log_probability"] for token in answer["tokens"]]
    assert log_probabilities == pytest.approx(trace.log_probabilities.tolist(), abs=1e-5)
    assert [token["entropy"] for token in answer["tokens"]] == pytest.approx(trace.entropy.tolist(), abs=1e-4)
    assert all(len(token["top"]) == 10 for token in answer["tokens"])


def test_unknown_words_are_listed(server: SmallServer) -> None:
    answer = server.post("trace", text="I saw zebra and yak", target="猫 zebra")
    assert (answer["unknown"], answer["target"]["unknown"]) == (["zebra", "and", "yak"], ["zebra"])
    assert [answer[side][name].count("<unk>") for side, name in (("source", "pieces"), ("target", "predicted"))] == [
        3,
        1,
    ]
    assert server.post("trace")["target"]["unknown"] == []


def test_the_log_probability_equals_score(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("trace", target=TARGET)
    assert answer["log_probability"] == pytest.approx(small_model.score([TEXT], [TARGET])[0], abs=1e-5)


def test_trace_uses_the_decoder_options(server: SmallServer, small_model: TextModel) -> None:
    for decoder, options in (({"kind": "beam", "beam": 3}, {"beam": 3}), ({"kind": "sample"}, {"sample": True})):
        assert server.post("trace", decoder=decoder)["text"] == small_model.generate([TEXT], **options)[0].text


def test_a_truncated_answer_is_marked(server: SmallServer) -> None:
    answer = server.post("trace", decoder={"max_length": 1})
    assert answer["cut"]
    assert len(answer["target"]["predicted"]) == len(answer["target"]["read"]) == 1
    assert answer["target"]["predicted"] != ["</s>"]


def test_trace_scales_heads(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("trace", target=TARGET, heads={"decoder.0.cross": {"1": 0.0}})
    trace = small_model.trace(TEXT, TARGET, heads={"decoder.0.cross": {1: 0.0}})
    assert answer["loss"] == pytest.approx(trace.loss, abs=1e-5)
    assert answer["loss"] != pytest.approx(server.post("trace", target=TARGET)["loss"], abs=1e-4)


def test_trace_returns_only_the_chosen_layers(server: SmallServer) -> None:
    full, part = server.post("trace"), server.post("trace", layers=[1])
    assert part["maps"]["layers"] == [1]
    for kind in KINDS:
        assert part["maps"][kind]["layers"] == [1]
        np.testing.assert_array_equal(unpack_map(part, kind)[0], unpack_map(full, kind)[1])
        assert part["numbers"][kind] == full["numbers"][kind][1:]
    assert part["rollout"] == full["rollout"]


def test_maps_by_layer_equal_maps_at_once(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    full = server.post("trace")
    monkeypatch.setattr("attendo.serve.explorer.search.MAX_NUMBERS", 1)
    assert server.post("trace") == full


def test_rows_of_the_rollout_sum_to_one(server: SmallServer) -> None:
    rollout = server.post("trace")["rollout"]
    values = np.array(rollout["values"]).reshape(rollout["shape"])
    np.testing.assert_allclose(values.sum(1), 1, atol=1e-5)
    assert (values >= 0).all()


def test_the_rollout_of_one_layer_equals_the_formula() -> None:
    model = random_model(num_encoder_layers=1, num_decoder_layers=1)
    answer = SmallServer(ModelSpec("one", model)).post("trace")
    trace = model.trace(TEXT)
    encoder, decoder, cross = (
        each[0].mean(0).double() for each in (trace.encoder_self, trace.decoder_self, trace.cross)
    )
    memory = (torch.eye(len(encoder)) + encoder) / 2
    assert decoder.shape[0] == cross.shape[0]
    mixed = cross @ memory / 2  # the first self-attention has nothing of the source to mix
    expected = mixed / mixed.sum(1, keepdim=True)
    assert answer["rollout"]["values"] == pytest.approx(expected.flatten().tolist(), abs=1e-5)


def test_head_stats_of_known_attention_maps() -> None:
    diagonal, last, even = torch.eye(4), torch.zeros(4, 4), torch.full((4, 4), 0.25)
    last[:, 3] = 1
    (numbers,) = compute_head_stats(torch.stack((diagonal, last, even))[None], [7, 8, 9, EOS])
    rows = [[round(each[name], 6) for name in ("entropy", "distance", "diagonality", "special")] for each in numbers]
    assert rows[:2] == [[0, 0, 1, 0.25], [0, 1.5, 0.5, 1]]
    assert rows[2] == pytest.approx([np.log(4), 1.25, 0.625, 0.25], abs=1e-5)
    assert [each["relative_entropy"] for each in numbers] == pytest.approx([0, 0, 1])
    ((first,),) = compute_head_stats(torch.tensor([[[[0.75, 0.25], [0.0, 1.0]]]]), [BOS, 5])
    assert first["special"] == pytest.approx(0.375)


def test_every_map_has_head_stats(server: SmallServer) -> None:
    answer = server.post("trace")
    for kind in KINDS:
        layers, heads = answer["maps"][kind]["shape"][:2]
        assert [len(layer) for layer in answer["numbers"][kind]] == [heads] * layers


def test_mask_returns_scores_before_and_after(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("mask", target=TARGET, layer=1, head=1)
    trace, without = small_model.trace(TEXT, TARGET), small_model.trace(TEXT, TARGET, masked=False)
    size = len(trace.target_pieces)
    assert answer["labels"] == {"rows": list(trace.target_pieces), "columns": list(trace.read_pieces)}
    assert answer["causal"] == [[column <= row for column in range(size)] for row in range(size)]
    assert answer["padding"] == [True] * size
    for row in range(size):
        assert [value is None for value in answer["after"][row]] == [column > row for column in range(size)]
    for name, expected in (
        ("before", trace["decoder.1.self.scores"]),
        ("weights", trace["decoder.1.self.weights"]),
        ("weights_unmasked", without["decoder.1.self.weights"]),
    ):
        np.testing.assert_allclose(answer[name], expected[1].numpy(), atol=1e-5)
    assert (answer["loss"], answer["loss_unmasked"]) == pytest.approx((trace.loss, without.loss), abs=1e-5)
    assert answer["loss"] != answer["loss_unmasked"]


def test_a_recurrent_decoder_has_shares_but_no_mask() -> None:
    model = random_model(autoregression="ssru", norm="post")
    server = SmallServer(ModelSpec("small", model))
    answer, trace = server.post("trace", target=TARGET), model.trace(TEXT, TARGET)
    np.testing.assert_allclose(unpack_map(answer, "decoder_self"), trace.decoder_self.numpy(), atol=5e-4)
    assert float(trace.decoder_self.sum(-1).max()) < 1
    server.post_error("mask", 400, "recurrent_decoder_without_mask", text=TEXT, layer=0, head=0)
    (row,) = [each for each in server.post("operations", target=TARGET)["rows"] if each["name"] == "decoder.0.self"]
    assert [step["formula"] for step in row["steps"]][-3:] == ["cells", "shares", "positive_cells"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post"},
        {"positions": "rotary", "norm_kind": "rms"},
        {"positions": "relative", "linear_bias": False, "output_scale": 0.5},
        {"autoregression": "ssru"},
    ],
)
def test_operations_have_a_row_per_sub_layer(changes: dict[str, Any]) -> None:
    model = random_model(**changes)
    answer = SmallServer(ModelSpec("small", model)).post("operations", target=TARGET)
    trace = model.trace(TEXT, TARGET)
    rows = {row["name"]: row for row in answer["rows"]}
    assert {each.place for each in trace.sizes()} <= rows.keys()
    assert len(rows) == len(answer["rows"])
    assert [line["name"] for row in answer["rows"] for line in row["steps"]] == list(trace)
    for sizes in trace.sizes():
        row = rows[sizes.place]
        assert row["share"] == pytest.approx(sizes.share, abs=1e-5)
        assert row["norm_out"] == pytest.approx(sizes.adding, rel=1e-4)
        norm_in = (
            trace[f"{sizes.place}.norm"].norm(dim=-1).mean() if model.network.config.norm == "pre" else sizes.entering
        )
        assert row["norm_in"] == pytest.approx(float(norm_in), rel=1e-4)
        assert rows[f"{sizes.place}.residual"]["norm_in"] == pytest.approx(sizes.entering, rel=1e-4)
        assert rows[f"{sizes.place}.residual"]["norm_out"] == pytest.approx(sizes.leaving, rel=1e-4)
        assert row["microseconds"] > 0
        assert row["shape_in"] == row["shape_out"] == list(trace[f"{sizes.place}.output"].shape)
    gain = model.network.decoder[1].cross_residual.normalise.weight.detach().mean()
    assert rows["decoder.1.cross.norm"]["gain"] == pytest.approx(float(gain), abs=1e-6)
    for row in answer["rows"]:
        assert row["part"] in ("encoder", "decoder", "output")
        for step in row["steps"]:
            formula = answer["formulas"][step["formula"]]
            assert "[" in step["bound"]
            assert all(formula[name] for name in ("text", "tex"))
            assert all(formula["explain"][language] for language in ("en", "zh"))


def test_operations_have_shapes_and_scaled_heads(server: SmallServer) -> None:
    rows = server.post("operations", target=TARGET, heads={"decoder.0.cross": {"0": 0.0}})["rows"]
    row = {each["name"]: each for each in rows}["decoder.0.cross"]
    steps = {step["formula"]: step for step in row["steps"]}
    assert "[2, 4, 8]·[2, 8, 6] → [2, 4, 6]" in steps["products"]["bound"]
    assert (row["shape_in"], row["shape_out"]) == ([4, 16], [4, 16])
    assert "scaled_mixed" in steps


def test_a_too_large_table_of_operations_is_rejected(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.explorer.search.MAX_NUMBERS", 1)
    assert "6 source" in server.post_error("operations", 413, "trace_too_large", text=TEXT)["message"]


def test_a_too_large_block_is_rejected_with_choices(small_model: TextModel) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(max_map_bytes=400))
    error = server.post_error("trace", 413, "block_too_large", text=TEXT, target=TARGET)
    assert error["choices"] == ["fewer layers"]
    assert len(error["choices_zh"]) == 1
    assert server.post("trace", target="", text="cat", layers=[0])["maps"]["layers"] == [0]


def test_the_rollout_of_two_layers_equals_the_documented_formula(server: SmallServer, small_model: TextModel) -> None:
    trace = small_model.trace(TEXT)
    size, length = len(trace.source_pieces), len(trace.target_pieces)
    memory, mixed = torch.eye(size), torch.zeros(length, size)
    for layer in trace.encoder_self:
        memory = memory / 2 + layer.mean(0) @ memory / 2
    for self_map, cross in zip(trace.decoder_self, trace.cross, strict=True):
        mixed = mixed / 2 + self_map.mean(0) @ mixed / 2
        mixed = mixed / 2 + cross.mean(0) @ memory / 2
    assert mixed.sum(1).tolist() == pytest.approx([1 - 2**-2] * length, abs=1e-5)
    expected = (mixed / mixed.sum(1, keepdim=True)).flatten().tolist()
    assert server.post("trace")["rollout"]["values"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "fields"),
    [("steps", {}), ("trace", {"target": TARGET}), ("mask", {"target": TARGET}), ("tree", {})],
)
def test_models_without_steps_are_rejected(path: str, fields: dict[str, str]) -> None:
    words = Words.build([TEXT, TARGET])
    network = make_network(ModelConfig(**SIZES, kind="graph", vocab_size=words.vocab_size))
    response = SmallServer(ModelSpec("other", TextModel(network, words))).raw(path, text=TEXT, **fields)
    assert response.status_code == 400, response.text
    assert "kind graph" in response.json()["error"]["message"]
