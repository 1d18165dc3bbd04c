"""S11: memory, files and threads of a server do not grow with the number of requests."""

from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from children import Children
from loaded_server import LoadedServer, sentences, serving, serving_forked, wait_until
from small_service import LONG_LIMITS

from attendo.bench.load_test.apis import Api
from attendo.bench.load_test.load import Load

CLIENTS = 8
MANY = 1000
KINDS: list[tuple[Api, dict[str, Any]]] = [
    ("own", {}),
    ("libretranslate", {}),
    ("openai", {}),
    ("own", {"beam": 4, "n_best": 2}),
    ("libretranslate", {"source": "auto", "target": "zh", "format": "html"}),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("settled", "requests"), [(40, 100), pytest.param(1000, 10_000, marks=pytest.mark.slow)])
def test_S11_memory_files_and_threads_do_not_grow(
    children: Children, tmp_path: Path, settled: int, requests: int
) -> None:
    folder = tmp_path / "model"
    with serving(folder, *LONG_LIMITS) if requests > MANY else serving_forked(children, folder) as server:
        send_requests(server, settled)
        wait_until(lambda: server.idle)
        memory, files, threads = server.metric("attendo_resident_bytes"), server.files, server.threads
        send_requests(server, requests - settled)
        wait_until(lambda: server.idle)
        wait_until(lambda: server.files <= files)
        assert server.threads <= threads
        assert server.metric("attendo_resident_bytes") <= memory + min(0.03 * memory, 20 * 1024**2)


def send_requests(server: LoadedServer, count: int) -> None:
    """Send mixed requests, which must all be answered, and some whose clients disconnect."""
    part = count // len(KINDS) + 1
    for api, fields in KINDS:
        texts = list(islice(cycle(sentences(100, seed=count)), part))
        assert {each.end for each in server.answers(texts, CLIENTS, api, **fields)} == {"answered"}
    server.send_load(Load(rate=100, seconds=0.3, leaving=1.0, leave_within=0.1), min_length=512, max_length=512)
