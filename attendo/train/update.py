"""One optimizer update at a time, without synchronising with the device.

    loss = ∑ over all target tokens of the update / their number, over all batches and ranks

Non-finite losses and gradients are detected on the device. Such a step does not change the weights.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

from attendo.data.batch import Batch
from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.parallel import ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.nn.attention import without_cudnn_attention
from attendo.nn.cuda_graph import CudaGraphRecorder
from attendo.nn.devices import configure_cpu_bf16
from attendo.train.activation_checkpointing import checkpoint_activations
from attendo.train.compilation import CompiledBlocks, CudaGraphedPass, compile_dynamic, full_mask
from attendo.train.config import TrainConfig, supports_guided_alignment
from attendo.train.distributed import Distributed, ReplicatedWeights
from attendo.train.guided_alignment import GuidedAlignment
from attendo.train.loss import training_loss
from attendo.train.minimum_risk import MinimumRisk, RiskFunction
from attendo.train.optimizer import EMA, freeze, learning_rate, make_optimizer, set_rate
from attendo.train.parallel_loss import ParallelLoss, glancing_share
from attendo.train.scheduled_sampling import ScheduledSampling

_SINGLE_PROCESS = Distributed()
_INITIAL_SCALE, _GROWTH_INTERVAL = 2.0**16, 2000  # of the fp16 loss scale; successful steps before it doubles


@dataclass(frozen=True)
class Update:
    """Result of one update. The device may still be computing the tensors."""

    lr: float
    tokens: int
    loss: Tensor  # summed over the update's tokens on this rank
    norm: Tensor
    skipped: Tensor  # 1 if the weights did not change
    sentences: int = 0
    alignment_loss: Tensor | None = None  # of guided alignment, summed like the loss, without its weight
    # Minimum risk training: reward of the samples and entropy of Q, summed over the update's sentences on this rank.
    rewards: tuple[Tensor, ...] = ()

    @property
    def extras(self) -> tuple[Tensor, ...]:
        """Sums that are reported besides the loss: the rewards, or the loss of guided alignment."""
        return self.rewards if self.alignment_loss is None else (self.alignment_loss,)


class Updater:
    """Holds the state that training changes: weights, moments, EMA, loss scale and step number.

    `target_prefix` are tokens at the start of every target. Generation gives them, so treatments of exposure bias do
    not change them. `risk` is the risk of candidates for objective mrt.
    """

    def __init__(
        self,
        network: Transformer,
        config: TrainConfig,
        world: Distributed = _SINGLE_PROCESS,
        target_prefix: Sequence[int] = (),
        risk: RiskFunction | None = None,
    ) -> None:
        self.network, self.config, self.world = network, config, world
        self.device = next(network.parameters()).device
        self.precision = pick_precision(config.precision, self.device, network.config)
        configure_cpu_bf16(self.device, torch.bfloat16 if self.precision == "bf16" else torch.float32)
        self.step = 0
        freeze(network, config.freeze)
        if config.activation_checkpointing:
            checkpoint_activations(network)
        self.placement = place_weights(network, config, world)
        self.optimizer = make_optimizer(self.placement.network, config)
        self.ema = EMA(self.placement.network, config.ema) if config.ema else None
        self.loss_scale = torch.tensor(_INITIAL_SCALE if self.precision == "fp16" else 1.0, device=self.device)
        self.good_steps = torch.zeros((), device=self.device)
        self._loss_weight = torch.ones((), device=self.device)  # weight of one token's loss, times the loss scale
        self._loss = torch.zeros((), device=self.device)
        self._ddp_network = self.placement.network if self.placement.is_sharded else world.wrap_ddp(network)
        self._parallel_loss = (
            ParallelLoss(network, self._ddp_network, config.label_smoothing, config.r_drop, config.objective)
            if isinstance(network, ParallelTransformer)
            else None
        )
        samples = config.scheduled_sampling != "off"
        self._sampling = ScheduledSampling(config, self.device, len(target_prefix)) if samples else None
        self.guided = GuidedAlignment(network, config) if supports_guided_alignment(network.config, config) else None
        self._minimum_risk = None
        if config.objective == "mrt":
            assert risk is not None, "objective mrt needs a risk function"
            self._minimum_risk = MinimumRisk(network, self._ddp_network, config, risk, target_prefix)
        self._sentence_weight = 1.0
        self.compile_mode = "off" if self.placement.is_sharded else pick_compile(config, network)
        self._batch_loss = compile_dynamic(self._eager_loss) if self.compile_mode == "on" else self._eager_loss
        self._blocks = CompiledBlocks(network) if self.compile_mode == "blocks" else None
        self.uses_cuda_graphs = should_capture(config, self.device, world)
        # One recorder for all passes: autograd accumulates on the stream that first used a weight.
        self._recorder = CudaGraphRecorder(self.device) if self.uses_cuda_graphs else None
        self._run_pass = self._make_pass()
        if self.uses_cuda_graphs:
            for weight in network.parameters():  # captured passes add to gradients at fixed addresses
                weight.grad = torch.zeros_like(weight) if weight.requires_grad else None

    def _make_pass(self) -> Callable[[Batch], None]:
        if self._minimum_risk is not None:
            return partial(self._run_minimum_risk, self._minimum_risk)
        if self._recorder is None:
            return self._forward_backward
        return CudaGraphedPass(self._forward_backward, self._recorder)

    def update(self, batches: Sequence[Batch]) -> Update:
        """Do one update on batches, accumulated as if they were one."""
        self.step += 1
        self._ddp_network.train()
        rate = learning_rate(self.step, self.config, self.network.config.d_model)
        set_rate(self.optimizer, rate)
        if self._parallel_loss is not None:
            now = (self.step, self.config.steps, self.config.glancing, self.config.glancing_end)
            self._parallel_loss.glancing.fill_(glancing_share(*now, self.config.glancing_until))
        if self._sampling is not None and self._sampling.set_step(self.step):
            self._run_pass = self._make_pass()  # captured passes have another form
        tokens = sum(batch.tokens for batch in batches)
        sentences = sum(len(batch.labels) for batch in batches)
        if self._minimum_risk is not None:
            self._minimum_risk.start_update()
            self._sentence_weight = tokens / sentences
        shares = [batch.shard(self.world.rank, self.world.size) for batch in batches]
        # DDP averages gradients over the ranks, but the loss is a sum over them.
        self._loss_weight.copy_(self.loss_scale * (self.world.size / tokens))
        self.optimizer.zero_grad(set_to_none=not self.uses_cuda_graphs)
        self._loss.zero_()
        is_guided = self.guided is not None and batches[0].links is not None
        if self.guided is not None:
            self.guided.total.zero_()
        for number, batch in enumerate(shares, start=1):
            with self._gradient_sync(is_last=number == len(shares)):
                self._run_pass(batch)
        norm, skipped = self._optimizer_step()
        risk = self._minimum_risk
        rewards = () if risk is None else (risk.reward.clone(), risk.entropy.clone())
        alignment = self.guided.total.clone() if self.guided is not None and is_guided else None
        return Update(rate, tokens, self._loss.clone(), norm, skipped, sentences, alignment, rewards)

    def try_batch(self, batch: Batch) -> None:
        """Run one forward and backward pass to measure time or memory. The gradients are not used."""
        self._ddp_network.train()
        self._forward_backward(batch)

    def compute_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Return the loss of a batch on the device, in the run's precision."""
        with self.autocast():
            return self._eager_loss(batch.source_ids, batch.source_mask, batch.target_ids, batch.labels, batch.links)

    def _forward_backward(self, batch: Batch) -> None:
        """Run forward and backward, and add the gradients to the accumulated ones."""
        batch = batch.to(self.device)
        with self._allow_tf32():
            with (
                self.autocast(),
                without_cudnn_attention(),
                self._blocks.apply_temporarily() if self._blocks else nullcontext(),
            ):
                loss = self._batch_loss(
                    batch.source_ids, batch.source_mask, batch.target_ids, batch.labels, batch.links
                )
            (loss * self._loss_weight).backward()
        self._loss += loss.detach()

    def _run_minimum_risk(self, minimum_risk: MinimumRisk, batch: Batch) -> None:
        """Sample candidates, run forward and backward on them, and add the gradients to the accumulated ones."""
        with self.autocast():
            candidates = minimum_risk.draw_candidates(batch).to(self.device)
        # A new context: autocast must not keep weights that the samples have converted without a gradient.
        with self.autocast(), without_cudnn_attention():
            loss = minimum_risk.compute_loss(batch.to(self.device), candidates, self._sentence_weight)
        (loss * self._loss_weight).backward()
        self._loss += loss.detach()

    def _eager_loss(
        self,
        source_ids: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"] | None,
        target_ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        links: Bool[Tensor, "B T S"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss. It takes only tensors: a list of pairs would recompile for every length."""
        if self._blocks and source_mask is None:
            source_mask = full_mask(source_ids)
        if self._parallel_loss is not None:
            return self._parallel_loss(source_ids, source_mask, labels)
        if self._sampling is None or not self._sampling.is_active:
            return self._forced_loss(source_ids, source_mask, target_ids, labels, links)[0]
        if self.config.scheduled_sampling == "schedule":
            with torch.no_grad():
                logits = self._ddp_network(source_ids, target_ids, source_mask)
            # Autocast caches the weights that this pass has converted without a gradient. The next pass needs others.
            torch.clear_autocast_cache()
            mixed = self._sampling.mix(logits, target_ids, labels)
            return self._forced_loss(source_ids, source_mask, mixed, labels, links)[0]
        first, logits = self._forced_loss(source_ids, source_mask, target_ids, labels, links)
        mixed = self._sampling.mix(logits[: len(labels)].detach(), target_ids, labels)
        return (first + self._forced_loss(source_ids, source_mask, mixed, labels, links)[0]) / 2

    def _forced_loss(
        self,
        source_ids: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"] | None,
        target_ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        links: Bool[Tensor, "B T S"] | None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "R T V"]]:
        """Return the loss of a decoder that reads `target_ids`, and the logits: with R-Drop of two passes."""
        if self.config.r_drop:  # every sentence twice, with different dropout
            source_ids, target_ids = source_ids.repeat(2, 1), target_ids.repeat(2, 1)
            source_mask = None if source_mask is None else source_mask.repeat(2, 1)
        guided, seen = self.guided if links is not None else None, list[Tensor]()
        taps = {} if guided is None else {"tap": guided.tap(seen)}
        logits = self._ddp_network(source_ids, target_ids, source_mask, **taps)
        compute = self._blocks.loss if self._blocks else training_loss
        loss = compute(logits, labels, self.config.label_smoothing, self.config.r_drop)
        return loss if guided is None or links is None else loss + guided.loss(seen[0], links), logits

    @torch.no_grad()
    def _optimizer_step(self) -> tuple[Tensor, Tensor]:
        """Clip and step if all values are finite. Update the EMA and the loss scale. Return norm and `skipped`."""
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
        # Fused optimizers divide the gradients by `grad_scale` and do nothing if `found_inf` is 1.
        self.optimizer.grad_scale, self.optimizer.found_inf = divisor, skipped  # type: ignore[attr-defined]
        self.optimizer.step()
        # On a CPU the fused step does not increment the version (seen with torch 2.13). Code that caches the weights in
        # another layout, as decoding does, would keep using the old ones.
        torch.autograd.graph.increment_version(weights)
        if self.ema is not None:
            self.ema.update(self.step, skipped)
        if self.precision == "fp16":
            self._rescale(skipped)
        return norm, skipped

    def _rescale(self, skipped: Tensor) -> None:
        """Halve the loss scale after an overflow. Double it after 2000 steps without one."""
        self.good_steps.copy_(torch.where(skipped > 0, 0.0, self.good_steps + 1))
        grows = self.good_steps >= _GROWTH_INTERVAL
        self.loss_scale.mul_(torch.where(skipped > 0, 0.5, torch.where(grows, 2.0, 1.0)))
        self.good_steps.masked_fill_(grows, 0.0)

    def autocast(self) -> AbstractContextManager[object]:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16 if self.precision == "bf16" else torch.float16)

    @contextmanager
    def _allow_tf32(self) -> Iterator[None]:
        """Compute products of float32 in TF32, if the run has half precision anyway: those of a graph's links.

        TF32 has 3 bits more than bf16. Float32 without it does not use the tensor cores of a GPU.
        """
        if self.device.type != "cuda" or self.precision == "fp32":
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _gradient_sync(self, is_last: bool) -> AbstractContextManager[object]:
        """Skip the gradient exchange until the last batch of an update. Sharded weights cannot defer it (memory)."""
        if isinstance(self._ddp_network, DistributedDataParallel) and not is_last:
            return self._ddp_network.no_sync()
        return nullcontext()

    @contextmanager
    def eval_weights(self) -> Iterator[None]:
        """Use the weights that are validated and saved: the EMA, if there is one. Collective: call it on all ranks."""
        with ExitStack() as stack:
            if self.ema is not None:
                stack.enter_context(self.ema.apply_temporarily())
            stack.enter_context(self.placement.full_weights())
            yield

    def finalize(self) -> None:
        """Keep the weights of `eval_weights` permanently; training ends. Collective: call it on all ranks."""
        if self.ema is not None:
            self.ema.apply_permanently()
        self.placement.materialise()


def place_weights(network: Transformer, config: TrainConfig, world: Distributed) -> ReplicatedWeights:
    if config.sharding == "none" or (world.size == 1 and not config.cpu_offload):
        return ReplicatedWeights(network)
    from attendo.train.sharding import FSDPWeights  # torch takes a second to import it

    return FSDPWeights(network, world, config.cpu_offload)


def pick_compile(config: TrainConfig, network: Transformer) -> str:
    """Resolve auto. Compiling takes minutes. It pays off if the kernels, not the host, are the bottleneck."""
    if config.compile != "auto":
        return config.compile
    if config.activation_checkpointing or config.objective == "mrt":  # mrt: every batch has another shape
        return "off"
    if network.config.kind != "autoregressive":  # the loss has a loop over the target, which takes long to compile
        return "off"
    return "on" if next(network.parameters()).is_cuda and network.config.d_model >= 512 else "off"


def should_capture(config: TrainConfig, device: torch.device, world: Distributed) -> bool:
    # A captured pass has fixed addresses, and random states that cannot be restored within it.
    is_unsupported = world.size > 1 or config.cpu_offload or config.activation_checkpointing
    if config.capture == "on" and (device.type != "cuda" or is_unsupported):
        raise UsageError("capture_not_supported")
    if config.objective == "mrt":  # the host decodes samples within an update
        return False
    return config.capture != "off" and device.type == "cuda" and not is_unsupported


def pick_precision(requested: str, device: torch.device, network: ModelConfig) -> str:
    """Resolve auto for this device and network."""
    if requested == "fp16":
        network.check_fp16()
    if requested != "auto":
        return requested
    if device.type != "cuda":
        return "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if network.suits_fp16 else "fp32"
