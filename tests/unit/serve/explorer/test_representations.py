"""/representations and /embeddings agree with hooks on the network and with torch's own functions."""

import base64
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_server import TEXT, SmallServer, random_model
from torch import Tensor

from attendo.model.transformer import Transformer
from attendo.serve.explorer.representation_routes import project_on_principal_axes
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text import EOS
from attendo.text_model import TextModel

TARGET = "猫 坐 着"
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"norm": "pre"},
    {"activation": "swiglu", "norm": "pre", "norm_kind": "rms"},
    {"positions": "learned", "max_length": 40},
    {"positions": "rotary", "d_key": 8, "d_value": 8},
    {"positions": "relative"},
    {"positions": "none"},
)


def run_with_hooks(model: TextModel) -> tuple[dict[str, list[Tensor]], dict[str, list[Tensor]], Tensor]:
    """Return the input and output of every layer, the inputs of the second feed-forward matrices, and the logits."""
    network = model.network
    assert isinstance(network, Transformer)
    streams: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}
    units: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}
    hooks = []
    for stack, blocks in (("encoder", network.encoder), ("decoder", network.decoder)):
        for number, block in enumerate(blocks):

            def keep(module: Any, args: Any, output: Any, stack: str = stack, number: int = number) -> None:
                if number == 0:
                    streams[stack].append(args[0][0])
                streams[stack].append((output[0] if isinstance(output, tuple) else output)[0])

            hooks.append(block.register_forward_hook(keep))
            feed_forward: Any = block.feed_forward
            inner = feed_forward._inner
            feed_forward._inner = lambda x, inner=inner, stack=stack: (units[stack].append(inner(x)[0]), inner(x))[1]
    source = torch.tensor([[*model.source_tokenizer.encode(TEXT), EOS]])
    target = torch.tensor([[2, *model.target_tokenizer.encode(TARGET)]])
    with torch.no_grad():
        logits = network.eval()(source, target)[0]
    for hook in hooks:
        hook.remove()
    for block in (*network.encoder, *network.decoder):
        del block.feed_forward._inner
    return streams, units, logits


def unpack(answer: dict[str, Any], place: dict[str, Any]) -> np.ndarray:
    numbers = np.frombuffer(base64.b64decode(answer["block"]), "<f2")
    return numbers[place["offset"] :][: np.prod(place["shape"])].reshape(place["shape"]).astype(float)


@pytest.mark.parametrize("kind", KINDS)
def test_representations_equal_hooks_on_the_network(kind: dict[str, Any]) -> None:
    model = random_model(**kind)
    answer = SmallServer(ModelSpec("small", model)).post("representations", target=TARGET, top=3, units=4)
    network = model.network
    assert isinstance(network, Transformer)
    streams, units, logits = run_with_hooks(model)
    labels = torch.tensor([*model.target_tokenizer.encode(TARGET), EOS])
    assert len(answer["lens"]) == len(streams["decoder"]) == 3
    for number, (states, rows) in enumerate(zip(streams["decoder"], answer["lens"], strict=True)):
        with torch.no_grad():
            expected = F.linear(network.decoder_norm(states), network.output.weight, network.output.bias).softmax(-1)
        if number == 2:
            torch.testing.assert_close(expected, logits.softmax(-1))
        for row, probabilities, label in zip(rows, expected, labels, strict=True):
            assert row["probability"] == pytest.approx(float(probabilities[label]), abs=1e-4)
            assert row["rank"] == 1 + int((probabilities > probabilities[label]).sum())
            order = probabilities.argsort(descending=True)[:3]
            assert [each["id"] for each in row["top"]] == order.tolist()
            assert [each["piece"] for each in row["top"]] == model.target_tokenizer.pieces(order.tolist())
    for stack in ("encoder", "decoder"):
        similarity = unpack(answer, answer["similarity"][stack])
        for states, found, norms in zip(streams[stack], similarity, answer["norms"][stack], strict=True):
            cosines = F.cosine_similarity(states[:, None], states[None], dim=-1)
            np.testing.assert_allclose(found, cosines.numpy(), atol=2e-3)
            assert norms == pytest.approx(states.norm(dim=-1).tolist(), rel=1e-3)
        blocks = network.encoder if stack == "encoder" else network.decoder
        for block, inner, rows in zip(blocks, units[stack], answer["units"][stack], strict=True):
            check_units(model, block, inner, rows, stack)


def check_units(model: TextModel, block: Any, inner: Tensor, rows: list[list[Any]], stack: str) -> None:
    matrix = block.feed_forward.contract.weight.detach()
    for activations, found in zip(inner, rows, strict=True):
        added = [float(value) * matrix[:, unit] for unit, value in enumerate(activations)]
        lengths = torch.stack([each.norm() for each in added])
        assert [each["unit"] for each in found] == lengths.argsort(descending=True)[:4].tolist()
        for each in found:
            assert each["activation"] == pytest.approx(float(activations[each["unit"]]), rel=1e-3, abs=1e-5)
            assert each["strength"] == pytest.approx(float(lengths[each["unit"]]), rel=1e-3, abs=1e-5)
            if stack == "encoder":
                assert each["promotes"] is None
                continue
            raised = F.linear(added[each["unit"]], model.network.output.weight).argsort(descending=True)
            assert each["promotes"] == model.target_tokenizer.pieces(raised[:5].tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["source", "target"])
