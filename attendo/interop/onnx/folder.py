"""Text model as a folder for ONNX Runtime: two graphs, and the other files of a model folder.

    encoder.onnx  step.onnx  (encoder.weights  step.weights)  config.json  generation.json
    source.* and target.* (or joint.*)  manifest.json

Weights are in a separate file if the graph would exceed the size limit of an ONNX file.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from attendo.data.batch import Example
from attendo.errors import AttendoError, ModelError, require_package
from attendo.interop.certify import model_symbols
from attendo.interop.exported_files import (
    MANIFEST_FORMAT,
    MANIFEST_VERSION,
    check_export,
    model_max_length,
    require_empty,
    write_text_files,
)
from attendo.interop.onnx.session import OnnxNetwork
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_files import read_json, write_json
from attendo.model_folder import load_tokenizers, require_listed, write_manifest
from attendo.nn.devices import int8_saturates
from attendo.text import Tokenizer
from attendo.text_model import TextModel

if TYPE_CHECKING:
    from onnx import ModelProto

    from attendo.interop.onnx.graph_builder import ActivationRanges

OnnxPrecision = Literal["fp32", "int8"]

_MAX_CALIBRATION_EXAMPLES = 200  # of the model's sample
_MAX_CALIBRATION_LENGTH = 256
_PAIR_SUMS_FIT = "pairs_fit_16_bits"  # fact: int8 products do not overflow on any processor (graph_builder.py)
_MAX_FILE_BYTES = 2**31 - 2**20  # limit of a protocol buffer file


@dataclass(frozen=True)
class OnnxModel:
    """Contents of an exported ONNX folder."""

    network: OnnxNetwork
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    generation: dict[str, Any]
    precision: OnnxPrecision


def to_onnx(
    model: TextModel,
    folder: str | Path,
    precision: OnnxPrecision = "fp32",
    examples: Sequence[Example] | None = None,
    float32_share: float = 0.0,
) -> int:
    """Write a new folder that `open_onnx` reads. Return the number of products kept in float32 in an int8 export.

    int8 is calibrated on `examples`; the default is the model's sample, or random ids if it has none. `float32_share`
    is the share of products kept in float32: those with the largest quantization error.
    """
    require_package("onnx", "export", "an export to onnx")
    from attendo.interop.onnx.graphs import encoder_graph, step_graph

    folder, network = Path(folder), model.network
    ranges: ActivationRanges = {}
    num_float32 = 0
    require_empty(folder)
    if precision == "int8":
        examples = examples or _calibration_examples(model)
        network, ranges, num_float32 = _plan_quantization(network, examples, float32_share)
    graphs = {name: make(network, ranges) for name, make in (("encoder", encoder_graph), ("step", step_graph))}
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in graphs.items():
        _save(graph, folder, name)
    write_text_files(model, folder)
    write_json(folder / "config.json", network.config.model_dump(mode="json"))
    facts: dict[str, Any] = {"to": "onnx", "precision": precision}
    if precision == "int8":
        facts[_PAIR_SUMS_FIT] = True
    if num_float32:
        facts["exact_products"] = num_float32
    write_manifest(folder, MANIFEST_FORMAT, MANIFEST_VERSION, facts)
    return num_float32


def open_onnx(folder: str | Path, threads: int | None = None) -> OnnxModel:
    """Open a folder that `to_onnx` wrote. `threads` defaults to torch's thread count."""
    require_package("onnxruntime", "export", "an ONNX model")
    folder = Path(folder)
    names, facts = check_export(folder, "onnx", get_args(OnnxPrecision))
    weights = (path.name for path in folder.glob("*.weights"))
    require_listed(folder, names, ("encoder.onnx", "step.onnx", "config.json", "generation.json", *weights))
    if facts["precision"] == "int8" and not facts.get(_PAIR_SUMS_FIT) and int8_saturates():
        raise ModelError("onnx_int8_overflow", folder=folder)
    try:
        config = ModelConfig(**read_json(folder / "config.json"))
    except AttendoError as error:
        raise ModelError("model_config_invalid", path=folder / "config.json", error=error) from None
    if config.decoder_only:
        raise ModelError("onnx_encoder_missing", path=folder / "config.json")
    source, target = load_tokenizers(folder, names, config)
    generation = read_json(folder / "generation.json")
    network = OnnxNetwork(folder / "encoder.onnx", folder / "step.onnx", config, threads)
    return OnnxModel(network, source, target, generation, facts["precision"])


def _plan_quantization(
    network: Transformer, examples: Sequence[Example], float32_share: float
) -> tuple[Transformer, "ActivationRanges", int]:
    """Return the smoothed network, the input ranges of its int8 products, and the number of float32 products."""
    from attendo.interop.onnx.quantization import activation_ranges, quantization_sensitivity, smooth_quant

    even = smooth_quant(network, examples)
    ranges = activation_ranges(even, examples)
    if not float32_share:
        return even, ranges, 0
    lost, count = quantization_sensitivity(even, ranges, examples), math.ceil(float32_share * len(ranges))
    worst = sorted(lost, key=lambda site: lost[site], reverse=True)[:count]
    return even, {site: size for site, size in ranges.items() if site not in worst}, count


def _calibration_examples(model: TextModel) -> list[Example]:
    from attendo.interop.onnx.quantization import random_examples

    pairs = model.stored_model.sample[:_MAX_CALIBRATION_EXAMPLES]
    symbols = model_symbols(model)
    sources = model.source_tokenizer.encode_many([source for source, _ in pairs])
    targets = model.target_tokenizer.encode_many([target for _, target in pairs])
    longest = model_max_length(model, _MAX_CALIBRATION_LENGTH)
    pairs_of_ids = zip(sources, targets, strict=True)
    examples = [Example([*symbols.wrap_source(source)], [*symbols.begin, *target]) for source, target in pairs_of_ids]
    return [each for each in examples if each.length <= longest] or random_examples(model.network)


def _save(graph: "ModelProto", folder: Path, name: str) -> None:
    import onnx

    external = sum(len(each.raw_data) for each in graph.graph.initializer) > _MAX_FILE_BYTES
    location = f"{name}.weights" if external else None
    onnx.save_model(graph, str(folder / f"{name}.onnx"), save_as_external_data=external, location=location)
