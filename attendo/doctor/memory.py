"""Memory check: estimate and measurement of one update of the widest batch."""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

import attendo
from attendo.data.batch import Batch, Example, RaggedArray, collate, collate_windows
from attendo.data.bucketing import make_batches
from attendo.data.prepared import PreparedData
from attendo.doctor.data_sampling import read_blocks
from attendo.doctor.finding import Finding
from attendo.model.transformer import Transformer
from attendo.text import EOS
from attendo.train.loss import training_loss
from attendo.train.update import Updater

SAMPLED_PAIRS = 65_536
MAX_USED_SHARE = 0.8  # of the memory that is there
_BLOCK_PAIRS = 1024
# On the way back gradients come and go: first of the logits and of what the loss is the sum of, then of each layer.
_LOGITS_AT_ONCE = 3
_LAYERS_AT_ONCE = 0.35  # of all activations, with the gaps that they leave in a CPU's memory
_CGROUP = Path("/sys/fs/cgroup")
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class TrainingBatchShape:
    """In positions, control tokens and padding included; running text has no source."""

    rows: int
    source: int
    target: int

    def make_batch(self) -> Batch:
        """Made up: memory does not ask which tokens they are."""
        if not self.source:
            return collate_windows(RaggedArray.from_lists([[EOS] * self.target] * self.rows))
        pair = Example([EOS] * (self.source - 1), [EOS] * (self.target - 1))
        return collate([pair] * self.rows)

    def __str__(self) -> str:
        if not self.source:
            return f"{self.rows:,} windows of {self.target:,} tokens"
        return f"{self.rows:,} rows, {self.source:,} source and {self.target:,} target positions wide"


@dataclass(frozen=True)
class MemoryEstimate:
    """In bytes."""

    shape: TrainingBatchShape
    weights: int  # with gradients, moments and the moving average
    activations: int  # kept for the way back
    peak_gradients: int  # gradients of logits and layers, at most

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.peak_gradients


def check_memory(updater: Updater, data: PreparedData, measure: bool = False) -> Finding:
    """With `measure` one such update is made, where there is room for it, and the estimate compared."""
    shapes = find_widest_shapes(data, updater.config.batch_tokens, updater.config.sort_within)
    most = max((estimate_memory(updater, shape) for shape in shapes), key=lambda each: each.total)
    free = free_memory(updater.device)
    fits = free is None or most.total <= MAX_USED_SHARE * free
    values: dict[str, float] = {"estimate": most.total, **({} if free is None else {"free": free})}
    found = (
        f"{format_bytes(most.total)} for a batch of {most.shape}: {format_bytes(most.weights)} weights, "
        "gradients and moments, "
        f"{format_bytes(most.activations)} activations, {format_bytes(most.peak_gradients)} gradients of "
        "logits and layers"
    )
    taken = measure_memory(updater, most.shape) if measure and fits else None
    if taken is not None:
        values["measured"] = taken
        found += f"; measured {format_bytes(taken)}, {_describe_deviation(most.total / taken - 1)} the estimate"
    found += "; how much is free is not known" if free is None else f"; {format_bytes(free)} free"
    if fits:
        return Finding("memory", "ok", found, values=values, about="network")
    assert free is not None
    return Finding("memory", "warning", found, _advise(updater, most, free), values=values, about="network")


def find_widest_shapes(
    data: PreparedData, batch_tokens: int, sort_within: int | None = None
) -> list[TrainingBatchShape]:
    """The batches with most positions and with the longest sentences, of those that a sample of the pairs makes."""
    control = 1 if data.window is None else 0  # tokens that join each side
    sampled = read_blocks(data, SAMPLED_PAIRS, _BLOCK_PAIRS)
    parts = [(each.source.lengths + control, each.target.lengths + control) for each in sampled]
    source, target = (np.concatenate(side) for side in zip(*parts, strict=True))
    groups = make_batches(source, target, batch_tokens, sort_within)
    shapes = [TrainingBatchShape(len(rows), int(source[rows].max()), int(target[rows].max())) for rows in groups]
    most = max(shapes, key=lambda shape: shape.rows * (shape.source + shape.target))
    longest = max(shapes, key=lambda shape: max(shape.source, shape.target))
    return list(dict.fromkeys((most, longest)))


