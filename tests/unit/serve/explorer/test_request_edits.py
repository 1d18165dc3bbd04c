"""Edits of a request change the network in every endpoint, and scaled heads are scaled in the maps."""

from typing import Any

import numpy as np
import pytest
import torch
from small_server import TEXT, SmallServer, random_model
from test_inspection_routes import unpack_map

from attendo.serve.explorer.schemas import TraceRequest
from attendo.serve.explorer.tasks import prepare_model
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text import PAD
from attendo.text_model import TextModel

TARGET = "猫 坐 着"
LAYER_OFF = {"kind": "off", "module": "decoder.1"}
LONGER = "I saw the small cat the small cat"


@pytest.fixture(scope="module")
def shorter_model(small_model: TextModel) -> TextModel:
    """The model without its last decoder layer."""
    model = random_model()
    del model.network.decoder[1]
    return model


@pytest.mark.parametrize("decoder", [{"kind": "greedy"}, {"kind": "beam", "beam": 3, "n_best": 3}])
def test_answers_without_a_layer(server: SmallServer, shorter_model: TextModel, decoder: dict[str, Any]) -> None:
    answer = server.post("answer", edits=[LAYER_OFF], decoder=decoder)
    found = shorter_model.generate([TEXT], beam=decoder.get("beam", 1), n_best=decoder.get("n_best", 1))[0]
    assert [each["text"] for each in answer["hypotheses"]] == [each.text for each in found.hypotheses]
    for each, expected in zip(answer["hypotheses"], found.hypotheses, strict=True):
        assert each["log_probability"] == pytest.approx(expected.log_probability, abs=1e-4)
    assert answer["hypotheses"][0]["text"] != server.post("answer", decoder=decoder)["hypotheses"][0]["text"]


def test_every_endpoint_applies_edits(server: SmallServer, shorter_model: TextModel) -> None:
    (expected,) = shorter_model.score_tokens([TEXT], [TARGET])
    trace = server.post("trace", target=TARGET, edits=[LAYER_OFF])
    assert [each["log_probability"] for each in trace["tokens"]] == pytest.approx(expected.log_probabilities, abs=1e-4)
    ablation = server.post("ablate", target=TARGET, edits=[LAYER_OFF])["after"]
    assert [each["log_probability"] for each in ablation["tokens"]] == pytest.approx(
        expected.log_probabilities, abs=1e-4
    )
    assert [each["best"]["piece"] for each in ablation["tokens"]] == [
        each["top"][0]["piece"] for each in trace["tokens"]
    ]
    best = [each["best"]["probability"] for each in ablation["tokens"]]
    assert best == pytest.approx([each["top"][0]["probability"] for each in trace["tokens"]], abs=1e-5)
    text = shorter_model.generate([TEXT])[0].text
    assert ablation["text"] == text
    steps = server.post("steps", edits=[LAYER_OFF])["steps"]
    (scored,) = shorter_model.score_tokens([TEXT], [text])
    assert [each["chosen"] for each in steps] == list(scored.pieces[: len(steps)])
    probabilities = [each["probability"] for each in steps]
    assert probabilities == pytest.approx(np.exp(scored.log_probabilities[: len(steps)]).tolist(), abs=1e-4)
    rows = {row["name"]: row for row in server.post("operations", target=TARGET, edits=[LAYER_OFF])["rows"]}
    assert rows["decoder.1.self"]["norm_out"] == 0
    assert rows["decoder.0.self"]["norm_out"] > 0
    assert server.post("mask", target=TARGET, edits=[LAYER_OFF])["loss"] == pytest.approx(trace["loss"], abs=1e-5)
    full, tree = (
        server.post("tree", decoder={"kind": "beam"}),
        server.post("tree", decoder={"kind": "beam"}, edits=[LAYER_OFF]),
    )
    assert tree != full


def test_without_edits_the_model_itself_is_used(server: SmallServer, small_model: TextModel) -> None:
    served = server.app.gateway.get_model(None)
    assert prepare_model(served, TraceRequest(text=TEXT, edits=[])) is served.model
    assert server.post("ablate", edits=[], target=TARGET)["delta"] == 0


def test_rank_keeps_the_edits(server: SmallServer) -> None:
    ranked = server.events("rank", target=TARGET, edits=[LAYER_OFF])
    deltas = {(each["site"], each["head"]): each["delta"] for name, each in ranked if name == "head"}
    assert deltas["decoder.1.cross", 0] == pytest.approx(0, abs=1e-6)
    heads = {"decoder.0.cross": {"0": 0.0}}
    both = server.post("ablate", target=TARGET, edits=[LAYER_OFF], heads=heads)
    base = server.post("ablate", target=TARGET, edits=[LAYER_OFF])
    expected = both["after"]["log_probability_of_old"] - base["after"]["log_probability_of_old"]
    assert deltas["decoder.0.cross", 0] == pytest.approx(expected, abs=1e-5)


