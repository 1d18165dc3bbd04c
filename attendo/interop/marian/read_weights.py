"""Copies the weights of a weight file into a network, a few rows at a time."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attendo.errors import ErrorList, MessagePart, ModelError, cut_text
from attendo.interop.huggingface.vocabulary import SUPPRESS_BIAS, VocabularyPermutation
from attendo.interop.marian.parameters import (
    OLD_OUTPUT_WEIGHT,
    OUTPUT_BIAS,
    OUTPUT_WEIGHT,
    SHARED_TABLE,
    SOURCE_TABLE,
    TARGET_TABLE,
    block_parameters,
    marian_parameters,
)
from attendo.interop.marian.weight_file import WeightFile
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import allocate_network
from attendo.text import BOS, PAD

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class TableNames:
    """Names of Marian's tables. `output` is None if the logits use the target table."""

    source: str
    target: str
    output: str | None

    @classmethod
    def find(cls, tie: str, shapes: Shapes) -> "TableNames":
        """Return the names for `tie` (see `network_settings`)."""
        source, target = (SHARED_TABLE,) * 2 if tie in ("all", "inputs") else (SOURCE_TABLE, TARGET_TABLE)
        if tie in ("all", "output"):
            return cls(source, target, None)
        return cls(source, target, OLD_OUTPUT_WEIGHT if OLD_OUTPUT_WEIGHT in shapes else OUTPUT_WEIGHT)


@dataclass(frozen=True)
class _Copy:
    """One copy of a weight: the shape it must have, and where its rows go."""

    shape: tuple[int, ...]
    write: Callable[[Transformer, int, Tensor], None]  # network, number of the first row, rows


def read_network(
    file: WeightFile,
    config: ModelConfig,
    tables: TableNames,
    source: VocabularyPermutation,
    target: VocabularyPermutation,
) -> Transformer:
    """Return the network in evaluation mode. All shapes are checked before memory is allocated."""
    shapes = file.shapes()
    copies = _plan_copies(config, tables, source, target, has_bias=OUTPUT_BIAS in shapes)
    if faults := list(_find_faults(copies, file)):
        raise ModelError("marian_weights_mismatch", path=file.path, faults=ErrorList(faults))
    network = allocate_network(config)
    with torch.no_grad():
        _fill_new_rows(network)
        for name in sorted(copies, key=lambda each: file.headers[each].position):
            for start, rows in file.iter_rows(name):
                if not bool(rows.isfinite().all()):
                    fault = MessagePart("weight_not_finite", name=name)
                    raise ModelError("marian_weights_mismatch", path=file.path, faults=fault)
                for copy in copies[name]:
                    copy.write(network, start, rows)
    return network.eval()


def _fill_new_rows(network: Transformer) -> None:
    """Set tables and bias to the values of pad and bos, which Marian does not have: zero vectors, suppressed."""
    assert network.source is not None
    for table in (network.source.tokens.weight, network.target.tokens.weight, network.output.weight):
        table.zero_()
    network.output.bias.fill_(0.0)
    network.output.bias[[PAD, BOS]] = SUPPRESS_BIAS


def _plan_copies(
    config: ModelConfig,
    tables: TableNames,
    source: VocabularyPermutation,
    target: VocabularyPermutation,
    has_bias: bool,
) -> dict[str, list[_Copy]]:
    """Return where every weight of Marian goes, by its name."""
    width, copies = config.d_model, dict[str, list[_Copy]]()

    def add(name: str, copy: _Copy) -> None:
        copies.setdefault(name, []).append(copy)

    add(tables.source, _copy_table(lambda net: _source_table(net), source, width))
    add(tables.target, _copy_table(lambda net: net.target.tokens.weight, target, width))
    if tables.output is not None:
        transposed = tables.output == OLD_OUTPUT_WEIGHT
        add(tables.output, _copy_table(lambda net: net.output.weight, target, width, transposed))
    if has_bias:
        add(OUTPUT_BIAS, _copy_bias(target))
    for name, shape in block_parameters(config):
        found = marian_parameters(name, config)
        count = shape[0] // len(found.names)
        for number, each in enumerate(found.names):
            add(each, _copy_parameter(name, (number * count, count), shape[1:], found.is_matrix))
    return copies


def _source_table(network: Transformer) -> Tensor:
    assert network.source is not None
    return network.source.tokens.weight


def _copy_table(
    find: Callable[[Transformer], Tensor], order: VocabularyPermutation, width: int, transposed: bool = False
) -> _Copy:
    """Copy a table whose rows are tokens. Marian has no row for the last one of `order`."""
    rows = order.their_size - 1
    ids = torch.tensor(order.to_ours(range(rows)), dtype=torch.long)

    def write_rows(network: Transformer, start: int, values: Tensor) -> None:
        find(network)[ids[start : start + len(values)]] = values

    def write_columns(network: Transformer, start: int, values: Tensor) -> None:
        for number, column in enumerate(values, start=start):
            find(network)[ids, number] = column

    return _Copy((width, rows), write_columns) if transposed else _Copy((rows, width), write_rows)


def _copy_bias(order: VocabularyPermutation) -> _Copy:
    rows = order.their_size - 1
    ids = torch.tensor(order.to_ours(range(rows)), dtype=torch.long)

    def write(network: Transformer, start: int, values: Tensor) -> None:
        network.output.bias[ids] = values[0]

    return _Copy((1, rows), write)


def _copy_parameter(name: str, part: tuple[int, int], rest: tuple[int, ...], is_matrix: bool) -> _Copy:
    """Copy into `count` rows of a parameter, from row `first` on. Matrices are transposed."""
    first, count = part

    def write(network: Transformer, start: int, values: Tensor) -> None:
        parameter = network.get_parameter(name)[first : first + count]
        if is_matrix:
            parameter[:, start : start + len(values)] = values.T
        else:
            parameter.copy_(values[0])

    return _Copy((rest[0], count) if is_matrix else (1, count), write)


def _find_faults(copies: Mapping[str, list[_Copy]], file: WeightFile) -> Iterator[MessagePart]:
    """Yield every weight that is missing, of another shape or type, or unknown."""
    shapes = file.shapes()
    for name, each_copy in copies.items():
        if name not in shapes:
            yield MessagePart("weight_missing", name=name)
            continue
        for copy in each_copy:
            if shapes[name] != copy.shape:
                yield MessagePart(
                    "weight_shape_differs", name=name, found=list(shapes[name]), expected=list(copy.shape)
                )
        if not file.headers[name].is_float:
            yield MessagePart("weight_not_float", name=name, type=file.headers[name].type_name)
    for name in shapes:
        if name not in copies:
            yield MessagePart("weight_unknown", name=cut_text(name))
