"""Where a run stands, beside its weights: counters, the place in the data, the best score so far."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from attendo.data.stream import Position
from attendo.errors import ModelError

LOWER_IS_BETTER = ("loss", "error_rate", "word_error_rate")


@dataclass(frozen=True)
class Standing:
    """All zero at the start. Only `seconds` differs between two equal runs."""

    position: Position = field(default_factory=Position)  # of the next batch
    tokens: int = 0  # target tokens learned from
    seconds: float = 0.0  # spent on steps
    validated: int = 0  # the last step that was validated
    best: float | None = None
    best_step: int | None = None
    best_by: str | None = None  # the score that decided; another one begins anew
    since_best: int = 0  # validations since then
    skipped: int = 0  # steps without a finite loss and gradient, in all
    skipped_in_a_row: int = 0
    best_loss: float | None = None  # validation loss of the best step; older checkpoints do not have it

    def after_validation(self, step: int, value: float, by: str, loss: float) -> tuple["Standing", bool]:
        """With one more validation, and whether it was the best so far. The lower loss decides between equal scores."""
        if self._is_improved_by(value, by, loss):
            now = replace(self, validated=step, since_best=0)
            return replace(now, best=value, best_step=step, best_by=by, best_loss=loss), True
        return replace(self, validated=step, since_best=self.since_best + 1), False

    def _is_improved_by(self, value: float, by: str, loss: float) -> bool:
        if self.best is None or self.best_by not in (None, by):
            return True
        if value != self.best:
            return value < self.best if by in LOWER_IS_BETTER else value > self.best
        # Where the loss of the best step is not known, the later step is taken: usually it has the lower loss.
        return by != "loss" and (self.best_loss is None or loss < self.best_loss)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Standing":
        try:
            return cls(**{**content, "position": Position(**content["position"])})
        except (KeyError, TypeError) as error:
            raise ModelError("checkpoint_state_invalid", reason=error) from None
