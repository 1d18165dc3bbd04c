"""What a training loop tells. Each report is one line of metrics.jsonl, where `kind` names its class."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """After one update: the loss of its batches, per target token."""

    step: int
    epoch: int
    loss: float  # label smoothing included; nan where the step was skipped
    lr: float
    norm: float  # of the gradient, before clipping
    tokens: int  # target tokens learned from
    positions: int  # what the batches cost: both sides, padding included
    padding: int  # of these, padding
    seconds: float  # of training since the run began, validation and saving not counted
    waited: float = 0.0  # of this step's own seconds, those in which there was no batch yet
    skipped: bool = False  # the loss or the gradient was no number, and the weights stayed as they were


@dataclass(frozen=True)
class Skipped:
    """A step whose loss or gradient was no number: which pairs it was to learn from."""

    step: int
    pairs: tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """A validation sentence, what the model makes of it, and what it should be."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """How well the model does on the validation pairs."""

    step: int
    loss: float  # per target token, without label smoothing
    scores: dict[str, float] = field(default_factory=dict)  # of the decoded text, by name: bleu, chrf ...
    signatures: dict[str, str] = field(default_factory=dict)  # how each score was computed
    best: bool = False  # better than every validation before it, by `train.best`
    samples: tuple[Sample, ...] = ()
    old: dict[str, float] = field(default_factory=dict)  # fine-tuning: the same on the old model's validation pairs


@dataclass(frozen=True)
class Saved:
    """A checkpoint is whole and on disk."""

    step: int
    folder: str
    bytes: int


@dataclass(frozen=True)
class SaveFailed:
    """A checkpoint could not be written; training goes on, and the next interval tries again."""

    step: int
    reason: str
    failures: int  # in a row


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step."""

    step: int
    reason: str


Report = Step | Skipped | Validation | Saved | SaveFailed | Stopped
