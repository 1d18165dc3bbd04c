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
from attendo.decode.requests import Answers, Request
from attendo.decode.rules import Forbid, LeastLength
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy
from attendo.errors import ModelError
from attendo.interop.ctranslate2.converter import placeholder_pieces, to_ctranslate2
from attendo.interop.huggingface.model_classes import to_marian, to_pegasus
from attendo.interop.onnx.engine import OnnxEngine
from attendo.interop.onnx.session import OnnxNetwork
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape
from attendo.nn.devices import settle_bf16
from attendo.text import BOS, EOS, PAD

Precision = Literal["fp32", "fp16", "bf16", "int8"]
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PACKAGES = {
    "transformers": "transformers",
    "ctranslate2": "ctranslate2",
    "ctranslate2_dealt": "ctranslate2",
    "onnx": "onnx",
}
RIVALS = tuple(PACKAGES)
_CTRANSLATE2_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
Ids = list[list[int]]
RULES = (Forbid(), LeastLength())
ALL_AT_ONCE = 1 << 40  # positions: the work says which sentences go together


@dataclass(frozen=True)
class Work:
    """Sources to answer, so many side by side. With `least` equal to `most` every answer is that long.

    Ids are without control tokens. eos is forbidden before `least` tokens are there, and is one of the `most`; the last
    of these may be any token.

    A beam means the same for all, so that none has less to do than another: a step looks at the 2·beam best
    continuations, a sentence is done as soon as `beam` hypotheses have ended, and of these the one with the highest
    mean log-probability, eos counted, is the answer.

        attendo         Beam(beam, stop="first", free_end=True), whose ranking is the average
        CTranslate2     length_penalty 1 and patience 1
        transformers    length_penalty 1 and early_stopping True
    """

    sources: Sequence[Sequence[int]]
    beam: int
    batch: int
    least: int
    most: int

    @property
    def forced(self) -> bool:
        return self.least == self.most

    @property
    def longest(self) -> int:
        """Positions that a system needs, on either side."""
        return max(max(map(len, self.sources)), self.most) + 1

    def batches(self) -> list[list[int]]:
        """Numbers of the sources, those of like length together: for systems that do not sort by themselves."""
        order = sorted(range(len(self.sources)), key=lambda n: -len(self.sources[n]))
        return [order[first : first + self.batch] for first in range(0, len(order), self.batch)]


@runtime_checkable
class System(Protocol):
    """Something that decodes. Only the call that `prepare` returns is timed."""

    @property
    def name(self) -> str: ...

    def prepare(self, work: Work) -> Callable[[], Any]:
        """All that is done once, before the clock runs. The call must not return before the answers are there."""

    def ids(self, said: Any) -> list[list[int]]:
        """What such a call returned, as ids without control tokens, in the order of the sources."""


def load_rival(
    name: str, precision: Precision, network: Transformer, device: torch.device, longest: int, folder: Path
) -> System:
    """A rival with the weights of `network`; files go into `folder`. What it cannot do is a `ModelError`."""
    if find_spec(PACKAGES[name]) is None:
        extra = "hf" if name == "transformers" else "export"
        raise ModelError("rival_not_installed", package=PACKAGES[name], extra=extra)
    try:
        if name == "transformers":
            return Transformers(network, precision, device, longest)
        if name == "onnx":
            return Onnx(network, precision, device)
        return CTranslate2(network, precision, device, longest, folder, dealt=name == "ctranslate2_dealt")
    except (ImportError, RuntimeError, ValueError) as error:  # as they say that there is no such device or type
        raise ModelError("rival_load_failed", reason=" ".join(str(error).split())) from None


def version(name: str) -> str | None:
    """None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class Transformers:
    """A MarianMTModel, or with the norms before the sub-layers a Pegasus model, called as the documentation does."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device, longest: int) -> None:
        if precision not in DTYPES:
            raise ModelError("transformers_precision_unsupported", precision=precision)
        self.name = f"transformers {precision}"
        made = to_marian if network.config.norm == "post" else to_pegasus
        self._model: Any = made(network, longest).to(device, DTYPES[precision])
        # What a trained network does not say anyway need not cost time.
        self._model.generation_config.suppress_tokens = None
        self._device = device

    def prepare(self, work: Work) -> Callable[[], dict[int, list[int]]]:
        settings: dict[str, Any] = {"num_beams": work.beam, "max_new_tokens": work.most, "do_sample": False}
        if work.beam > 1:
            settings |= {"length_penalty": 1.0, "early_stopping": True}
        if work.least:
            settings["min_new_tokens"] = work.least
        groups = work.batches()
        inputs = [self._inputs(work, group) for group in groups]

        def answer() -> dict[int, list[int]]:
            answers: dict[int, list[int]] = {}
            for group, given in zip(groups, inputs, strict=True):
                answers |= zip(group, self._model.generate(**given, **settings).tolist(), strict=True)
            return answers

        return answer

    def ids(self, said: Any) -> list[list[int]]:
        return [[each for each in said[n] if each not in (PAD, BOS, EOS)] for n in range(len(said))]

    def _inputs(self, work: Work, group: list[int]) -> dict[str, Tensor]:
        ids, mask = collate_sources([work.sources[n] for n in group])
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return {"input_ids": ids.to(self._device), "attention_mask": mask.to(self._device)}


