"""Memory check: estimates and measures the memory of one update with the largest batch."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
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
from attendo.errors import LocalizedText
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.parallel import ParallelTransformer
from attendo.text import UNK
from attendo.train.activation_checkpointing import keep_activations
from attendo.train.config import TrainConfig
from attendo.train.loss import training_loss
from attendo.train.update import Updater

SAMPLED_PAIRS = 65_536
MAX_USED_SHARE = 0.8  # share of the free memory
_BLOCK_PAIRS = 1024
# Peak gradients of the backward pass: first of the logits and the loss terms, then of each layer.
_LOGITS_AT_ONCE = 3
_LAYERS_AT_ONCE = 0.35  # share of all activations, including fragmentation of CPU memory
_CGROUP = Path("/sys/fs/cgroup")
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class TrainingBatchShape:
    """Shape of a batch in positions, with control tokens and padding. Running text has no source."""

    rows: int
    source: int
    target: int

    def make_batch(self) -> Batch:
        """Return a batch of unknown tokens; memory use does not depend on token values."""
        if not self.source:
            return collate_windows(RaggedArray.from_lists([[UNK] * self.target] * self.rows))
        pair = Example([UNK] * (self.source - 1), [UNK] * (self.target - 1))
        return collate([pair] * self.rows)

    def describe(self) -> LocalizedText:
        if not self.source:
            return LocalizedText("{rows:,} windows of {target:,} tokens", rows=self.rows, target=self.target)
        text = "{rows:,} rows, {source:,} source and {target:,} target positions wide"
        return LocalizedText(text, rows=self.rows, source=self.source, target=self.target)


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimated memory of one update, in bytes."""

    shape: TrainingBatchShape
    weights: int  # with gradients, Adam moments and the moving average
    activations: int  # saved for the backward pass
    peak_gradients: int  # largest gradients of logits and layers at one time

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.peak_gradients


def check_memory(updater: Updater, data: PreparedData, measure: bool = False) -> Finding:
    """Compare the estimate with free memory. With `measure`, run such an update if it fits, and report its memory."""
    shapes = find_widest_shapes(data, updater.config.batch_tokens, updater.config.sort_within)
    most = max((estimate_memory(updater, shape) for shape in shapes), key=lambda each: each.total)
    free = free_memory(updater.device)
    fits = free is None or most.total <= MAX_USED_SHARE * free
    values: dict[str, float] = {"estimate": most.total, **({} if free is None else {"free": free})}
    found = LocalizedText(
        "{total} for a batch of {shape}: {weights} weights, gradients and moments, {activations} activations, "
        "{peak} gradients of logits and layers",
        total=format_bytes(most.total),
        shape=most.shape.describe(),
        weights=format_bytes(most.weights),
        activations=format_bytes(most.activations),
        peak=format_bytes(most.peak_gradients),
    )
    measured = measure_memory(updater, most.shape) if measure and fits else None
    if measured is not None:
        values["measured"] = measured
        share = most.total / measured - 1  # by which the estimate is larger
        text = "; measured {memory}, {share:.0%} below the estimate"
        text = text if share > 0 else "; measured {memory}, {share:.0%} above the estimate"
        found += LocalizedText(text, memory=format_bytes(measured), share=abs(share))
    if free is None:
        found += LocalizedText("; how much is free is not known")
    else:
        found += LocalizedText("; {memory} free", memory=format_bytes(free))
    if fits:
        return Finding("memory", "ok", found, values=values, about="network")
    assert free is not None
    return Finding("memory", "warning", found, _advise(updater, most, free), values=values, about="network")


