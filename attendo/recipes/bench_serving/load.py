"""How a server is loaded: requests that come whatever becomes of those before them, or clients that wait their turn."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from attendo.errors import UsageError


@dataclass(frozen=True)
class Load:
    """By `rate`, so many requests a second at random moments, or by `clients`, each of which asks once it is answered.

    A rate is an open loop: a slow server is not spared, as it would be by clients that wait for it.
    """

    rate: float | None = None
    clients: int | None = None
    seconds: float = 10.0
    deadline: float = 10.0  # seconds until a client gives up
    leaving: float = 0.0  # share of clients that leave before
    leave_within: float = 0.5  # seconds in which those leave, once they have asked
    seed: int = 1

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.clients is None):
            raise UsageError("rate_clients_conflict")
        for name in ("rate", "clients", "seconds", "deadline", "leave_within"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e6:
                raise UsageError("load_setting_out_of_range", name=name, value=value)
        if not 0 <= self.leaving <= 1:
            raise UsageError("leave_share_out_of_range", share=self.leaving)

    @property
    def name(self) -> str:
        if self.rate is not None:
            return f"{self.rate:g}/s"
        return "1 client" if self.clients == 1 else f"{self.clients} clients"

    def plans(self, texts: int) -> Iterator["Planned"]:
        """Without end for clients; for a rate, until the seconds are over. The same in every call."""
        dice, at = Random(f"{self.seed} {self.name}"), 0.0
        for number in count():
            if self.rate is not None:
                at += dice.expovariate(self.rate)
                if at >= self.seconds:
                    return
            leaves = dice.random() < self.leaving
            patience = dice.uniform(0, self.leave_within) if leaves else None
            yield Planned(number, at, dice.randrange(texts), patience)


@dataclass(frozen=True)
class Planned:
    """One request: when it comes, with which text, and after how long its client leaves, should it do so."""

    number: int
    at: float
    text: int
    leaves_after: float | None = None