def test_position_vectors_and_their_similarity(kind: dict[str, Any], side: str) -> None:
    model = random_model(**kind)
    server = SmallServer(ModelSpec("small", model))
    answer = server.post("embeddings", side=side, target=TARGET, positions=20)
    found, name = answer["positions"], kind.get("positions", "sinusoidal")
    assert found["kind"] == name
    embedding = model.network.source if side == "source" else model.network.target
    if name == "none":
        assert (found["values"], found["similarity"]) == (None, None)
        return
    values = unpack(answer, found["values"])
    if name == "relative":
        assert found["similarity"] is None
        with torch.no_grad():
            biases = embedding.positions.biases(torch.zeros(1, 20, 16), 0, 20)[0, 0]
        for distance in range(-19, 20):
            here = biases.diagonal(distance, dim1=-2, dim2=-1)
            np.testing.assert_allclose(values[:, distance + 19], here[:, 0].numpy(), atol=1e-3)
        return
    if name == "learned":
        expected = embedding.positions.table[:20].detach().numpy()
    else:
        width = 8 if name == "rotary" else 16
        angles = np.arange(20)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
        expected = np.stack((np.sin(angles), np.cos(angles)), -1).reshape(20, width)
    np.testing.assert_allclose(values, expected, atol=2e-3)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(unpack(answer, found["similarity"]), unit @ unit.T, atol=2e-3)


@pytest.mark.parametrize("side", ["source", "target"])
def test_token_embeddings_and_their_neighbours(server: SmallServer, small_model: TextModel, side: str) -> None:
    tokens = server.post("embeddings", side=side, target=TARGET)["tokens"]
    network = small_model.network
    table = (network.source if side == "source" else network.target).tokens.weight.detach()
    tokenizer = small_model.source_tokenizer if side == "source" else small_model.target_tokenizer
    text = TEXT if side == "source" else TARGET
    assert tokens["sentence"] == [*tokenizer.encode(text), EOS]
    assert tokens["pieces"] == tokenizer.pieces(range(len(table)))
    assert tokens["size"] == len(table) == len(tokens["points"])
    centred = table - table.mean(0)
    _, values, directions = torch.linalg.svd(centred, full_matrices=False)
    projected, points = centred @ directions[:2].T, torch.tensor(tokens["points"])
    for axis in range(2):
        same, turned = (float((points[:, axis] - sign * projected[:, axis]).abs().max()) for sign in (1, -1))
        assert min(same, turned) < 1e-4
    assert tokens["shares"] == pytest.approx((values[:2] ** 2 / (values**2).sum()).tolist(), abs=1e-5)
    for token in set(tokens["sentence"]):
        cosines = F.cosine_similarity(table[token][None], table, dim=-1)
        order = [each for each in cosines.argsort(descending=True).tolist() if each != token][:6]
        found = tokens["neighbours"][str(token)]
        assert [each["id"] for each in found] == order
        assert [each["cosine"] for each in found] == pytest.approx(cosines[order].tolist(), abs=1e-5)


def test_the_picture_of_embeddings_has_fixed_signs() -> None:
    vectors = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([5.0, 3.0, 1.0, 1.0, 1.0])
    points, shares = project_on_principal_axes(vectors)
    assert torch.corrcoef(torch.stack((points[:, 0], vectors[:, 0])))[0, 1] > 0.9
    assert torch.corrcoef(torch.stack((points[:, 1], vectors[:, 1])))[0, 1] > 0.9
    assert shares[0] > shares[1] > 0


def test_edits_change_the_representations(server: SmallServer) -> None:
    plain = server.post("representations", target=TARGET)
    edited = server.post("representations", target=TARGET, edits=[{"kind": "off", "module": "decoder.1"}])
    assert edited["lens"][2] == edited["lens"][1] == plain["lens"][1]
    assert edited["lens"][2] != plain["lens"][2]


def test_the_answer_of_the_model_is_the_default_target(server: SmallServer, small_model: TextModel) -> None:
    text = small_model.generate([TEXT])[0].text
    pieces = small_model.target_tokenizer.pieces(small_model.target_tokenizer.encode(text))
    answer = server.post("representations")
    assert answer["text"] == text
    assert answer["target"]["predicted"][: len(pieces)] == pieces
    assert server.post("embeddings", side="target")["tokens"]["sentence"][: len(pieces)] == (
        small_model.target_tokenizer.encode(text)
    )


def test_learned_positions_end_where_the_table_ends() -> None:
    model = random_model(positions="learned", max_length=12)
    answer = SmallServer(ModelSpec("small", model)).post("embeddings", positions=64)
    assert answer["positions"]["values"]["shape"] == [12, 16]


def test_long_pairs_are_too_large(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.explorer.search.MAX_NUMBERS", 1)
    server.post_error("representations", 413, "trace_too_large", text=TEXT)
