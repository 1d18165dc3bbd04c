"""The network and its optimizer: one update at a time, without waiting for the device.

    loss = ∑ over all target tokens of the update / their number, however many batches and ranks they came in

Whether a loss or gradient is a number is decided on the device too: a step that is not leaves every weight alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

from attendo.data.batch import Batch
from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import without_cudnn_attention
from attendo.nn.cuda_graph import CudaGraphRecorder
from attendo.nn.devices import configure_cpu_bf16
from attendo.train.compilation import CompiledBlocks, CudaGraphedPass, compile_dynamic, full_mask
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed, ReplicatedWeights
from attendo.train.loss import training_loss
from attendo.train.optimizer import EMA, freeze, learning_rate, make_optimizer, set_rate

_SINGLE_PROCESS = Distributed()
_INITIAL_SCALE, _GROWTH_INTERVAL = 2.0**16, 2000  # of the fp16 loss scale, and the good steps before it doubles


@dataclass(frozen=True)
class Update:
    """What one update came to; the tensors may still be on their way."""

    lr: float
    tokens: int
    loss: Tensor  # summed over the update's tokens on this rank
    norm: Tensor
    skipped: Tensor  # 1 where the weights were left alone


class Updater:
    """Holds all that learning changes: weights, moments, moving average, loss scale, and the number of updates."""

    def __init__(self, network: Transformer, config: TrainConfig, world: Distributed = _SINGLE_PROCESS) -> None:
        self.network, self.config, self.world = network, config, world
        self.device = next(network.parameters()).device
        self.precision = pick_precision(config.precision, self.device)
        configure_cpu_bf16(self.device, torch.bfloat16 if self.precision == "bf16" else torch.float32)
        self.step = 0
        freeze(network, config.freeze)
        self.placement = place_weights(network, config, world)
        self.optimizer = make_optimizer(self.placement.network, config)
        self.ema = EMA(self.placement.network, config.ema) if config.ema else None
        self.loss_scale = torch.tensor(_INITIAL_SCALE if self.precision == "fp16" else 1.0, device=self.device)
        self.good_steps = torch.zeros((), device=self.device)
        self._loss_weight = torch.ones((), device=self.device)  # what one token's loss weighs, times the loss scale
        self._loss = torch.zeros((), device=self.device)
        self._ddp_network = self.placement.network if self.placement.is_sharded else world.wrap_ddp(network)
        self.compile_mode = "off" if self.placement.is_sharded else pick_compile(config, network)
        self._batch_loss = compile_dynamic(self._eager_loss) if self.compile_mode == "on" else self._eager_loss
        self._blocks = CompiledBlocks(network) if self.compile_mode == "blocks" else None
        self.uses_cuda_graphs = should_capture(config, self.device, world)
        self._run_pass: Callable[[Batch], None] = self._forward_backward
        if self.uses_cuda_graphs:
            self._run_pass = CudaGraphedPass(self._forward_backward, CudaGraphRecorder(self.device))
            for weight in network.parameters():  # recorded passes add to gradients that stay where they are
                weight.grad = torch.zeros_like(weight) if weight.requires_grad else None

    def update(self, batches: Sequence[Batch]) -> Update:
        """Learn from batches as if they were one."""
        self.step += 1
        self._ddp_network.train()
        rate = learning_rate(self.step, self.config, self.network.config.d_model)
        set_rate(self.optimizer, rate)
        tokens = sum(batch.tokens for batch in batches)
        shares = [batch.shard(self.world.rank, self.world.size) for batch in batches]
        # Ranks take the mean of their gradients; the loss is a sum over them.
        self._loss_weight.copy_(self.loss_scale * (self.world.size / tokens))
        self.optimizer.zero_grad(set_to_none=not self.uses_cuda_graphs)
        self._loss.zero_()
        for number, batch in enumerate(shares, start=1):
            with self._gradient_sync(is_last=number == len(shares)):
                self._run_pass(batch)
        norm, skipped = self._optimizer_step()
        return Update(rate, tokens, self._loss.clone(), norm, skipped)

    def try_batch(self, batch: Batch) -> None:
        """One pass forward and backward, whose gradients are for nobody: to see what it takes."""
        self._ddp_network.train()
        self._forward_backward(batch)

    def _forward_backward(self, batch: Batch) -> None:
        """Forward and backward: the gradients of one batch join those of the others."""
        batch = batch.to(self.device)
        with self.autocast(), without_cudnn_attention(), self._blocks.applied() if self._blocks else nullcontext():
            loss = self._batch_loss(batch.source_ids, batch.source_mask, batch.target_ids, batch.labels)
        (loss * self._loss_weight).backward()
        self._loss += loss.detach()

    def _eager_loss(
        self,
        source_ids: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"] | None,
        target_ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
    ) -> Float[Tensor, ""]:
        """Of tensors alone: for a list of pairs, the compiler would begin anew with every length it has."""
        if self._blocks and source_mask is None:
            source_mask = full_mask(source_ids)
        if self.config.r_drop:  # every sentence twice, with other dropout
            source_ids, target_ids = source_ids.repeat(2, 1), target_ids.repeat(2, 1)
            source_mask = None if source_mask is None else source_mask.repeat(2, 1)
        logits = self._ddp_network(source_ids, target_ids, source_mask)
        loss = self._blocks.loss if self._blocks else training_loss
        return loss(logits, labels, self.config.label_smoothing, self.config.r_drop)

    @torch.no_grad()
    def _optimizer_step(self) -> tuple[Tensor, Tensor]:
        """Clip, step where everything is a number, and let the moving average and the loss scale follow."""
        weights = list(self.placement.network.parameters())
        norm = (
            self.placement.global_norm(get_total_norm([each.grad for each in weights if each.grad is not None]))
            / self.loss_scale
        )
        skipped = (~(norm.isfinite() & self._loss.isfinite())).float()
        if self.world.size > 1:
            skipped = (self.world.sum(skipped) > 0).float()
        clip = self.config.clip_norm
        divisor = self.loss_scale * ((norm + 1e-6) / clip).clamp(min=1.0) if clip else self.loss_scale
        # Fused optimizers divide the gradients by the one and do nothing where the other is 1.
        self.optimizer.grad_scale, self.optimizer.found_inf = divisor, skipped  # type: ignore[attr-defined]
        self.optimizer.step()
        # On a CPU the fused step does not count as a change (seen with torch 2.13), and whoever keeps the weights in
        # another layout, as decoding does, would go on with the old ones.
        torch.autograd.graph.increment_version(weights)
        if self.ema is not None:
            self.ema.update(self.step, skipped)
        if self.precision == "fp16":
            self._rescale(skipped)
        return norm, skipped

    def _rescale(self, skipped: Tensor) -> None:
        """Halve the loss scale after an overflow, double it after many steps without one."""
        self.good_steps.copy_(torch.where(skipped > 0, 0.0, self.good_steps + 1))
        grows = self.good_steps >= _GROWTH_INTERVAL
        self.loss_scale.mul_(torch.where(skipped > 0, 0.5, torch.where(grows, 2.0, 1.0)))
        self.good_steps.masked_fill_(grows, 0.0)

    def autocast(self) -> AbstractContextManager[object]:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16 if self.precision == "bf16" else torch.float16)

    def _gradient_sync(self, is_last: bool) -> AbstractContextManager[object]:
        """Ranks exchange gradients once an update, with the last batch. Sharded ones have no room to wait so long."""
        if isinstance(self._ddp_network, DistributedDataParallel) and not is_last:
            return self._ddp_network.no_sync()
        return nullcontext()

    @contextmanager
    def eval_weights(self) -> Iterator[None]:
        """The network as it is validated and saved: with the averaged weights, where there are such.

        All ranks must ask together.
        """
        with ExitStack() as stack:
            if self.ema is not None:
                stack.enter_context(self.ema.applied())
            stack.enter_context(self.placement.full_weights())
            yield

    def finalize(self) -> None:
        """The network keeps what `eval_weights` lends it: nothing more is learned. All ranks must end together."""
        if self.ema is not None:
            self.ema.apply_permanently()
        self.placement.materialise()


def place_weights(network: Transformer, config: TrainConfig, world: Distributed) -> ReplicatedWeights:
    if config.sharding == "none" or world.size == 1:
        return ReplicatedWeights(network)
    from attendo.train.sharding import FSDPWeights  # which torch takes a second to import

    return FSDPWeights(network, world)


def pick_compile(config: TrainConfig, network: Transformer) -> str:
    """What auto means here. Compiling takes minutes; it pays where kernels and not the host are what one waits for."""
    if config.compile != "auto":
        return config.compile
    return "on" if next(network.parameters()).is_cuda and network.config.d_model >= 512 else "off"


def should_capture(config: TrainConfig, device: torch.device, world: Distributed) -> bool:
    if config.capture == "on" and (device.type != "cuda" or world.size > 1):
        raise UsageError("capture_not_supported")
    return config.capture != "off" and device.type == "cuda" and world.size == 1


def pick_precision(requested: str, device: torch.device) -> str:
    """What auto means on this device."""
    if requested != "auto":
        return requested
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
