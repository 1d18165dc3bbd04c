"""S11: a server that has answered thousands takes no more memory, files or threads than after some hundreds."""

from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from children import Children
from loaded_server import Loaded, forked, sentences, serving, until

from attendo.bench.load_test import Api, Load

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
def test_S11_nothing_grows(children: Children, tmp_path: Path, settled: int, requests: int) -> None:
    folder = tmp_path / "model"
    with serving(folder) if requests > MANY else forked(children, folder) as server:
        asked = ask(server, settled)
        until(lambda: server.idle)
        memory, files, threads = server.number("attendo_resident_bytes"), server.files, server.threads
        asked += ask(server, requests - settled)
        until(lambda: server.idle)
        until(lambda: server.files <= files)
        assert server.threads <= threads
        assert server.number("attendo_resident_bytes") <= memory + min(0.03 * memory, 20 * 1024**2)
        assert asked >= requests


def ask(server: Loaded, count: int) -> int:
    """Mixed requests, some of which are not waited for."""
    asked, part = 0, count // len(KINDS) + 1
    for api, fields in KINDS:
        texts = list(islice(cycle(sentences(100, seed=count)), part))
        asked += len(server.answers(texts, CLIENTS, api, **fields))
    server.put(Load(rate=100, seconds=0.3, leaving=1.0, leave_within=0.1), min_length=512, max_length=512)
    return asked
