"""A server in a process of its own, loaded by our own client, and what it says of itself."""

import asyncio
import random
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from children import Children, Job
from prometheus_client.parser import text_string_to_metric_families
from small_service import PATIENCE, Service
from tiny import SOURCES, tiny_model

from attendo.bench.load_test import (
    Address,
    Api,
    HttpClient,
    HttpRequest,
    Load,
    RequestOutcome,
    RunningServer,
    make_adapter,
    request_all,
    run_load,
    start_server,
    wait_until_ready,
)
from attendo.text import EOS

T = TypeVar("T")
WORDS = sorted({word for text in SOURCES for word in text.split()})
Counts = Mapping[tuple[str, ...], float]  # name of a counter and values of its labels


def sentences(count: int, longest: int = 9, seed: int = 1) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, k=dice.randint(1, longest))) for _ in range(count)]


def save_model(folder: Path) -> Path:
    """A small random model whose answers differ in length and words."""
    model = tiny_model(tie="none")
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    about = {"task": "translation", "source_language": "en", "target_language": "zh"}
    replaced = replace(model.stored_model, about=about)
    type(model)(replaced).save(folder)
    return folder


@dataclass(frozen=True)
class Loaded:
    """A server that can be loaded and looked at."""

    started: RunningServer

    def put(self, load: Load, api: Api = "own", texts: Sequence[str] = (), **fields: Any) -> list[RequestOutcome]:
        return self._with(lambda wire: self._put(wire, load, api, texts or sentences(50), fields))

    def capacity(self, texts: Sequence[str], **fields: Any) -> float:
        """Answers a second to requests that come at random moments, as many as 48 clients had answered: those sit down
        and get up all at once, where answers are of one length, which is less work."""
        all_at_once = self._steadily(Load(clients=48, seconds=12), texts, **fields)
        return self._steadily(Load(rate=all_at_once, seconds=18), texts, **fields)

    def _steadily(self, load: Load, texts: Sequence[str], **fields: Any) -> float:
        """Answers a second without those of the first third, in which seats fill."""
        told = self.put(load, texts=texts, **fields)
        steady = [each for each in told if each.end == "answered" and load.seconds / 3 < each.ended_at <= load.seconds]
        return len(steady) / (load.seconds * 2 / 3)

    def answers(self, texts: Sequence[str], clients: int, api: Api = "own", **fields: Any) -> list[RequestOutcome]:
        """Every text once."""

        async def work(wire: HttpClient) -> list[RequestOutcome]:
            return await request_all(wire, await make_adapter(api, wire, fields), texts, clients, deadline=600)

        return self._with(work)

    def get(self, path: str) -> str:
        async def work(wire: HttpClient) -> str:
            return (await wire.send(HttpRequest(path))).body.decode()

        return self._with(work)

    def counts(self) -> Counts:
        """Every number of /metrics."""
        found = {}
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                found[sample.name, *sample.labels.values()] = sample.value
        return found

    def number(self, name: str) -> float:
        """Of all labels together."""
        return sum(value for key, value in self.counts().items() if key[0] == name)

    @property
    def files(self) -> int:
        return len(list(Path("/proc", str(self.started.pid), "fd").iterdir()))

    @property
    def threads(self) -> int:
        return len(list(Path("/proc", str(self.started.pid), "task").iterdir()))

    @property
    def idle(self) -> bool:
        gauges = ("attendo_waiting_requests", "attendo_running_requests", "attendo_batch_size")
        counts = self.counts()
        return all(value == 0 for key, value in counts.items() if key[0] in gauges)

    async def _put(
        self, wire: HttpClient, load: Load, api: Api, texts: Sequence[str], fields: Any
    ) -> list[RequestOutcome]:
        return await run_load(wire, await make_adapter(api, wire, fields), texts, load)

    def _with(self, work: Callable[[HttpClient], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            wire = HttpClient(Address.parse(self.started.url))
            try:
                return await work(wire)
            finally:
                await wire.close()

        return asyncio.run(main())


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Loaded]:
    """In a process that has imported everything itself, with the limits that a server has unless told otherwise."""
    with start_server([save_model(folder)], "--threads", "1", *options) as server:
        asyncio.run(wait_until_ready(server.url))
        yield Loaded(server)


@contextmanager
def forked(children: Children, folder: Path, *options: str, before: Sequence[Job] = ()) -> Iterator[Loaded]:
    """In a forked process, which imports nothing, with limits that a busy machine never reaches."""
    with Service(children, save_model(folder), "--threads", "1", *options, before=before) as service:
        service.until_ready()
        yield Loaded(RunningServer(f"http://127.0.0.1:{service.port}", service.pid))


def grown(before: Counts, after: Counts, *names: str) -> dict[tuple[str, ...], int]:
    """By how much counters of these names have grown; those that have not are left out."""
    return {
        key: round(value - before.get(key, 0))
        for key, value in sorted(after.items())
        if key[0] in names and value != before.get(key, 0)
    }


def until(fact: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.02)


def label_values(text: str) -> set[str]:
    return set(re.findall(r'="((?:[^"\\]|\\.)*)"', text))
