"""The benchmarked systems: attendo, transformers, CTranslate2, ONNX Runtime."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from attendo.data.batch import collate_sources
from attendo.decode.beam import Beam
from attendo.decode.engines import CachedEngine, Engine, FastEngine
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.rules import MinLength, SuppressTokens
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy
from attendo.errors import ModelError
from attendo.interop.ctranslate2.converter import placeholder_pieces, to_ctranslate2
from attendo.interop.huggingface.model_classes import MARIAN, PEGASUS, HFModelClass
from attendo.interop.huggingface.t5_classes import T5, UMT5
from attendo.interop.huggingface.t5_settings import repair_t5_cache
from attendo.interop.onnx.engine import OnnxEngine
from attendo.interop.onnx.session import OnnxNetwork
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.attention import without_cudnn_attention
from attendo.nn.devices import configure_cpu_bf16
from attendo.text import BOS, EOS, PAD

Precision = Literal["fp32", "fp16", "bf16", "int8"]
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PACKAGES = {
    "transformers": "transformers",
    "ctranslate2": "ctranslate2",
    "ctranslate2_dealt": "ctranslate2",
    "onnx": "onnx",
}
BASELINES = tuple(PACKAGES)
_CTRANSLATE2_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
Ids = list[list[int]]
RULES = (SuppressTokens(), MinLength())
UNLIMITED_POSITIONS = 1 << 40  # positions; the workload defines the batches


@dataclass(frozen=True)
class Workload:
    """Sources to decode in batches of `batch` sentences. If `min_tokens` is `max_tokens`, all outputs have that length.

    Ids exclude control tokens. EOS is forbidden before `min_tokens` tokens and counts towards `max_tokens`. The last
    of the `max_tokens` may be any token.

    All systems use the same beam search. A step considers the 2·beam best continuations. A sentence ends when `beam`
    hypotheses have ended. Its output is the one with the highest mean log-probability, EOS included.

        attendo         Beam(beam, stop="first", free_end=True), whose ranking is the average
        CTranslate2     length_penalty 1 and patience 1
        transformers    length_penalty 1 and early_stopping True
    """

    sources: Sequence[Sequence[int]]
    beam: int
    batch: int
    min_tokens: int
    max_tokens: int

    @property
    def has_fixed_length(self) -> bool:
        return self.min_tokens == self.max_tokens

    @property
    def max_positions(self) -> int:
        """The positions that a system needs on the longer side."""
        return max(max(map(len, self.sources)), self.max_tokens) + 1

    def batches(self) -> list[list[int]]:
        """Return the source indices of each batch, sorted by length, for systems that do not sort."""
        order = sorted(range(len(self.sources)), key=lambda n: -len(self.sources[n]))
        return [order[first : first + self.batch] for first in range(0, len(order), self.batch)]


@runtime_checkable
class SystemRunner(Protocol):
    """A system that decodes. Only the call that `prepare` returns is timed."""

    @property
    def name(self) -> str: ...

    def prepare(self, workload: Workload) -> Callable[[], Any]:
        """Do all work that is not timed. The returned call must block until the outputs are ready."""

    def extract_ids(self, output: Any) -> list[list[int]]:
        """Convert the result of the call to ids without control tokens, in the order of the sources."""


def load_baseline(
    name: str, precision: Precision, network: Transformer, device: torch.device, max_positions: int, folder: Path
) -> SystemRunner:
    """Load a baseline with the weights of `network`, writing files to `folder`. Raise `ModelError` if it cannot run."""
    if find_spec(PACKAGES[name]) is None:
        extra = "hf" if name == "transformers" else "export"
        raise ModelError("rival_not_installed", package=PACKAGES[name], extra=extra)
    try:
        if name == "transformers":
            return TransformersRunner(network, precision, device, max_positions)
        if name == "onnx":
            return OnnxRunner(network, precision, device)
        return CTranslate2Runner(network, precision, device, max_positions, folder, dealt=name == "ctranslate2_dealt")
    except (ImportError, RuntimeError, ValueError) as error:  # raised for an unsupported device or type
        raise ModelError("rival_load_failed", reason=" ".join(str(error).split())) from None


def package_version(name: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class TransformersRunner:
    """A MarianMTModel, a Pegasus model for a pre-norm network, or a T5, called as in the documentation."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device, max_positions: int) -> None:
        if precision not in DTYPES:
            raise ModelError("transformers_precision_unsupported", precision=precision)
        self.name = f"transformers {precision}"
        model_class = _choose_model_class(network.config)
        model = model_class.build(network, max_positions)
        model = repair_t5_cache(model) if model_class in (T5, UMT5) else model
        self._model: Any = model.to(device, DTYPES[precision])
        # Remove the suppression of tokens that a trained network does not generate; it costs time.
        self._model.generation_config.suppress_tokens = None
        self._device = device

    def prepare(self, workload: Workload) -> Callable[[], dict[int, list[int]]]:
        settings: dict[str, Any] = {
            "num_beams": workload.beam,
            "max_new_tokens": workload.max_tokens,
            "do_sample": False,
        }
        if workload.beam > 1:
            settings |= {"length_penalty": 1.0, "early_stopping": True}
        if workload.min_tokens:
            settings["min_new_tokens"] = workload.min_tokens
        groups = workload.batches()
        inputs = [self._make_inputs(workload, group) for group in groups]

        def generate() -> dict[int, list[int]]:
            outputs: dict[int, list[int]] = {}
            for group, given in zip(groups, inputs, strict=True):
                outputs |= zip(group, self._model.generate(**given, **settings).tolist(), strict=True)
            return outputs

        return generate

    def extract_ids(self, output: Any) -> list[list[int]]:
        return [[each for each in output[n] if each not in (PAD, BOS, EOS)] for n in range(len(output))]

    def _make_inputs(self, workload: Workload, group: list[int]) -> dict[str, Tensor]:
        ids, mask = collate_sources([workload.sources[n] for n in group])
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return {"input_ids": ids.to(self._device), "attention_mask": mask.to(self._device)}


