"""The page on a real server with a small random model, and a class to test it in a browser."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from tiny import SIZES, SOURCES, TARGETS

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.runs.config import RunConfig, to_toml
from attendo.text import EOS, Words
from attendo.text_model import TextModel
from attendo.train.checkpoint import Checkpoints, Snapshot

for package in ("fastapi", "uvicorn"):
    pytest.importorskip(package, reason=f"a server needs {package}: pip install 'attendo[serve]'")

import uvicorn  # noqa: E402
from starlette.types import ASGIApp  # noqa: E402

from attendo.serve.app import create_app  # noqa: E402
from attendo.serve.scheduling.registry import ModelSpec  # noqa: E402
from attendo.serve.settings import ServeSettings  # noqa: E402

TEXT = "I saw the small cat"
PATIENCE_MS = 240_000  # only a hang reaches it; a busy machine takes a few seconds
VIEWS = (
    *("home", "alignment", "heads", "steps", "tree", "mask", "calculator", "ablation", "representations"),
    *("compare", "training"),
)


def random_model(seed: int = 16) -> TextModel:
    """An untrained model with spread logits, so that outputs have several words and end with EOS."""
    source, target = Words.build(SOURCES), Words.build(TARGETS)
    sizes = {
        "source_vocab_size": source.vocab_size,
        "target_vocab_size": target.vocab_size,
        "tie": "none",
        "output_bias": True,
    }
    network = Transformer(ModelConfig(**{**SIZES, **sizes}), torch.Generator().manual_seed(seed))
    with torch.no_grad():
        network.output.weight.mul_(3.0)
        network.output.bias[:EOS] = -30.0  # never generate PAD, UNK and BOS
    sample = list(zip(SOURCES, TARGETS, strict=True))
    return TextModel(StoredModel(network, source, target, {"max_length_extra": 7}, {}, sample))


def finished_run(folder: Path) -> ModelSpec:
    """A model with checkpoints and training metrics."""
    model = random_model()
    model.save(folder / "model")
    checkpoints = Checkpoints(folder / "checkpoints")
    for step in (10, 20):
        weights = {name: weight.detach() for name, weight in random_model(step).network.named_parameters()}
        checkpoints.save(Snapshot(step, weights, {"x": torch.zeros(1)}, {"x": torch.zeros(1)}, {}))
    steps = [{"kind": "step", "step": n, "loss": 5 / n, "lr": n / 1e4, "tokens": 9, "seconds": n} for n in range(1, 21)]
    lines = [*steps, {"kind": "validation", "step": 20, "loss": 1.5, "scores": {"bleu": 12.5}, "best": True}]
    settings = {"preset": "tiny", "data": {"task": "builtin"}, "tokenizer": {"kind": "words"}}
    (folder / "run.toml").write_text(to_toml(RunConfig(**settings, train={"label_smoothing": 0.1})), "utf-8")
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return ModelSpec("run", model, folder / "model")


class Serving:
    """A server in a thread, which can be stopped and started again at the same address."""

    def __init__(self, app: ASGIApp, port: int = 0) -> None:
        config = uvicorn.Config(
            app, port=port, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the server did not start"
            time.sleep(0.02)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"

    def stop(self) -> None:
        """Stop at once, without waiting for connections."""
        self.server.force_exit = True
        self.server.should_exit = True
        self.thread.join(10)


@contextmanager
def serving(app: ASGIApp, port: int = 0) -> Iterator[Serving]:
    server = Serving(app, port)
    try:
        yield server
    finally:
        server.stop()


def real_app(folder: Path, **changes: Any) -> ASGIApp:
    """The real app, with time limits that a busy machine never reaches."""
    seconds = dict.fromkeys(("deadline_seconds", "max_queue_seconds", "watchdog_seconds", "body_timeout"), 600.0)
    return create_app([finished_run(folder)], ServeSettings(**seconds, header_timeout=600.0, **changes))


def wait_until(check: Callable[[], bool]) -> bool:
    """Whether the check passes within the time limit. The page may be drawn a moment after a click."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Visit:
    """A page that records console errors and requests to other hosts."""

    def __init__(self, page: Any, address: str, **state: str) -> None:
        self.page, self.address = page, address
        self.console_errors: list[str] = []
        self.other_hosts: list[str] = []
        page.on("console", lambda message: message.type == "error" and self.console_errors.append(message.text))
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on("request", lambda request: self._record_request(request.url))
        fields = {"view": "alignment", **state}  # not the first view, which draws the whole model
        page.goto(f"{address}#{urlencode(fields)}")

    def open(self, view: str = "alignment", **state: Any) -> Any:
        """Open a view and wait until it is drawn."""
        fields = {"view": view, "lang": "en", "text": TEXT, **state}
        # Open another view first, so that this one is created again. A reload would load all files again.
        self.page.evaluate("view => { location.hash = `view=${view}`; }", _other_view(view))
        self.page.locator(f"view-{_other_view(view)}").wait_for(state="attached")
        self.page.evaluate("fields => { location.hash = new URLSearchParams(fields).toString(); }", fields)
        return self.wait_drawn(view)

    def wait_drawn(self, view: str) -> Any:
        self.page.locator(f"view-{view}:not([aria-busy]) h2").wait_for()
        return self.page.locator(f"view-{view}")

    def request(self, path: str, **body: Any) -> Any:
        """The response of the server to the same request."""
        fields = {"text": TEXT, "decoder": {"kind": "greedy"}, **body}
        response = self.page.request.post(f"{self.address}api/v1{path}", data=fields, timeout=PATIENCE_MS)
        assert response.ok, response.text()
        return response.json()

    def ignore_errors(self, words: str) -> None:
        """Drop console errors that a test caused itself, such as a 400 response."""
        self.console_errors[:] = [each for each in self.console_errors if words not in each]

    def problems(self) -> list[str]:
        """Errors in the console and requests to other hosts (P7)."""
        return [*self.console_errors, *self.other_hosts]

    def _record_request(self, url: str) -> None:
        if not url.startswith((self.address, "about:", "blob:", "data:", "file:")):
            self.other_hosts.append(url)


def _other_view(view: str) -> str:
    return "compare" if view == "steps" else "steps"
