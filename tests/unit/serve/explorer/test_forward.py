"""/forward agrees with hooks on the network, and its maps and predictions with torch's own functions."""

import base64
from typing import Any

import numpy as np
import pytest
import torch
from small_server import TEXT, SmallServer, random_model
from tiny import parallel_model
from torch import Tensor

from attendo.explore.forward_summary import MAX_MAP_SIZE, pool_maps
from attendo.model.parallel import Canvas, ParallelTransformer
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text import BOS, EOS
from attendo.text_model import TextModel
from attendo.text_model.parallel_trace import MASK_PIECE, trace_last_pass

TARGET = "猫 坐 着"


def read_array(answer: dict[str, Any], place: dict[str, Any]) -> Tensor:
    numbers = np.frombuffer(base64.b64decode(answer["block"]), "<f2").astype(np.float32)
    size = int(np.prod(place["shape"]))
    return torch.from_numpy(numbers[place["offset"] : place["offset"] + size].reshape(place["shape"]))


def run_network(model: TextModel) -> tuple[dict[str, Tensor], Tensor]:
    """The attention weights of the network by site, and its logits."""
    source = [*model.source_tokenizer.encode(TEXT), EOS]
    target = [BOS, *model.target_tokenizer.encode(TARGET)]
    seen: dict[str, Tensor] = {}
    with torch.no_grad():
        logits = model.network(torch.tensor([source]), torch.tensor([target]), None, tap=seen.__setitem__)
    return {site: weights[0] for site, weights in seen.items()}, logits[0]


@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"positions": "relative"}], ids=str)
def test_maps_norms_and_predictions_are_those_of_the_network(changes: dict[str, Any]) -> None:
    model = random_model(**changes)
    outputs: dict[str, Tensor] = {}
    for name, module in model.network.named_modules():
        if name.endswith("feed_forward"):
            stack, layer, _ = name.split(".")
            module.register_forward_hook(
                lambda _, __, output, site=f"{stack}.{layer}": outputs.__setitem__(site, output[0])
            )
    model.network.eval()
    weights, logits = run_network(model)
    found = dict(outputs)
    answer = SmallServer(ModelSpec("small", model)).post("forward", target=TARGET)
    for stack in ("encoder", "decoder"):
        for n, layer in enumerate(answer["stacks"][stack]):
            for kind in ("self", "cross"):
                if kind in layer:
                    maps, expected = layer[kind]["maps"], weights[f"{stack}.{n}.{kind}"]
                    assert maps["shape"] == list(expected.shape)
                    torch.testing.assert_close(read_array(answer, maps["heads"]), expected, atol=1e-3, rtol=1e-2)
                    torch.testing.assert_close(read_array(answer, maps["mean"]), expected.mean(0), atol=1e-3, rtol=1e-2)
            norms = layer["feed_forward"]["norms"]
            added = found[f"{stack}.{n}"].norm(dim=-1)
            torch.testing.assert_close(read_array(answer, norms["output"]), added, atol=1e-2, rtol=2e-3)
    probabilities = logits.softmax(-1)
    ids = [*model.target_tokenizer.encode(TARGET), EOS]
    for row, (step, token) in enumerate(zip(answer["steps"], ids, strict=True)):
        assert step["id"] == token
        assert step["probability"] == pytest.approx(float(probabilities[row, token]), rel=1e-4)
        best = probabilities[row].topk(len(step["top"]))
        assert [each["id"] for each in step["top"]] == best.indices.tolist()
    assert answer["target_text"] == TARGET
    assert answer["loss"] == pytest.approx(-float(logits.log_softmax(-1)[range(len(ids)), ids].mean()), rel=1e-4)


def test_residual_sum_has_the_norms_of_its_parts() -> None:
    """The triangle inequality holds for ‖x‖, ‖Sub(x)‖ and ‖x + Sub(x)‖ of every token."""
    answer = SmallServer(ModelSpec("small", random_model())).post("forward", target=TARGET)
    for layers in answer["stacks"].values():
        for layer in layers:
            for sub in layer.values():
                before, added, total = (
                    read_array(answer, sub["norms"][name]) for name in ("input", "output", "residual")
                )
                assert (total <= before + added + 0.02).all()
                assert (total >= (before - added).abs() - 0.02).all()


def test_edits_and_heads_change_the_pass() -> None:
    server = SmallServer(ModelSpec("small", random_model()))
    plain = server.post("forward", target=TARGET)
    off = server.post("forward", target=TARGET, edits=[{"kind": "off", "module": "decoder.1"}])
    scaled = server.post("forward", target=TARGET, heads={"decoder.0.cross": {"0": 0.0}})
    assert len({plain["loss"], off["loss"], scaled["loss"]}) == 3


def test_large_maps_keep_their_largest_values() -> None:
    maps = torch.rand(2, 80, 40)
    pooled = pool_maps(maps)
    assert pooled.shape == (2, MAX_MAP_SIZE, MAX_MAP_SIZE)
    rows, columns = (torch.arange(size) * MAX_MAP_SIZE // size for size in (80, 40))
    for row, column in ((0, 0), (13, 7), (31, 31)):
        assert torch.equal(pooled[:, row, column], maps[:, rows == row][:, :, columns == column].amax((1, 2)))
    small = torch.rand(2, 5, 7)
    assert torch.equal(pool_maps(small), small)


def test_pass_that_does_not_fit_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.explorer.passes.trace_fits", lambda *_: False)
    server = SmallServer(ModelSpec("small", random_model()))
    server.post_error("forward", 413, "trace_too_large", text=TEXT)


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
@pytest.mark.parametrize("canvas", ["mask", "copy"])
def test_last_pass_of_a_parallel_network_is_that_of_the_network(kind: str, canvas: str) -> None:
    """Without given tokens, the pass is that of an empty canvas. For mask-predict, that is the only pass of one."""
    if kind == "masked" and canvas == "copy":
        pytest.skip("a masked network has no copy")
    model = parallel_model(kind, **({} if kind == "masked" else {"canvas": canvas}))
    network = model.network
    assert isinstance(network, ParallelTransformer)
    found = model.trace_parallel(TEXT, **({"passes": 1} if kind == "masked" else {}))
    trace = trace_last_pass(found)
    source = torch.tensor([found.source_ids])
    count = len(trace.target_ids)
    canvas_of_pass = (
        Canvas(torch.zeros(1, count, dtype=torch.long), *(torch.full((1, count), each) for each in (False, True)))
        if kind == "masked"
        else network.empty_canvas(source, None)
    )
    seen: dict[str, Tensor] = {}
    with torch.no_grad():
        logits = network.eval()(source, canvas_of_pass, tap=seen.__setitem__).logits[0]
    torch.testing.assert_close(trace.logits, logits, atol=2e-5, rtol=1e-4)
    for site, weights in seen.items():
        torch.testing.assert_close(trace[f"{site}.weights"], weights[0], atol=1e-5, rtol=1e-4)
    assert set(trace.read_pieces) == {MASK_PIECE}
    server = SmallServer(ModelSpec(kind, model))
    answer = server.post("forward")
    assert answer["kind"] == kind
    assert len(answer["stacks"]["decoder"]) == network.config.num_decoder_layers
    calculation = server.post("calculation", operation="decoder.0.self.weights")
    assert calculation["rows"]["total"] == len(answer["target"]["predicted"])
    assert server.raw("forward", text=TEXT, heads={"decoder.0.cross": {"0": 0.0}}).status_code == 400