def _choose_model_class(config: ModelConfig) -> HFModelClass:
    if config.positions == "relative":
        return UMT5 if config.relative_bias == "per_layer" else T5
    return MARIAN if config.norm == "post" else PEGASUS


class CTranslate2Runner:
    """A `ctranslate2.Translator` with torch's number of threads and one batch at a time.

    With `dealt`, each thread has its own batch: an equal share of the workload's batch.

    The translator sorts and batches by sentences or by tokens. With several batches of natural lengths, both are tried
    before timing. The faster one is used and named.
    """

    def __init__(
        self,
        network: Transformer,
        precision: Precision,
        device: torch.device,
        max_positions: int,
        folder: Path,
        dealt: bool = False,
    ) -> None:
        from ctranslate2 import Translator

        kind, threads = _CTRANSLATE2_TYPES[precision], torch.get_num_threads()
        self._workers = threads if dealt else 1
        self.name = self._plain_name = f"ctranslate2 {precision}{' dealt' * dealt}"
        to_ctranslate2(network, folder, kind, max_positions)  # type: ignore[arg-type]
        self._translator = Translator(
            str(folder),
            device=device.type,
            device_index=device.index or 0,
            compute_type=kind,
            inter_threads=self._workers,
            intra_threads=threads // self._workers,
        )
        config = network.config
        self._source_pieces = placeholder_pieces(config.source_vocab_size or 0)
        pieces = placeholder_pieces(config.target_vocab_size or 0)
        self._piece_ids = {piece: n for n, piece in enumerate(pieces)}

    def prepare(self, workload: Workload) -> Callable[[], Any]:
        sources = [[self._source_pieces[each] for each in source] for source in workload.sources]
        settings = {
            "beam_size": workload.beam,
            "length_penalty": 1,
            "patience": 1,
            "min_decoding_length": workload.min_tokens,
            "max_decoding_length": workload.max_tokens,
            "max_input_length": 0,
        }

        def make_call(kind: str, size: int) -> Callable[[], Any]:
            return lambda: self._translator.translate_batch(sources, max_batch_size=size, batch_type=kind, **settings)

        self.name = self._plain_name
        by_sentences = make_call("examples", math.ceil(workload.batch / self._workers))
        if workload.has_fixed_length or len(sources) <= workload.batch:
            return by_sentences
        calls = {
            "sentences": by_sentences,
            "tokens": make_call("tokens", math.ceil(_count_source_tokens(workload) / self._workers)),
        }
        best = pick_faster(calls)
        self.name = f"{self._plain_name} by {best}"
        return calls[best]

    def extract_ids(self, output: Any) -> list[list[int]]:
        return [[self._piece_ids[piece] for piece in each.hypotheses[0]] for each in output]