def test_an_attention_weight_is_moved(server: SmallServer, small_model: TextModel) -> None:
    edit = {"kind": "weight", "module": "decoder.1.cross", "head": 1, "row": 0, "column": 2, "value": 0.9}
    answer, plain = (server.post("trace", target=TARGET, edits=each) for each in ([edit], []))
    old, new = unpack_map(plain, "cross")[1, 1].astype(float), unpack_map(answer, "cross")[1, 1].astype(float)
    expected = old[0] * 0.1 / (1 - old[0, 2])
    expected[2] = 0.9
    np.testing.assert_allclose(new[0], expected, atol=2e-3)
    np.testing.assert_allclose(new[1:], old[1:], atol=1e-3)
    np.testing.assert_allclose(unpack_map(answer, "cross")[1, 0], unpack_map(plain, "cross")[1, 0], atol=1e-3)
    operations = server.post("operations", target=TARGET, edits=[edit])
    (row,) = [row for row in operations["rows"] if row["name"] == "decoder.1.cross"]
    assert [step["formula"] for step in row["steps"]].count("edited_weights") == 1

    def tap(site: str, weights: torch.Tensor) -> torch.Tensor | None:
        if site != edit["module"]:
            return None
        changed = weights.clone()
        changed[0, 1, 0] = weights[0, 1, 0] * 0.1 / (1 - weights[0, 1, 0, 2])
        changed[0, 1, 0, 2] = 0.9
        return changed

    source = torch.tensor([[*small_model.source_tokenizer.encode(TEXT), 3]])
    target = torch.tensor([[2, *small_model.target_tokenizer.encode(TARGET)]])
    with torch.no_grad():
        logits = small_model.network.eval()(source, target, tap=tap)
    labels = torch.tensor([*target[0, 1:].tolist(), 3])
    expected_loss = torch.nn.functional.cross_entropy(logits[0], labels)
    assert answer["loss"] == pytest.approx(float(expected_loss), abs=1e-4)


def test_mask_cells_and_their_loss(server: SmallServer) -> None:
    opened = {"kind": "mask", "module": "decoder.self", "row": 0, "column": 2, "visible": True}
    closed = {"kind": "mask", "module": "decoder.1.self", "head": 0, "row": 2, "column": 0, "visible": False}
    plain = server.post("mask", target=TARGET, layer=1)
    answer = server.post("mask", target=TARGET, layer=1, edits=[opened, closed])
    assert answer["loss_usual"] == plain["loss"] == plain["loss_usual"]
    trace = server.post("trace", target=TARGET, edits=[opened, closed])
    assert answer["loss"] == pytest.approx(trace["loss"], abs=1e-5)
    assert answer["loss"] != plain["loss"]
    assert plain["visible"] == plain["causal"]
    expected = [list(row) for row in plain["causal"]]
    expected[0][2], expected[2][0] = True, False
    assert answer["visible"] == expected
    assert (
        server.post("mask", target=TARGET, layer=1, head=1, edits=[opened, closed])["visible"][2] == plain["visible"][2]
    )
    assert answer["weights"][0][2] > 0 == answer["weights"][2][0]


def test_padding_of_a_longer_sentence(server: SmallServer, small_model: TextModel) -> None:
    plain = server.post("trace", target=TARGET)
    masked = server.post("trace", target=TARGET, edits=[{"kind": "padding", "text": LONGER}])
    assert masked["source"]["pieces"] == [*plain["source"]["pieces"], "<pad>", "<pad>", "<pad>"]
    assert masked["loss"] == pytest.approx(plain["loss"], abs=1e-5)
    assert not unpack_map(masked, "cross")[..., -3:].any()
    unmasked = server.post("trace", target=TARGET, edits=[{"kind": "padding", "text": LONGER, "masked": False}])
    assert unpack_map(unmasked, "cross")[..., -3:].all()
    source = torch.tensor([[*small_model.source_tokenizer.encode(TEXT), 3, PAD, PAD, PAD]])
    target = torch.tensor([[2, *small_model.target_tokenizer.encode(TARGET)]])
    with torch.no_grad():
        logits = small_model.network.eval()(source, target)
    expected = torch.nn.functional.cross_entropy(logits[0], torch.tensor([*target[0, 1:].tolist(), 3]))
    assert unmasked["loss"] == pytest.approx(float(expected), abs=1e-4)
    answer = server.post("mask", target=TARGET, site="cross", edits=[{"kind": "padding", "text": LONGER}])
    assert answer["padding"] == [True] * 6 + [False] * 3
    assert answer["visible"] == [answer["padding"]] * 4
    assert (answer["loss"], answer["loss_unmasked"]) == pytest.approx((plain["loss"], float(expected)), abs=1e-4)
    shorter = server.post("trace", target=TARGET, edits=[{"kind": "padding", "text": "cat", "masked": False}])
    assert shorter["loss"] == plain["loss"]


