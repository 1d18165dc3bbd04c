"""The decoding benchmark: workloads, interleaved rounds, token agreement, BLEU, environment."""

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch

from attendo import __version__
from attendo.bench import Progress
from attendo.bench.systems import (
    BASELINES,
    PACKAGES,
    AttendoRunner,
    Ids,
    Precision,
    SystemRunner,
    Workload,
    load_baseline,
    package_version,
    time_call,
)
from attendo.data.corpus_files import read_parallel_lines
from attendo.errors import DataError, LocalizedText, ModelError, UsageError
from attendo.metrics.measure import compute_score
from attendo.metrics.scores import make_metric
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.settings import suggest_name
from attendo.text import CONTROL_PIECES, Tokenizer

_WARM_UP = 4  # additional untimed calls per system on a GPU, which allocate memory and capture CUDA graphs


class BleuScorer:
    """BLEU as `attendo evaluate` computes it: cased, with tokenizer 13a unless the script needs another."""

    def __init__(self, references: Sequence[str], tokenizer: Tokenizer) -> None:
        self._metric, self._tokenizer = make_metric("bleu", references, None), tokenizer

    @property
    def signature(self) -> str:
        return self._metric.signature

    def bleu(self, outputs: Sequence[Sequence[int]]) -> float:
        """Return the BLEU of output ids in the order of the references."""
        texts = [self._tokenizer.decode(answer) for answer in outputs]
        return compute_score(self._metric, self._metric.statistics(texts)).value


@dataclass(frozen=True)
class Baseline:
    """Another system and its precision."""

    name: str
    precision: Precision


@dataclass(frozen=True)
class BenchmarkPlan:
    """Systems, workloads and number of rounds of a benchmark."""

    network: Transformer
    precision: Precision
    baselines: Sequence[Baseline]
    workloads: Sequence[Workload]
    rounds: int
    device: torch.device
    scorer: BleuScorer | None = None


@dataclass(frozen=True)
class SkippedSystem:
    """A baseline that cannot run."""

    name: str
    reason: str


@dataclass(frozen=True)
class Measurement:
    """Times of a system for one workload."""

    system: str
    beam: int
    batch: int
    tokens: int  # in all outputs, including generated EOS
    seconds: tuple[float, ...]  # per round
    ratio: float | None = None  # median time divided by attendo's; None for attendo itself
    same: float | None = None  # share of tokens equal to attendo's
    bleu: float | None = None  # BLEU of the outputs, if there are references

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.median


BenchmarkReport = Progress | SkippedSystem | Measurement


def compare(plan: BenchmarkPlan, clock: Callable[[], float] = time.perf_counter) -> Iterator[BenchmarkReport]:
    """Load each system once. For each workload, compare the outputs of all systems, then time them."""
    systems: list[SystemRunner] = [AttendoRunner(plan.network, plan.precision, plan.device)]
    longest = max(work.max_positions for work in plan.workloads)
    with TemporaryDirectory(prefix="attendo-bench-") as folder:
        for n, baseline in enumerate(plan.baselines):
            name, precision = baseline.name, baseline.precision
            yield Progress(LocalizedText("loading {name} {precision}", name=name, precision=precision))
            try:
                path = Path(folder, str(n))
                systems.append(load_baseline(name, precision, plan.network, plan.device, longest, path))
            except ModelError as error:
                yield SkippedSystem(f"{name} {precision}", str(error))
        for work in plan.workloads:
            yield from _measure(systems, work, plan, clock)


def token_agreement(one: Ids, other: Ids) -> float:
    """Return the share of positions with equal tokens, over all positions of the longer sequences."""
    positions = sum(max(len(a), len(b)) for a, b in zip(one, other, strict=True))
    equal = sum(x == y for a, b in zip(one, other, strict=True) for x, y in zip(a, b, strict=False))
    return equal / positions if positions else 1.0


