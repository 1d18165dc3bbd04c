"""Training settings. This module does not import torch, so that a run file can be checked without it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.settings import Settings

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
DEFAULT_PEAK_LR, MRT_PEAK_LR = 1e-3, 1e-5
DEFAULT_GUIDED_WEIGHT = 0.1  # of guided alignment, as in Marian
MetricName = Literal["bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match", "error_rate", "word_error_rate"]
NetworkPart = Literal["embeddings", "encoder", "decoder", "output"]
BestMetric = Literal["loss", MetricName]
# Settings that have an effect with each kind of scheduled sampling.
_SAMPLING_SETTINGS: dict[str, tuple[str, ...]] = {
    "off": (),
    "schedule": ("sampling_start", "sampling_decay", "sampling_position_decay"),
    "confidence": ("sampling_start", "sampling_thresholds"),
}


_MRT_SETTINGS = ("mrt_candidates", "mrt_alpha", "mrt_reference", "mrt_cross_entropy", "mrt_utility")
# Settings that an objective does not use, with the values that it accepts: the default and "off".
_UNUSED_BY_OBJECTIVE: dict[str, dict[str, tuple[object, ...]]] = {
    "likelihood": {},
    "mrt": {
        "label_smoothing": (0.0, 0.1),
        "r_drop": (0.0,),
        "input_noise": (0.0,),
        "scheduled_sampling": ("off",),
        "compile": ("auto", "off"),
        "capture": ("auto", "off"),
        "sharding": ("none",),
    },
    "ngrams": {
        "r_drop": (0.0,),
        "glancing": (0.0, 0.5),
        "glancing_end": (0.0, 0.1),
        "glancing_until": (2 / 3,),
    },
}


# Settings that change where tensors are kept, and no result.
PLACEMENT_SETTINGS = ("sharding", "cpu_offload", "activation_checkpointing", "async_checkpoints")


class TrainConfig(Settings):
    """Training settings."""

    steps: Count = Field(6000, description="total number of updates")
    epochs: Positive | None = Field(
        None, description="instead of steps: passes over the data; prepared data determines the number of steps"
    )
    batch_tokens: Count = Field(8192, description="positions of the longer side in a batch, padding included")
    sort_within: Annotated[int, Field(ge=2, le=65_536)] = Field(
        65_536,
        description="pairs that are shuffled, sorted by length and batched together; fewer mix better if length "
        "depends on the type of pair, but pad more",
    )
    accumulate: Count = Field(1, description="batches whose gradients are accumulated for one update")

    optimizer: Literal["adamw", "adam"] = Field("adamw", description="adam adds weight decay to the gradients")
    schedule: Literal["inverse_square_root", "noam", "cosine", "linear", "constant"] = Field(
        "inverse_square_root", description="learning rate after the warm-up"
    )
    peak_lr: Positive | None = Field(
        None,
        description="highest learning rate, at the end of the warm-up; default 1e-3, with objective mrt 1e-5; noam "
        "computes its own",
    )
    warmup: Natural = Field(1000, description="steps of linear warm-up to peak_lr")
    final_lr: Fraction = Field(0.0, description="final learning rate of cosine and linear, as a fraction of peak_lr")
    beta1: Fraction = Field(0.9, description="decay of the running mean of gradients")
    beta2: Fraction = Field(0.98, description="decay of the running mean of squared gradients")
    epsilon: Positive = Field(1e-9, description="added to the denominator for numerical stability")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0, description="for matrices only; norms and biases are not decayed"
    )
    clip_norm: Annotated[float, Field(ge=0)] = Field(1.0, description="maximum gradient norm; 0 disables clipping")

    objective: Literal["likelihood", "mrt", "ngrams"] = Field(
        "likelihood",
        description="what training lowers: the cross-entropy of the references, the expected risk of the model's own "
        "samples (mrt: minimum risk training, Shen et al. 2016), or minus the expected bigram precision of kind graph "
        "(ngrams: FA-DAT, Ma et al. 2023); the last two need a trained model (start_from)",
    )
    mrt_candidates: Annotated[int, Field(ge=2)] = Field(8, description="mrt: samples per source; equal ones count once")
    mrt_alpha: Positive = Field(
        0.005, description="mrt: factor of the log-probabilities in the softmax over the candidates; low is flat"
    )
    mrt_reference: bool = Field(True, description="mrt: the reference is a candidate too")
    mrt_cross_entropy: Annotated[float, Field(ge=0)] = Field(
        0.2, description="mrt: weight of the cross-entropy per token, which is added to the mean risk per sentence"
    )
    mrt_utility: Literal["chrf", "bleu"] = Field(
        "chrf", description="mrt: sentence metric of a candidate; its risk is 1 - metric / 100"
    )
    label_smoothing: Fraction = Field(
        0.1, description="share of the probability spread uniformly over all tokens; not for kind ctc and graph"
    )
    r_drop: Annotated[float, Field(ge=0)] = Field(
        0.0, description="weight of the KL divergence between two passes with different dropout (R-Drop); 0 disables it"
    )
    input_noise: Fraction = Field(
        0.0,
        description="probability that a token of the decoder's input is replaced: half of them by a random target "
        "token, half by a copy of a neighbour; the labels stay; 0 disables it",
    )
    scheduled_sampling: Literal["off", "schedule", "confidence"] = Field(
        "off",
        description="the decoder reads some predictions of a first pass instead of the reference: by a schedule, or "
        "where the first pass is confident (Liu et al. 2021)",
    )
    sampling_start: Fraction = Field(2 / 3, description="scheduled sampling: share of the steps after which it begins")
    sampling_decay: Annotated[float, Field(ge=1)] = Field(
        300.0,
        description="schedule: k of k / (k + exp(s / k)), the probability of a reference token s steps after the "
        "beginning",
    )
    sampling_position_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        0.99, description="schedule: factor of this probability for each position of the target"
    )
    sampling_thresholds: tuple[Probability, Probability] = Field(
        (0.8, 0.9),
        description="confidence: a token with a probability from the first to the second is replaced by a sample of "
        "the first pass, a more probable one by a random target token",
    )
    glancing: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="ctc, graph: share of the wrong tokens that are given at the first step (Qian et al. 2021)"
    )
    glancing_end: Annotated[float, Field(ge=0, le=1)] = Field(0.1, description="ctc, graph: the share at the end")
    glancing_until: Annotated[float, Field(gt=0, le=1)] = Field(
        2 / 3, description="ctc, graph: share of the steps after which glancing_end is reached"
    )
    guided_alignment: Annotated[float, Field(ge=0)] | None = Field(
        None,
        description="weight of the loss of an attention head against data.alignments (guided alignment, Chen et al. "
        "2016; Garg et al. 2019); default: 0.1 if the data have alignments; 0 disables it",
    )
    guided_alignment_layer: Natural | None = Field(
        None, description="decoder layer of this head, counted from 0; default: the last but one, or the second of two"
    )
    freeze: tuple[NetworkPart, ...] = Field(
        (), description="parts whose weights do not change; a weight shared by two parts belongs to both"
    )
    ema: Fraction = Field(
        0.0, description="decay of the moving average of the weights, which is validated and saved; 0 disables it"
    )

    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="precision of the passes; weights stay fp32. auto: bf16 or else fp16 on a GPU, fp32 on a CPU. With "
        "bf16 and fp16, a graph's links are products in TF32 on a GPU",
    )
    compile: Literal["auto", "on", "blocks", "off"] = Field(
        "auto",
        description="torch.compile: on compiles the whole pass (takes minutes), blocks compiles each class of block "
        "(faster); auto: on, on a GPU with d_model of 512 or more",
    )
    capture: Literal["auto", "on", "off"] = Field(
        "auto", description="capture one CUDA graph per batch shape and replay it; auto: on with one GPU"
    )
    sharding: Literal["none", "full"] = Field(
        "none",
        description="none: every process holds all weights, gradients and moments; full: they are sharded over the "
        "processes, without torch.compile; no effect with one process, unless cpu_offload",
    )
    cpu_offload: bool = Field(
        False,
        description="with sharding full: weights, gradients and moments are in host memory, and the optimizer runs "
        "there; a block's weights are on the GPU while it runs",
    )
    activation_checkpointing: bool = Field(
        False,
        description="keep only the input of each block for the backward pass, which computes the block again; less "
        "memory, about a third more time, without torch.compile",
    )
    deterministic: bool = Field(False, description="use only bitwise reproducible kernels (slower on a GPU)")
    workers: Natural = Field(
        2, description="threads that prepare batches in the background; 0 prepares them in the loop"
    )

    validate_every: Count = Field(500, description="steps between validations")
    metrics: tuple[MetricName, ...] = Field((), description="metrics of the decoded validation text")
    metric_pairs: Count = Field(1000, description="maximum number of validation pairs to decode")
    samples: Natural = Field(5, description="decoded sentences logged at every validation")
    best: BestMetric = Field(
        "loss", description="metric that selects the best model; equal scores are ranked by lower loss"
    )
    patience: Natural = Field(0, description="validations without improvement before training stops; 0 never stops")

    save_every: Count = Field(500, description="steps between checkpoints")
    async_checkpoints: bool = Field(
        False,
        description="copy the state of a checkpoint to host memory and write it in a thread, while training goes on; "
        "needs memory for the copy",
    )
    keep_last: Count = Field(3, description="checkpoints to keep, in addition to the best one")
    weight_checkpoints: Natural = Field(
        0,
        description="weights-only checkpoints, log-spaced from step 0 to the end and never removed: each is a model "
        "folder in float16, weights/step-NNNNNNNN; 0 writes none",
    )
    final: Literal["best", "last", "average"] = Field("best", description="weights written to the model folder")
    average: Count = Field(5, description="number of last checkpoints averaged if final = average")
    max_skipped: Count = Field(
        5, description="consecutive steps with a non-finite loss or gradient before training stops"
    )
    max_save_failures: Count = Field(5, description="consecutive failed checkpoint writes before training stops")

    @property
    def weight_checkpoint_steps(self) -> tuple[int, ...]:
        """Steps of the weights-only checkpoints, ascending: 0, then a geometric sequence from steps / 256 to steps.

        Its end is left out, because the run saves the last step anyway. Steps are rounded to two digits.
        """
        span, pieces = min(256, self.steps), self.weight_checkpoints - 1
        exact = (self.steps * span ** (index / pieces - 1) for index in range(pieces))
        rounded = {0, *(int(float(f"{step:.1e}")) for step in exact)}
        return tuple(sorted(rounded - {self.steps})) if self.weight_checkpoints else ()

    @property
    def metrics_to_decode(self) -> tuple[str, ...]:
        """The metrics to compute, including the one that selects the best model."""
        return tuple(dict.fromkeys((*self.metrics, *((self.best,) if self.best != "loss" else ()))))

    def without_treatments(self) -> Self:
        """Return the settings without treatments of exposure bias."""
        sampling = (name for names in _SAMPLING_SETTINGS.values() for name in names)
        names = ("objective", *_MRT_SETTINGS, "input_noise", "scheduled_sampling", *sampling)
        return self.replace(**{name: type(self).model_fields[name].default for name in names})

    @property
    def num_passes(self) -> int:
        """Passes over a batch whose activations an update stores."""
        if self.objective == "mrt":
            return 1 + self.mrt_candidates
        return (2 if self.r_drop else 1) * (2 if self.scheduled_sampling == "confidence" else 1)

    @property
    def guided_alignment_weight(self) -> float:
        return DEFAULT_GUIDED_WEIGHT if self.guided_alignment is None else self.guided_alignment

    @property
    def default_peak_lr(self) -> float:
        return MRT_PEAK_LR if self.objective == "mrt" else DEFAULT_PEAK_LR

    @property
    def num_checkpoints_to_keep(self) -> int:
        return max(self.keep_last, self.average) if self.final == "average" else self.keep_last

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.epochs is not None and "steps" in self.model_fields_set:
            raise UsageError("steps_and_epochs_conflict")
        if self.schedule == "noam" and self.peak_lr is not None:
            raise UsageError("noam_with_peak_lr")
        if self.schedule == "noam" and self.warmup == 0:
            raise UsageError("noam_without_warmup")
        if self.final_lr and self.schedule not in ("cosine", "linear"):
            raise UsageError("final_lr_unused", schedule=self.schedule)
        if self.sharding == "full" and self.compile in ("on", "blocks"):
            raise UsageError("sharding_with_compile")
        if self.cpu_offload and self.sharding != "full":
            raise UsageError("cpu_offload_without_sharding")
        if self.activation_checkpointing and self.compile in ("on", "blocks"):
            raise UsageError("activation_checkpointing_with_compile")
        self._check_sampling()
        self._check_objective()
        return self

    def _check_sampling(self) -> None:
        kind = self.scheduled_sampling
        for option in dict.fromkeys(name for names in _SAMPLING_SETTINGS.values() for name in names):
            if option not in _SAMPLING_SETTINGS[kind] and not self._is_default(option):
                raise UsageError("sampling_setting_unused", option=option, kind=kind)
        low, high = self.sampling_thresholds
        if low > high:
            raise UsageError("sampling_thresholds_not_sorted", low=low, high=high)

    def _check_objective(self) -> None:
        for option, accepted in _UNUSED_BY_OBJECTIVE[self.objective].items():
            if (value := getattr(self, option)) not in accepted:
                raise UsageError("objective_setting_conflict", option=option, value=value, objective=self.objective)
        for option in _MRT_SETTINGS if self.objective != "mrt" else ():
            if not self._is_default(option):
                raise UsageError("mrt_setting_unused", option=option, objective=self.objective)

    def _is_default(self, option: str) -> bool:
        return bool(getattr(self, option) == type(self).model_fields[option].default)


def supports_guided_alignment(network: ModelConfig, config: TrainConfig) -> bool:
    """Whether alignments of the data guide this network."""
    try:
        check_guided_alignment(network, config)
    except UsageError:
        return False
    return config.guided_alignment_weight > 0


def check_guided_alignment(network: ModelConfig, config: TrainConfig) -> None:
    """Raise a `UsageError` if alignments of the data cannot guide this network."""
    if not config.guided_alignment_weight:
        return
    if network.kind != "autoregressive" or network.decoder_only or network.merged_attention:
        what = network.kind if network.kind != "autoregressive" else "decoder-only"
        raise UsageError("guided_alignment_needs_cross_attention", kind="merged" if network.merged_attention else what)
    if config.objective != "likelihood":
        raise UsageError("guided_alignment_needs_likelihood", objective=config.objective)
    if config.compile == "blocks":
        raise UsageError("guided_alignment_with_compiled_blocks")
    layer, layers = config.guided_alignment_layer, network.num_decoder_layers
    if layer is not None and layer >= layers:
        raise UsageError("guided_alignment_layer_not_found", layer=layer, layers=layers, last=layers - 1)
