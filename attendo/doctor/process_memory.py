"""Memory of each process of a training with several processes, estimated on fake tensors, which have no content.

The network of a run is built and its forward pass is run on shapes alone, so 3 billion parameters need no memory here.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attendo.data.prepared import PreparedData
from attendo.doctor.finding import Finding
from attendo.doctor.memory import (
    MAX_USED_SHARE,
    TrainingBatchShape,
    estimate_memory,
    find_widest_shapes,
    format_bytes,
    free_memory,
)
from attendo.errors import LocalizedText
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed
from attendo.train.update import Updater

_BLOCKS_AT_ONCE = 2  # whose weights are gathered: the one that runs and the next one


class ProcessMemory:
    """Estimated memory of one process in bytes. `host` is the host's, with train.cpu_offload."""

    def __init__(self, model: ModelConfig, train: TrainConfig, shape: TrainingBatchShape, processes: int) -> None:
        precision = "bf16" if train.precision in ("auto", "fp16") else train.precision  # what a GPU would choose
        alone = train.replace(sharding="none", cpu_offload=False, compile="off", capture="off", precision=precision)
        with FakeTensorMode(allow_non_fake_inputs=True):
            network = make_network(model, torch.Generator().manual_seed(0))
            updater = Updater(network, alone)
            updater.world = Distributed(0, processes)  # without the process group that a new updater would need
            found = estimate_memory(updater, shape)
            weights = {id(each): each.nbytes for each in network.parameters()}
            blocks = [sum(each.nbytes for each in one.parameters()) for one in (*network.encoder, *network.decoder)]
        self.shape, self.parameters = shape, sum(weights.values()) // 4
        self.activations, self.peak_gradients, self.host = found.activations, found.peak_gradients, 0
        # DDP exchanges gradients in buckets, which are a copy of them.
        self.weights = found.weights + (sum(weights.values()) if processes > 1 else 0)
        if train.sharding == "full" and (processes > 1 or train.cpu_offload):
            # Weights outside of the blocks (embeddings, output) stay gathered for the whole step, with their gradients.
            outside = sum(weights.values()) - sum(blocks)
            gathered = 2 * outside + (_BLOCKS_AT_ONCE + 1) * max(blocks)
            shard = -(-found.weights // processes)
            self.weights, self.host = (gathered, shard) if train.cpu_offload else (gathered + shard, 0)

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.peak_gradients


def check_process_memory(
    model: ModelConfig, train: TrainConfig, data: PreparedData, processes: int, device: torch.device
) -> Finding:
    """Compare the estimate for the largest batch with the free memory of a device of this machine."""
    shapes = find_widest_shapes(data, train.batch_tokens, train.sort_within)
    most = max((ProcessMemory(model, train, shape, processes) for shape in shapes), key=lambda each: each.total)
    values: dict[str, float] = {"estimate": most.total, "host": most.host, "parameters": most.parameters}
    found = LocalizedText(
        "{parameters:,} parameters: {total} for each of {processes} processes, of it {weights} weights, gradients and "
        "moments, {activations} activations, {peak} gradients of logits and layers",
        parameters=most.parameters,
        total=format_bytes(most.total),
        processes=processes,
        weights=format_bytes(most.weights),
        activations=format_bytes(most.activations),
        peak=format_bytes(most.peak_gradients),
    )
    if most.host:
        found += LocalizedText("; {memory} of host memory for each", memory=format_bytes(most.host))
    free = free_memory(device)
    if free is None:
        return Finding("memory", "ok", found, values=values, about="network")
    found += LocalizedText("; {memory} free", memory=format_bytes(free))
    values["free"] = free
    if most.total <= MAX_USED_SHARE * free:
        return Finding("memory", "ok", found, values=values, about="network")
    advice = LocalizedText(
        "use more processes with train.sharding full, train.activation_checkpointing, train.cpu_offload, or a smaller "
        "train.batch_tokens"
    )
    return Finding("memory", "warning", found, advice, values=values, about="network")