def find_widest_shapes(
    data: PreparedData, batch_tokens: int, sort_within: int | None = None
) -> list[TrainingBatchShape]:
    """Return the batches with most positions and with the longest sentences, from a sample of the pairs."""
    control = 1 if data.window is None else 0  # control tokens per side
    sampled = read_blocks(data, SAMPLED_PAIRS, _BLOCK_PAIRS)
    parts = [(each.source.lengths + control, each.target.lengths + control) for each in sampled]
    source, target = (np.concatenate(side) for side in zip(*parts, strict=True))
    groups = make_batches(source, target, batch_tokens, sort_within)
    shapes = [TrainingBatchShape(len(rows), int(source[rows].max()), int(target[rows].max())) for rows in groups]
    most = max(shapes, key=lambda shape: shape.rows * (shape.source + shape.target))
    longest = max(shapes, key=lambda shape: max(shape.source, shape.target))
    return list(dict.fromkeys((most, longest)))


def estimate_memory(updater: Updater, shape: TrainingBatchShape) -> MemoryEstimate:
    """Estimate the memory of an update. Activations per row are those of 3 rows minus 2, as 1 row is a special case."""
    config, network = updater.config, updater.network
    rows = -(-shape.rows // updater.world.size)
    weights = sum(weight.nbytes for weight in network.parameters())
    copies = 5 if config.ema else 4  # weights, gradients, two moments, and the moving average
    passes = config.num_passes
    positions = shape.target
    if isinstance(network, ParallelTransformer) and network.upsample:
        positions = network.canvas_size(shape.source)
    logits = passes * rows * positions * network.output.out_features * 4
    two, three = (_measure_saved_tensors(updater, replace(shape, rows=count).make_batch()) for count in (2, 3))
    activations = two + (rows - 2) * (three - two) + _measure_biases(network.config, replace(shape, rows=rows))
    passing = max(_LOGITS_AT_ONCE * logits, round(_LAYERS_AT_ONCE * activations))
    return MemoryEstimate(shape, copies * weights, activations, passing)


def format_bytes(count: float) -> str:
    """Format a number of bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _measure_biases(config: ModelConfig, shape: TrainingBatchShape) -> int:
    """Return the bytes of relative positions joined with masks of padding, which the measured rows do not have.

    Without padding, all rows share one matrix for each head. So do decoders with a causal mask.
    """
    if config.positions != "relative" or not shape.source:
        return 0
    length = shape.source + shape.target if config.decoder_only else shape.source
    layers = config.num_decoder_layers if config.decoder_only else config.num_encoder_layers
    matrices = layers if config.relative_bias == "per_layer" else 1
    return 4 * shape.rows * config.num_heads * length**2 * matrices


def _measure_saved_tensors(updater: Updater, batch: Batch) -> int:
    """Return the bytes that the forward pass saves for the backward pass, each storage once, without weights.

    With activation checkpointing, a block saves its input, and only one block at a time the rest.
    """
    weights = {_storage_id(weight) for weight in updater.network.parameters()}
    saved: dict[int, Tensor] = {}  # references, so that the allocator does not reuse an address
    owners: dict[int, int | None] = {}  # the block that saved a storage
    inputs: dict[int, Tensor] = {}
    current: list[int | None] = [None]

    def save(tensor: Tensor) -> Tensor:
        # Detach: an operation that saves its own output would otherwise form a reference cycle.
        saved[_storage_id(tensor)] = tensor.detach()
        owners.setdefault(_storage_id(tensor), current[0])
        return tensor.detach()

    def enter(number: int, given: tuple[object, ...]) -> None:
        current[0] = number
        inputs.update({_storage_id(each): each.detach() for each in given if isinstance(each, Tensor)})

    updater.network.train()
    with ExitStack() as stack:
        for number, block in enumerate((*updater.network.encoder, *updater.network.decoder)):
            hook = block.register_forward_pre_hook(lambda _, given, number=number: enter(number, given))
            stack.callback(hook.remove)
            stack.callback(block.register_forward_hook(lambda *_: current.__setitem__(0, None)).remove)
        stack.enter_context(keep_activations())
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor))
        _forward(updater, batch.to(updater.device))
    sizes = {name: each.untyped_storage().nbytes() for name, each in saved.items() if name not in weights}
    if not updater.config.activation_checkpointing:
        return sum(sizes.values())
    of_blocks = Counter[int | None]()
    for name, size in sizes.items():
        of_blocks[owners[name]] += 0 if name in inputs else size
    outside = of_blocks.pop(None, 0)
    kept = sum(each.untyped_storage().nbytes() for name, each in inputs.items() if name not in weights)
    return outside + kept + max(of_blocks.values(), default=0)


def _storage_id(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # a fake tensor has no address


def _forward(updater: Updater, batch: Batch) -> Tensor:
    if isinstance(updater.network, ParallelTransformer):
        return updater.compute_loss(batch)
    rows, r_drop = batch.repeat(updater.config.num_passes), updater.config.r_drop
    labels = rows.labels[: len(rows.labels) // 2] if r_drop else rows.labels
    with updater.autocast():
        logits = updater.network(rows.source_ids, rows.target_ids, rows.source_mask)
        return training_loss(logits, labels, updater.config.label_smoothing, r_drop)


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
    return LocalizedText(
        "set train.batch_tokens to {tokens} and train.accumulate to {times}, which learns from as much at a time",
        tokens=tokens,
        times=times,
    )


def free_memory(device: torch.device) -> int | None:
    """Return the free memory for this process in bytes, or None if the system does not report it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    available = read_proc_bytes("/proc/meminfo", "MemAvailable")
    free = [each for each in (available, _read_cgroup_headroom()) if each is not None]
    return min(free) if free else None


def measure_memory(updater: Updater, shape: TrainingBatchShape) -> int | None:
    """Return the peak memory of an update with such a batch in bytes, or None if it cannot be measured."""
    config = updater.config
    start = {} if config.scheduled_sampling == "off" else {"sampling_start": 0.0}  # two passes from the first step on
    probed = config.replace(compile="off", **start)
    if config.objective == "mrt":  # candidates are rows of one pass
        probed, shape = probed.without_treatments(), replace(shape, rows=shape.rows * config.num_passes)
    on_gpu = updater.device.type == "cuda"
    return _measure_on_gpu(updater, probed, shape) if on_gpu else _measure_in_process(updater, probed, shape)


def _measure_on_gpu(updater: Updater, config: TrainConfig, shape: TrainingBatchShape) -> int | None:
    device = updater.device
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    try:
        network = make_network(updater.network.config, torch.Generator().manual_seed(0)).to(device)
        student = Updater(network, config.replace(capture="off"))
        run_updates(student, shape)
        return torch.cuda.max_memory_allocated(device) - before
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()


def run_updates(updater: Updater, shape: TrainingBatchShape) -> None:
    """Run two updates: the first, with one row, allocates the moments, the second has the batch to measure."""
    updater.update([replace(shape, rows=1).make_batch()])
    updater.update([shape.make_batch()])


def _measure_in_process(updater: Updater, config: TrainConfig, shape: TrainingBatchShape) -> int | None:
    """Measure in a new process, because the peak of this process may be higher."""
    request = {
        "model": updater.network.config.model_dump(mode="json", exclude_unset=True),
        "train": config.model_dump(mode="json", exclude_unset=True),
        "shape": asdict(shape),
        "threads": torch.get_num_threads(),
    }
    package = str(Path(attendo.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    try:
        with TemporaryDirectory() as folder:
            subprocess.run(
                [sys.executable, "-P", "-m", "attendo.doctor.memory_probe", f"{folder}/answer"],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=True,
                env={**os.environ, "PYTHONPATH": paths},
            )
            return int(json.loads(Path(folder, "answer").read_text())["bytes"])
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def read_proc_bytes(path: str, name: str) -> int | None:
    """Return a value of a file of Linux such as /proc/meminfo in bytes, or None if the system does not report it."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def _read_cgroup_headroom() -> int | None:
    """Return the unused part of a container's memory limit in bytes."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None