def _measure(
    systems: Sequence[SystemRunner], workload: Workload, plan: BenchmarkPlan, clock: Callable[[], float]
) -> Iterator[BenchmarkReport]:
    calls = [system.prepare(workload) for system in systems]
    outputs: list[Ids] = []
    for system, call in zip(systems, calls, strict=True):
        yield Progress(
            LocalizedText(
                "beam {beam}, batch {batch}: {name} answers", beam=workload.beam, batch=workload.batch, name=system.name
            )
        )
        outputs.append(system.extract_ids(call()))
        for _ in range(_WARM_UP if plan.device.type == "cuda" else 0):
            call()
    times: list[list[float]] = [[] for _ in systems]
    for turn in range(plan.rounds):
        yield Progress(
            LocalizedText(
                "beam {beam}, batch {batch}: round {turn} of {rounds}",
                beam=workload.beam,
                batch=workload.batch,
                turn=turn + 1,
                rounds=plan.rounds,
            )
        )
        for n in range(len(systems)):
            which = (n + turn) % len(systems)  # rotate the order in every round
            times[which].append(time_call(calls[which], clock))
    ours = statistics.median(times[0])
    for n, system in enumerate(systems):
        ratio = statistics.median(times[n]) / ours if n else None
        same = token_agreement(outputs[0], outputs[n]) if n else None
        tokens = sum(len(answer) + (len(answer) < workload.max_tokens) for answer in outputs[n])
        bleu = plan.scorer.bleu(outputs[n]) if plan.scorer is not None else None
        yield Measurement(system.name, workload.beam, workload.batch, tokens, tuple(times[n]), ratio, same, bleu)


@dataclass(frozen=True)
class BenchmarkSentences:
    """Sources as ids, with optional references."""

    path: Path
    sources: Sequence[Sequence[int]]
    references: Sequence[str] | None = None


def parse_baselines(text: str, precision: Precision) -> list[Baseline]:
    """Parse names such as `ctranslate2:int8,transformers`. The default precision is attendo's."""
    rivals = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        name, _, own = word.partition(":")
        if name not in BASELINES:
            raise UsageError(
                "unknown_rival", name=name, suggestion=suggest_name(name, list(BASELINES)), known=", ".join(BASELINES)
            )
        if own and own not in get_args(Precision):
            raise UsageError("unknown_rival_precision", rival=word, precision=own, known=", ".join(get_args(Precision)))
        rivals.append(Baseline(name, own or precision))  # type: ignore[arg-type]
    return rivals


def make_forced_workloads(
    config: ModelConfig, source_length: int, steps: int, beams: Sequence[int], batches: Sequence[int]
) -> list[Workload]:
    """Make random sources of one length, EOS included, with outputs of exactly `steps` tokens."""
    first, size = len(CONTROL_PIECES), config.source_vocab_size or 0
    if size <= first:
        raise UsageError("vocabulary_only_control_tokens", size=size)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(first, size, (max(batches), max(1, source_length - 1)), generator=generator).tolist()
    works = [
        Workload(ids[:batch], beam, batch, min_tokens=steps, max_tokens=steps) for beam in beams for batch in batches
    ]
    if works[0].max_positions > (room := _max_positions(config)):
        raise UsageError("sequences_exceed_positions", limit=room, length=works[0].max_positions)
    return works


def read_sentences(path: Path, tokenizer: Tokenizer, references: Path | None = None) -> BenchmarkSentences:
    """Read the non-empty lines of a file, with the reference of each."""
    lines = list(read_parallel_lines(path, path if references is None else references))
    encoded = tokenizer.encode_many([line if line.strip() else "" for line, _ in lines])
    pairs = [(ids, reference) for ids, (_, reference) in zip(encoded, lines, strict=True) if ids]
    if not pairs:
        raise DataError("file_has_no_text", path=path)
    sources, paired_references = zip(*pairs, strict=True)
    return BenchmarkSentences(path, sources, paired_references if references is not None else None)


def make_natural_workloads(
    sentences: BenchmarkSentences, config: ModelConfig, beams: Sequence[int], batches: Sequence[int]
) -> list[Workload]:
    """Make workloads with one limit for all sentences: twice the longest source plus 20 tokens."""
    sources = sentences.sources
    longest, room = max(map(len, sources)), _max_positions(config)
    if longest >= room:
        raise DataError("line_exceeds_positions", path=sentences.path, length=longest, limit=room)
    most = int(min(2 * longest + 20, room - 1))
    return [Workload(sources, beam, batch, min_tokens=0, max_tokens=most) for beam in beams for batch in batches]


def _max_positions(config: ModelConfig) -> float:
    return config.max_length if config.positions == "learned" else math.inf


def collect_environment(device: torch.device) -> dict[str, Any]:
    """Return hardware, versions and threads. The version of a missing package is None."""
    return {
        "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else _read_processor_name(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "attendo": __version__,
        "torch": torch.__version__,
        **{name: package_version(name) for name in PACKAGES.values()},
    }


def _read_processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
