"""A server in a separate process under load from attendo's load client, with its metrics."""

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

from attendo.bench.load_test.apis import Api, make_adapter
from attendo.bench.load_test.http_client import Address, HttpClient, HttpRequest
from attendo.bench.load_test.load import Load, RequestOutcome, request_all, run_load
from attendo.bench.load_test.report import wait_until_ready
from attendo.bench.load_test.server import RunningServer, start_server
from attendo.text import EOS

T = TypeVar("T")
WORDS = sorted({word for text in SOURCES for word in text.split()})
Counts = Mapping[tuple[str, ...], float]  # by the name of a counter and the values of its labels


def sentences(count: int, longest: int = 9, seed: int = 1) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, k=dice.randint(1, longest))) for _ in range(count)]


def save_model(folder: Path) -> Path:
    """Save a small random model whose outputs differ in length and words."""
    model = tiny_model(tie="none")
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    about = {"task": "translation", "source_language": "en", "target_language": "zh"}
    replaced = replace(model.stored_model, about=about)
    type(model)(replaced).save(folder)
    return folder


@dataclass(frozen=True)
class LoadedServer:
    """A server that can be put under load and measured."""

    started: RunningServer

    def send_load(self, load: Load, api: Api = "own", texts: Sequence[str] = (), **fields: Any) -> list[RequestOutcome]:
        return self._run_with_client(lambda client: self._run_load(client, load, api, texts or sentences(50), fields))

    def capacity(self, texts: Sequence[str], **fields: Any) -> float:
        """Answers per second at random arrival times, at the rate that 48 concurrent clients reach.

        With outputs of equal length, the requests of concurrent clients start and end together, which is less work.
        """
        concurrent_rate = self._steady_rate(Load(clients=48, seconds=12), texts, **fields)
        return self._steady_rate(Load(rate=concurrent_rate, seconds=18), texts, **fields)

    def _steady_rate(self, load: Load, texts: Sequence[str], **fields: Any) -> float:
        """Answers per second, without the first third, in which the batch fills."""
        outcomes = self.send_load(load, texts=texts, **fields)
        steady = [
            each for each in outcomes if each.end == "answered" and load.seconds / 3 < each.ended_at <= load.seconds
        ]
        return len(steady) / (load.seconds * 2 / 3)

    def answers(self, texts: Sequence[str], clients: int, api: Api = "own", **fields: Any) -> list[RequestOutcome]:
        """Request every text once."""

        async def send(client: HttpClient) -> list[RequestOutcome]:
            return await request_all(client, await make_adapter(api, client, fields), texts, clients, deadline=600)

        return self._run_with_client(send)

    def get(self, path: str) -> str:
        async def send(client: HttpClient) -> str:
            return (await client.send(HttpRequest(path))).body.decode()

        return self._run_with_client(send)

    def counts(self) -> Counts:
        """All numbers of /metrics."""
        found = {}
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                found[sample.name, *sample.labels.values()] = sample.value
        return found

    def metric(self, name: str) -> float:
        """The sum over all labels."""
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

    async def _run_load(
        self, client: HttpClient, load: Load, api: Api, texts: Sequence[str], fields: Any
    ) -> list[RequestOutcome]:
        return await run_load(client, await make_adapter(api, client, fields), texts, load)

    def _run_with_client(self, send: Callable[[HttpClient], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            client = HttpClient(Address.parse(self.started.url))
            try:
                return await send(client)
            finally:
                await client.close()

        return asyncio.run(main())


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[LoadedServer]:
    """A server in a new process, with the default limits."""
    with start_server([save_model(folder)], "--threads", "1", *options) as server:
        asyncio.run(wait_until_ready(server.url))
        yield LoadedServer(server)


@contextmanager
def serving_forked(
    children: Children, folder: Path, *options: str, before: Sequence[Job] = ()
) -> Iterator[LoadedServer]:
    """A server in a forked process, with limits that a busy machine never reaches."""
    with Service(children, save_model(folder), "--threads", "1", *options, before=before) as service:
        service.wait_until_ready()
        yield LoadedServer(RunningServer(f"http://127.0.0.1:{service.port}", service.pid))


def increases(before: Counts, after: Counts, *names: str) -> dict[tuple[str, ...], int]:
    """The increase of each counter with one of these names, without the ones that have not changed."""
    return {
        key: round(value - before.get(key, 0))
        for key, value in sorted(after.items())
        if key[0] in names and value != before.get(key, 0)
    }


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.02)


def label_values(text: str) -> set[str]:
    return set(re.findall(r'="((?:[^"\\]|\\.)*)"', text))