class CTranslate2:
    """A `ctranslate2.Translator`, with as many threads as torch has for one batch at a time.

    Where it is `dealt`, each thread has a batch of its own: an equal share of the sentences that are side by side.

    It sorts and batches by itself, by sentences or by tokens. Where there is more than one batch of natural lengths,
    both are tried before the clock runs and the faster one takes part; the name then says which.
    """

    def __init__(
        self,
        network: Transformer,
        precision: Precision,
        device: torch.device,
        longest: int,
        folder: Path,
        dealt: bool = False,
    ) -> None:
        from ctranslate2 import Translator

        kind, threads = _CTRANSLATE2_TYPES[precision], torch.get_num_threads()
        self._workers = threads if dealt else 1
        self.name = self._plain_name = f"ctranslate2 {precision}{' dealt' * dealt}"
        to_ctranslate2(network, folder, kind, longest)  # type: ignore[arg-type]
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
        self._number = {piece: n for n, piece in enumerate(pieces)}

    def prepare(self, work: Work) -> Callable[[], Any]:
        sources = [[self._source_pieces[each] for each in source] for source in work.sources]
        settings = {
            "beam_size": work.beam,
            "length_penalty": 1,
            "patience": 1,
            "min_decoding_length": work.least,
            "max_decoding_length": work.most,
            "max_input_length": 0,
        }

        def batched(kind: str, size: int) -> Callable[[], Any]:
            return lambda: self._translator.translate_batch(sources, max_batch_size=size, batch_type=kind, **settings)

        self.name = self._plain_name
        by_sentences = batched("examples", math.ceil(work.batch / self._workers))
        if work.forced or len(sources) <= work.batch:
            return by_sentences
        ways = {"sentences": by_sentences, "tokens": batched("tokens", math.ceil(_tokens(work) / self._workers))}
        best = faster(ways)
        self.name = f"{self._plain_name} by {best}"
        return ways[best]

    def ids(self, said: Any) -> list[list[int]]:
        return [[self._number[piece] for piece in each.hypotheses[0]] for each in said]


class Onnx:
    """attendo's own search, with what ONNX Runtime computes: no rival, but measured beside them."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device) -> None:
        from attendo.interop.onnx.quantization import observed, random_examples

        if device.type != "cpu" or precision not in ("fp32", "int8"):
            raise ModelError("onnx_precision_or_device_unsupported", precision=precision, device=device.type)
        self.name = f"attendo onnx {precision}"
        ranges = observed(network, random_examples(network)) if precision == "int8" else None
        self._network = OnnxNetwork.of(network.cpu(), ranges)

    def prepare(self, work: Work) -> Callable[[], list[list[int]]]:
        return answering(OnnxEngine(self._network, ALL_AT_ONCE), work)

    def ids(self, said: Any) -> list[list[int]]:
        return list(said)


def faster(ways: Mapping[str, Callable[[], Any]], clock: Callable[[], float] = time.perf_counter) -> str:
    """The name of the call that takes less time, the second time: the first sets things up."""
    seconds = {}
    for name, call in ways.items():
        call()
        begin = clock()
        call()
        seconds[name] = clock() - begin
    return min(seconds, key=lambda name: seconds[name])


def _tokens(work: Work) -> int:
    """Source tokens that `work.batch` sentences of average length have."""
    return math.ceil(work.batch * sum(map(len, work.sources)) / len(work.sources))


def answering(engine: Engine, work: Work) -> Callable[[], Ids]:
    """The one place that knows how attendo is asked: a call that gives the best answer to each source.

    What need not be done anew for every answer belongs before the call, which alone is timed.
    """
    # As the others have it, a limit counts eos, and its last token may be any.
    strategy: Strategy = Greedy(free_end=True) if work.beam == 1 else Beam(work.beam, stop="first", free_end=True)
    groups = [
        [Request(number, tuple(work.sources[number]), work.most - 1, work.least) for number in group]
        for group in work.batches()
    ]

    def answer() -> Ids:
        answers: dict[int, list[int]] = {}
        with kernels_for_any_shape():
            for group in groups:
                found = engine.answers(group, strategy, RULES)
                answers |= {number: ids for some in found for number, ids in _best(some)}
        return [answers[n] for n in range(len(work.sources))]

    return answer


class Ours:
    """A copy of the network, so that its own precision and place stay as they are."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device) -> None:
        self.name = f"attendo {precision}"
        settle_bf16(device, DTYPES[precision])
        self._network = copy.deepcopy(network).to(device, DTYPES[precision]).eval()

    def prepare(self, work: Work) -> Callable[[], Ids]:
        if self._network.device.type != "cuda":
            return answering(CachedEngine(self._network, ALL_AT_ONCE), work)
        engine = FastEngine(self._network, ALL_AT_ONCE, compiled=True, most=work.batch)
        return answering(engine, replace(work, batch=len(work.sources)))  # those that wait take the places of others

    def ids(self, said: Any) -> Ids:
        return said


def _best(answers: Answers) -> Iterator[tuple[int, list[int]]]:
    """The number of each request, and the ids of the first of its hypotheses, which is the best."""
    found = answers.hypotheses
    words = found.length - (found.ended & ~found.cut).long()  # without eos
    best = (each[:: found.width].tolist() for each in (found.ids, words))
    for request, ids, count in zip(answers.requests, *best, strict=True):
        yield request.number, ids[1 : 1 + count]  # behind bos