def estimate_memory(updater: Updater, shape: TrainingBatchShape) -> MemoryEstimate:
    """What a third row keeps for the way back is counted and multiplied by their number: one alone is special."""
    config, network = updater.config, updater.network
    rows = -(-shape.rows // updater.world.size)
    weights = sum(weight.nbytes for weight in network.parameters())
    copies = 5 if config.ema else 4  # themselves, gradients, two moments, and their average
    passes = 2 if config.r_drop else 1
    logits = passes * rows * shape.target * network.output.out_features * 4
    two, three = (_measure_saved_tensors(updater, replace(shape, rows=count).make_batch()) for count in (2, 3))
    activations = two + (rows - 2) * (three - two)
    passing = max(_LOGITS_AT_ONCE * logits, round(_LAYERS_AT_ONCE * activations))
    return MemoryEstimate(shape, copies * weights, activations, passing)


def format_bytes(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _describe_deviation(share: float) -> str:
    """How the measured value lies to an estimate that is larger by this share of it."""
    return f"{abs(share):.0%} {'below' if share > 0 else 'above'}"


def _measure_saved_tensors(updater: Updater, batch: Batch) -> int:
    """Bytes of all that the way forward keeps for the way back, each piece of memory once, weights apart."""
    weights = {weight.untyped_storage().data_ptr() for weight in updater.network.parameters()}
    kept: dict[int, Tensor] = {}  # held fast, or the same memory might be given out twice

    def keep(tensor: Tensor) -> Tensor:
        # Detached: a step that keeps its own result, which knows its step, would never be let go.
        kept[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor.detach()

    updater.network.train()
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _forward(updater, batch.to(updater.device))
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)


def _forward(updater: Updater, batch: Batch) -> Tensor:
    rows = batch.repeat(2) if updater.config.r_drop else batch
    with updater.autocast():
        logits = updater.network(rows.source_ids, rows.target_ids, rows.source_mask)
        return training_loss(logits, batch.labels, updater.config.label_smoothing, updater.config.r_drop)


def _advise(updater: Updater, largest: MemoryEstimate, free: int) -> str:
    config = updater.config
    room = MAX_USED_SHARE * free - largest.weights
    if room <= 0:
        return "the weights alone do not fit: take a smaller preset"
    smaller = room / (largest.activations + largest.peak_gradients)
    tokens = max(1, int(largest.shape.rows * max(largest.shape.source, largest.shape.target) * smaller))
    digits = max(0, int(math.log10(tokens)) - 1)
    tokens = tokens // 10**digits * 10**digits
    times = math.ceil(config.accumulate * config.batch_tokens / tokens)
    return f"set train.batch_tokens to {tokens} and train.accumulate to {times}, which learns from as much at a time"


def free_memory(device: torch.device) -> int | None:
    """Bytes that this process may use beside what others have; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    free = [each for each in (_read_available_memory(), _read_cgroup_headroom()) if each is not None]
    return min(free) if free else None


def measure_memory(updater: Updater, shape: TrainingBatchShape) -> int | None:
    """Bytes that an update of such a batch takes at most; None where that cannot be told."""
    return _measure_on_gpu(updater, shape) if updater.device.type == "cuda" else _measure_in_process(updater, shape)


def _measure_on_gpu(updater: Updater, shape: TrainingBatchShape) -> int | None:
    device = updater.device
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    try:
        network = Transformer(updater.network.config, torch.Generator().manual_seed(0)).to(device)
        student = Updater(network, updater.config.replace(compile="off", capture="off"))
        student.update(
            [TrainingBatchShape(1, shape.source, shape.target).make_batch()]
        )  # from the first update on there are moments
        student.update([shape.make_batch()])
        return torch.cuda.max_memory_allocated(device) - before
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()


def _measure_in_process(updater: Updater, shape: TrainingBatchShape) -> int | None:
    """In a process of its own, because this one's peak is past."""
    asked = {
        "model": updater.network.config.model_dump(mode="json", exclude_unset=True),
        "train": updater.config.replace(compile="off").model_dump(mode="json", exclude_unset=True),
        "shape": asdict(shape),
        "threads": torch.get_num_threads(),
    }
    package = str(Path(attendo.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    try:
        with TemporaryDirectory() as folder:
            subprocess.run(
                [sys.executable, "-P", "-m", "attendo.doctor.memory_probe", f"{folder}/answer"],
                input=json.dumps(asked),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=True,
                env={**os.environ, "PYTHONPATH": paths},
            )
            return int(json.loads(Path(folder, "answer").read_text())["bytes"])
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _read_available_memory() -> int | None:
    """As Linux tells it."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
        return None
    except OSError:
        return None


def _read_cgroup_headroom() -> int | None:
    """What is left of the limit of a container."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None
