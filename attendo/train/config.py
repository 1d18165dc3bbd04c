"""How a network learns. Apart from the loop, so that a run file can be checked without torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attendo.errors import UsageError
from attendo.settings import Settings

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
DEFAULT_PEAK_LR = 1e-3
MetricName = Literal["bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match", "error_rate", "word_error_rate"]
NetworkPart = Literal["embeddings", "encoder", "decoder", "output"]
BestMetric = Literal[
    "loss", "bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match", "error_rate", "word_error_rate"
]


class TrainConfig(Settings):
    """How a network learns."""

    steps: Count = Field(6000, description="updates in all")
    epochs: Positive | None = Field(
        None, description="instead of steps: how often to go through the data; prepared data decides how many steps"
    )
    batch_tokens: Count = Field(8192, description="positions of the longer side in a batch, padding included")
    sort_within: Annotated[int, Field(ge=2, le=65_536)] = Field(
        65_536,
        description="batches are made of so many pairs at a time, drawn by chance and sorted by length; fewer mix them "
        "more, where length tells what kind a pair is, and pad more",
    )
    accumulate: Count = Field(1, description="batches whose gradients add up to one update")

    optimizer: Literal["adamw", "adam"] = Field("adamw", description="adam adds weight decay to the gradients")
    schedule: Literal["inverse_square_root", "noam", "cosine", "linear", "constant"] = Field(
        "inverse_square_root", description="the learning rate after the warm-up"
    )
    peak_lr: Positive | None = Field(
        None, description="highest learning rate, at the end of the warm-up; 1e-3 unless set, noam computes its own"
    )
    warmup: Natural = Field(1000, description="steps of the straight way up to peak_lr")
    final_lr: Fraction = Field(0.0, description="where cosine and linear end, as a share of peak_lr")
    beta1: Fraction = Field(0.9, description="decay of the optimizer's mean of gradients")
    beta2: Fraction = Field(0.98, description="decay of its mean of squared gradients")
    epsilon: Positive = Field(1e-9, description="added to the root of that mean before dividing by it")
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="of matrices; norms and biases are left alone")
    clip_norm: Annotated[float, Field(ge=0)] = Field(1.0, description="largest gradient norm; 0 does not clip")

    label_smoothing: Fraction = Field(0.1, description="share of the probability that is spread over all tokens alike")
    r_drop: Annotated[float, Field(ge=0)] = Field(
        0.0, description="weight of the divergence between two passes with different dropout (R-Drop); 0 is one pass"
    )
    freeze: tuple[NetworkPart, ...] = Field(
        (), description="parts whose weights do not change; a weight that two parts share counts for both"
    )
    ema: Fraction = Field(
        0.0, description="decay of the moving average of weights that is validated and saved; 0 is none"
    )

    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="of the passes; weights stay fp32. auto: bf16 or else fp16 on a GPU, fp32 on a CPU"
    )
    compile: Literal["auto", "on", "blocks", "off"] = Field(
        "auto",
        description="torch.compile: on takes the whole pass, which takes minutes, blocks each kind of block by itself, "
        "which takes less; auto: on, on a GPU where d_model is 512 or more",
    )
    capture: Literal["auto", "on", "off"] = Field(
        "auto", description="record the passes of each shape of batch and replay them; auto: on one GPU"
    )
    sharding: Literal["none", "full"] = Field(
        "none",
        description="none: each of several processes holds all weights, gradients and moments; full: they divide them "
        "among them, and compile nothing; one process alone holds all",
    )
    deterministic: bool = Field(False, description="only kernels that give the same bits each time (on a GPU, slower)")
    workers: Natural = Field(2, description="threads that prepare batches in the background; 0 prepares in the loop")

    validate_every: Count = Field(500, description="steps between looks at the validation data")
    metrics: tuple[MetricName, ...] = Field((), description="scores of decoded validation text")
    metric_pairs: Count = Field(1000, description="validation pairs decoded, at most")
    samples: Natural = Field(5, description="decoded sentences written down at every validation")
    best: BestMetric = Field(
        "loss", description="what makes a model the best one so far; the lower loss decides between equal scores"
    )
    patience: Natural = Field(0, description="validations without a better one before training stops; 0 never stops")

    save_every: Count = Field(500, description="steps between checkpoints")
    keep_last: Count = Field(3, description="checkpoints kept, beside the best one")
    final: Literal["best", "last", "average"] = Field("best", description="whose weights the model folder gets")
    average: Count = Field(5, description="last checkpoints that final = average takes the mean of")
    max_skipped: Count = Field(5, description="steps in a row without a finite loss and gradient before training stops")
    max_save_failures: Count = Field(5, description="checkpoints in a row that cannot be written before training stops")

    @property
    def decoded_metrics(self) -> tuple[str, ...]:
        """The scores to compute, the one that decides included."""
        return tuple(dict.fromkeys((*self.metrics, *((self.best,) if self.best != "loss" else ()))))

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
        return self