class OnnxRunner:
    """attendo's search with ONNX Runtime as the network. Not another system, but measured with the baselines."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device) -> None:
        from attendo.interop.onnx.quantization import activation_ranges, random_examples

        if device.type != "cpu" or precision not in ("fp32", "int8"):
            raise ModelError("onnx_precision_or_device_unsupported", precision=precision, device=device.type)
        self.name = f"attendo onnx {precision}"
        ranges = activation_ranges(network, random_examples(network)) if precision == "int8" else None
        self._network = OnnxNetwork.from_network(network.cpu(), ranges)

    def prepare(self, workload: Workload) -> Callable[[], list[list[int]]]:
        return prepare_generation(OnnxEngine(self._network, UNLIMITED_POSITIONS), workload)

    def extract_ids(self, output: Any) -> list[list[int]]:
        return list(output)


def pick_faster(calls: Mapping[str, Callable[[], Any]], clock: Callable[[], float] = time.perf_counter) -> str:
    """Return the name of the faster call. The first, untimed run of each call sets things up."""
    seconds = {}
    for name, call in calls.items():
        call()
        seconds[name] = time_call(call, clock)
    return min(seconds, key=lambda name: seconds[name])


def time_call(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Return the seconds that a call takes."""
    begin = clock()
    call()
    return clock() - begin


def _count_source_tokens(workload: Workload) -> int:
    """Return the number of source tokens in `workload.batch` sentences of average length."""
    return math.ceil(workload.batch * sum(map(len, workload.sources)) / len(workload.sources))


def prepare_generation(engine: Engine, workload: Workload) -> Callable[[], Ids]:
    """Return a call that decodes all sources with attendo and returns the best output of each.

    Only the call is timed, so all reusable work is done before it.
    """
    # As in the other systems, the limit includes EOS and the last token may be any token.
    strategy: Strategy = (
        Greedy(free_end=True) if workload.beam == 1 else Beam(workload.beam, stop="first", free_end=True)
    )
    groups = [
        [
            DecodeRequest(number, tuple(workload.sources[number]), workload.max_tokens - 1, workload.min_tokens)
            for number in group
        ]
        for group in workload.batches()
    ]

    def generate() -> Ids:
        outputs: dict[int, list[int]] = {}
        with without_cudnn_attention():
            for group in groups:
                found = engine.generate(group, strategy, RULES)
                outputs |= {number: ids for some in found for number, ids in _best_hypotheses(some)}
        return [outputs[n] for n in range(len(workload.sources))]

    return generate


class AttendoRunner:
    """attendo on a copy of the network, so that the original keeps its precision and device."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device) -> None:
        self.name = f"attendo {precision}"
        configure_cpu_bf16(device, DTYPES[precision])
        self._network = copy.deepcopy(network).to(device, DTYPES[precision]).eval()

    def prepare(self, workload: Workload) -> Callable[[], Ids]:
        if self._network.device.type != "cuda":
            return prepare_generation(CachedEngine(self._network, UNLIMITED_POSITIONS), workload)
        engine = FastEngine(self._network, UNLIMITED_POSITIONS, compiled=True, max_sentences=workload.batch)
        return prepare_generation(
            engine, replace(workload, batch=len(workload.sources))
        )  # continuous batching: waiting sentences replace finished ones

    def extract_ids(self, output: Any) -> Ids:
        return output


def _best_hypotheses(finished: FinishedBatch) -> Iterator[tuple[int, list[int]]]:
    """Yield each request's id and the token ids of its first hypothesis, which is the best."""
    found = finished.hypotheses
    words = found.length - (found.ended & ~found.cut).long()  # without EOS
    best = (each[:: found.width].tolist() for each in (found.ids, words))
    for request, ids, count in zip(finished.requests, *best, strict=True):
        yield request.request_id, ids[1 : 1 + count]  # after BOS