def test_mask_of_every_site(server: SmallServer, small_model: TextModel) -> None:
    trace = small_model.trace(TEXT, TARGET)
    for site, name in (
        ("encoder_self", "encoder.1.self"),
        ("cross", "decoder.1.cross"),
        ("decoder_self", "decoder.1.self"),
    ):
        answer = server.post("mask", target=TARGET, site=site, layer=1, head=1)
        np.testing.assert_allclose(answer["weights"], trace[f"{name}.weights"][1].numpy(), atol=1e-5)
        assert len(answer["labels"]["rows"]) == trace[f"{name}.weights"].size(1)
        assert len(answer["labels"]["columns"]) == trace[f"{name}.weights"].size(2)
    server.post_error("mask", 400, "unknown_layer", text=TEXT, site="encoder_self", layer=2)


def test_maps_of_scaled_heads_carry_their_factor(server: SmallServer) -> None:
    plain = server.post("trace", target=TARGET)
    heads = {"decoder.0.cross": {"0": 0.0, "1": 0.5}, "encoder.1.self": {"0": 2.0}}
    answer = server.post("trace", target=TARGET, heads=heads)
    np.testing.assert_allclose(unpack_map(answer, "cross")[0, 0], 0)
    np.testing.assert_allclose(unpack_map(answer, "cross")[0, 1].astype(float).sum(-1), 0.5, atol=2e-3)
    np.testing.assert_allclose(unpack_map(answer, "encoder_self")[1, 0], 2 * unpack_map(plain, "encoder_self")[1, 0])
    assert set(answer["numbers"]["cross"][0][0].values()) == {None}
    assert None not in answer["numbers"]["cross"][0][1].values()
    everything = {f"decoder.{n}.cross": {"0": 0.0, "1": 0.0} for n in range(2)}
    off = server.post("trace", target=TARGET, heads=everything)
    assert not unpack_map(off, "cross").any()
    assert not np.array(off["rollout"]["values"]).any()


def test_maps_of_a_disabled_sub_layer_are_empty(server: SmallServer) -> None:
    answer = server.post("trace", target=TARGET, edits=[{"kind": "off", "module": "decoder.0.cross"}])
    assert not unpack_map(answer, "cross")[0].any()
    assert unpack_map(answer, "cross")[1].any()


@pytest.mark.parametrize(
    ("code", "edit"),
    [
        ("bad_setting", {"kind": "off", "module": "decoder.7"}),
        ("bad_setting", {"kind": "mask", "module": "decoder.feed_forward", "row": 0, "column": 0, "visible": True}),
        ("bad_setting", {"kind": "weight", "module": "decoder.0.self", "row": 0, "column": 0, "value": 1, "head": 9}),
        ("bad_request", {"kind": "weight", "module": "decoder.0.self", "row": 0, "column": 0, "value": 1.5}),
        ("bad_request", {"kind": "weight", "module": "decoder.0.self", "row": -1, "column": 0, "value": 0.5}),
        ("bad_request", {"kind": "turn", "module": "decoder.0"}),
        ("bad_request", {"module": "decoder.0"}),
        ("bad_request", {"kind": "off", "module": "decoder.0", "head": 1}),
        ("too_long", {"kind": "padding", "text": "cat " * 300}),
    ],
)
@pytest.mark.parametrize("path", ["trace", "answer"])
def test_bad_edits_are_rejected(server: SmallServer, path: str, code: str, edit: dict[str, Any]) -> None:
    status = 413 if code == "too_long" else 400
    error = server.post_error(path, status, code, text=TEXT, edits=[edit])
    if code == "bad_setting":
        named = str(edit.get("head", edit["module"]))
        assert named in error["message"]
        assert named in error["message_zh"]


def test_a_recurrent_decoder_has_no_mask_to_edit() -> None:
    server = SmallServer(ModelSpec("ssru", random_model(autoregression="ssru")))
    cell = {"kind": "mask", "module": "decoder.self", "row": 0, "column": 0, "visible": False}
    server.post_error("trace", 400, "bad_setting", text=TEXT, edits=[cell])
    plain = server.post("trace", target=TARGET)
    off = server.post("trace", target=TARGET, edits=[{"kind": "off", "module": "decoder.0.self"}])
    assert off["loss"] != plain["loss"]
