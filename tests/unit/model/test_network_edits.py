"""An edited network computes what the network computes with its modules changed by hand."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SIZES
from torch import Tensor

from attendo.decode.networks import EditedNetwork
from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.edits import MaskEdit, NetworkEdits, Padding, WeightEdit, list_masks, list_sub_layers
from attendo.model.head_scaling import ScaledHeads
from attendo.model.prefix import PrefixTransformer
from attendo.model.trace import trace_network
from attendo.model.trace_layers import TraceRecorder
from attendo.model.transformer import Transformer
from attendo.nn.masks import Mask
from attendo.text import PAD

SOURCE, TARGET = torch.tensor([5, 9, 6, 7, 3]), torch.tensor([2, 8, 5, 10])
KINDS = ({"norm": "post"}, {"norm": "pre"}, {"norm": "post", "positions": "relative"})


def make_network(seed: int = 3, **changes: Any) -> Transformer:
    generator = torch.Generator().manual_seed(seed)
    network = Transformer(
        ModelConfig(**{**SIZES, "source_vocab_size": 12, "target_vocab_size": 12, **changes}), generator
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network.eval()


def make_prefix_network(positions: str) -> Transformer:
    sizes = {**SIZES, "num_encoder_layers": 0, "prefix_lm": True, "vocab_size": 12, "positions": positions}
    network = PrefixTransformer(ModelConfig(**sizes), torch.Generator().manual_seed(4))
    with torch.no_grad():
        network.segments.mul_(20)
    return network.eval()


def edited_logits(
    network: Transformer, edits: NetworkEdits, source: Tensor = SOURCE, target: Tensor = TARGET
) -> Tensor:
    """The logits of the trace. The network of the search gives the same, in one pass and token by token."""
    padded = torch.cat((source, torch.full((edits.padding.tokens,), PAD)))
    logits = trace_network(network, padded, target, recorder=TraceRecorder(edits=edits))["output.logits"].value
    search = EditedNetwork(network, ScaledHeads({}), edits)
    with torch.no_grad():
        state = search.start(search.encode(source[None]))
        torch.testing.assert_close(search.step(target[None], state)[0][0], logits)
        for column in range(len(target)):
            step, state = search.step(target[None, column : column + 1], state)
            if not any(cell.visible for cell in edits.mask):  # a leak needs tokens that are not generated yet
                torch.testing.assert_close(step[0, 0], logits[column])
    return logits


def run(network: Transformer, source: Tensor = SOURCE, mask: Tensor | None = None, tap: Any = None) -> Tensor:
    with torch.no_grad():
        return network(source[None], TARGET[None], None if mask is None else mask[None], tap=tap)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_no_edits_change_nothing(kind: dict[str, Any]) -> None:
    network = make_network(**kind)
    torch.testing.assert_close(edited_logits(network, NetworkEdits()), run(network), atol=1e-4, rtol=1e-4)
    assert not NetworkEdits()


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_a_prefix_lm_is_edited_as_one_row(positions: str) -> None:
    network = make_prefix_network(positions)
    torch.testing.assert_close(edited_logits(network, NetworkEdits()), run(network), atol=1e-4, rtol=1e-4)
    shorter = copy.deepcopy(network)
    del shorter.decoder[1]
    found = edited_logits(network, NetworkEdits(disabled=("decoder.1",)))
    torch.testing.assert_close(found, run(shorter), atol=1e-4, rtol=1e-4)
    padded = torch.cat((SOURCE, torch.full((3,), PAD)))
    batch = run(network, padded, padded != PAD)
    found = edited_logits(network, NetworkEdits(padding=Padding(3)))
    torch.testing.assert_close(found, batch, atol=1e-4, rtol=1e-4)
    seen = edited_logits(network, NetworkEdits(padding=Padding(3, masked=False)))
    torch.testing.assert_close(seen, run(network, padded), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(seen, batch, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", ["encoder.0", "encoder.1", "decoder.0", "decoder.1"])
def test_a_disabled_layer_is_a_network_without_it(kind: dict[str, Any], layer: str) -> None:
    network = make_network(**kind)
    shorter, (stack, number) = copy.deepcopy(network), layer.split(".")
    del getattr(shorter, stack)[int(number)]
    found = edited_logits(network, NetworkEdits(disabled=(layer,)))
    torch.testing.assert_close(found, run(shorter), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, run(network), atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("site", list_sub_layers(ModelConfig(**SIZES, source_vocab_size=12, target_vocab_size=12)))
def test_a_disabled_sub_layer_passes_its_input_on(kind: dict[str, Any], site: str) -> None:
    network = make_network(**kind)
    stack, number, part = site.split(".")
    changed = copy.deepcopy(network)
    getattr(getattr(changed, stack)[int(number)], f"{part}_residual").leave = lambda x, y: x
    found = edited_logits(network, NetworkEdits(disabled=(site,)))
    torch.testing.assert_close(found, run(changed), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, run(network), atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", [None, 1])
def test_a_weight_is_set_and_its_row_normalised(kind: dict[str, Any], head: int | None) -> None:
    network, site = make_network(**kind), "decoder.1.cross"

    def tap(name: str, weights: Tensor) -> Tensor | None:
        if name != site:
            return None
        changed = weights.clone()
        for each in range(weights.size(1)) if head is None else [head]:
            old = weights[0, each, 2].tolist()
            scale = (1 - 0.7 - 0.1) / (sum(old) - old[3] - old[0])
            new = [value * scale for value in old]
            new[3], new[0] = 0.7, 0.1
            changed[0, each, 2] = torch.tensor(new)
        return changed

    edits = NetworkEdits(weights=(WeightEdit(site, 2, 3, 0.7, head), WeightEdit(site, 2, 0, 0.1, head)))
    found = edited_logits(network, edits)
    torch.testing.assert_close(found, run(network, tap=tap), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, run(network), atol=1e-3)


def test_rows_of_edited_weights_sum_to_one() -> None:
    weights = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]])
    cases: list[tuple[list[tuple[int, int, float]], list[float]]] = [
        ([(0, 0, 0.4)], [1.0, 0.0, 0.0]),  # the only key
        ([(0, 1, 0.25)], [0.75, 0.25, 0.0]),
        ([(1, 0, 0.0)], [0.0, 1.0, 0.0]),
        ([(1, 0, 0.9), (1, 1, 0.9)], [0.5, 0.5, 0.0]),
        ([(2, 0, 0.0), (2, 1, 0.0), (2, 2, 0.0)], [0.0, 0.0, 0.0]),
        ([(2, 2, 0.0)], [0.4, 0.6, 0.0]),
    ]
    for cells, expected in cases:
        edits = NetworkEdits(weights=tuple(WeightEdit("decoder.0.self", *cell) for cell in cells))
        torch.testing.assert_close(
            edits.edit_weights("decoder.0.self", weights)[0, cells[0][0]], torch.tensor(expected)
        )
    outside = NetworkEdits(weights=(WeightEdit("decoder.0.self", 3, 0, 1.0), WeightEdit("encoder.0.self", 0, 0, 0.0)))
    assert outside.edit_weights("decoder.0.self", weights) is weights


MASK_CASES: list[tuple[str, str, int, int, bool]] = [
    ("decoder.self", "decoder.{}.self", 1, 3, True),
    ("decoder.self", "decoder.{}.self", 3, 1, False),
    ("encoder.self", "encoder.{}.self", 0, 2, False),
    ("decoder.cross", "decoder.{}.cross", 2, 4, False),
]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(("name", "sites", "row", "column", "visible"), MASK_CASES)
def test_a_mask_cell_is_changed_in_every_layer(
    kind: dict[str, Any], name: str, sites: str, row: int, column: int, visible: bool
) -> None:
    network = make_network(**kind)
    changed = copy.deepcopy(network)
    names = [sites.format(n) for n in range(2)]
    for module in changed.modules():
        if getattr(module, "site", "") in names:
            module.register_forward_pre_hook(replace_mask(row, column, visible))
    found = edited_logits(network, NetworkEdits(mask=(MaskEdit(name, row, column, visible),)))
    torch.testing.assert_close(found, run(changed), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, run(network), atol=1e-3)
    one = NetworkEdits(mask=tuple(MaskEdit(each, row, column, visible, head) for each in names for head in range(2)))
    torch.testing.assert_close(edited_logits(network, one), found)


def replace_mask(row: int, column: int, visible: bool) -> Callable[[Any, Any], Any]:
    def hook(module: Any, args: Any) -> Any:
        queries, kv, mask, tap = args
        matrix = mask.matrix(queries.size(2), kv.length, queries.device)
        matrix = torch.ones(1, 1, queries.size(2), kv.length, dtype=torch.bool) if matrix is None else matrix.clone()
        matrix[..., row, column] = visible
        return queries, kv, Mask(matrix), tap

    return hook


def test_a_row_with_a_closed_mask_attends_to_nothing() -> None:
    network = make_network()
    edits = NetworkEdits(mask=tuple(MaskEdit("decoder.0.cross", 1, column, False, 0) for column in range(len(SOURCE))))
    entries = trace_network(network, SOURCE, TARGET, recorder=TraceRecorder(edits=edits))
    assert entries["decoder.0.cross.weights"].value[0, 1].tolist() == [0.0] * len(SOURCE)
    assert entries["decoder.0.cross.weights"].value[1, 1].sum() == pytest.approx(1)
    assert entries["output.logits"].value.isfinite().all()


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("masked", [True, False])
def test_padding_with_and_without_its_mask(kind: dict[str, Any], masked: bool) -> None:
    network = make_network(**kind)
    padded = torch.cat((SOURCE, torch.tensor([PAD, PAD, PAD])))
    found = edited_logits(network, NetworkEdits(padding=Padding(3, masked)))
    torch.testing.assert_close(found, run(network, padded, padded != PAD if masked else None), atol=1e-4, rtol=1e-4)
    assert torch.allclose(found, run(network), atol=1e-4) == masked


def test_rows_of_a_batch_are_edited_like_single_sentences() -> None:
    network, edits = make_network(), NetworkEdits(disabled=("decoder.0.cross",), padding=Padding(2, masked=False))
    search = EditedNetwork(network, ScaledHeads({"decoder.1.cross": {0: 0.5}}), edits)
    sources = torch.stack((SOURCE, torch.tensor([4, 4, 3, PAD, PAD])))
    with torch.no_grad():
        state = search.start(search.encode(sources, sources != PAD))
        logits, state = search.step(torch.stack((TARGET, TARGET, TARGET.flip(0), TARGET)), state)
        alone = search.start(search.encode(sources[1:, :3]))
        torch.testing.assert_close(logits[3], search.step(TARGET[None], alone)[0][0])
        torch.testing.assert_close(logits[0], logits[1])
        moved = search.step(torch.tensor([[1], [1]]), state.select(torch.tensor([1]), torch.tensor([3, 2])))[0]
        _, after = search.step(TARGET[None], alone)
        torch.testing.assert_close(moved[0], search.step(torch.tensor([[1]]), after)[0][0])


def test_modules_and_heads_are_checked() -> None:
    config = ModelConfig(**SIZES, source_vocab_size=12, target_vocab_size=12)
    assert list_masks(config) == ["encoder.self", "decoder.self", "decoder.cross"]
    wrong = [
        ("unknown_module", NetworkEdits(disabled=("decoder.2",))),
        ("unknown_module", NetworkEdits(disabled=("encoder.0.cross",))),
        ("unknown_module", NetworkEdits(weights=(WeightEdit("decoder.cross", 0, 0, 0.5),))),
        ("unknown_module", NetworkEdits(mask=(MaskEdit("encoder.cross", 0, 0, True),))),
        ("attention_head_out_of_range", NetworkEdits(mask=(MaskEdit("decoder.self", 0, 0, True, head=2),))),
        ("attention_head_out_of_range", NetworkEdits(weights=(WeightEdit("decoder.0.self", 0, 0, 0.5, head=-1),))),
    ]
    for code, edits in wrong:
        with pytest.raises(UsageError, check=has_code(code)):
            edits.check(config)
