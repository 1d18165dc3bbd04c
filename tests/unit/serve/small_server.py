"""A server on a small random model, called without a network connection."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from starlette.testclient import TestClient
from tiny import SIZES, SOURCES, TARGETS

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.serve.app import create_app
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text import EOS, Tokenizer, Words
from attendo.text_model import TextModel
from attendo.train.checkpoint import Checkpoints, Snapshot

API = "/api/v1"
TEXT = "I saw the small cat"
POSTS = (
    "answer",
    "steps",
    "tree",
    "trace",
    "mask",
    "operations",
    "ablate",
    "rank",
    "representations",
    "embeddings",
    "forward",
)
PATIENT = ServeSettings(deadline_seconds=600, max_queue_seconds=600)  # a busy machine exceeds the usual limits
HOSTILE = ("<img src=x onerror=alert(1)>", "</script>", "{{7*7}}", "%s%n", "\u202e", "'; --")


def random_model(seed: int = 0, hostile: bool = False, **changes: Any) -> TextModel:
    """Gains and biases are random too. The output weights are large enough for answers of several words."""
    more = HOSTILE if hostile else ()
    source: Tokenizer = Words.build((*SOURCES, *more))
    target: Tokenizer = Words.build((*TARGETS, *more))
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    generator = torch.Generator().manual_seed(seed)
    network = Transformer(ModelConfig(**{**sizes, **SIZES, "tie": "none", **changes}), generator)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        network.output.weight.mul_(3.0)
        network.output.weight[EOS].mul_(2.0)
    sample = list(zip(SOURCES, TARGETS, strict=True))
    return TextModel(
        StoredModel(
            network, source, target, {"max_length_factor": 1.0, "max_length_extra": 2}, {"exact_match": 0.25}, sample
        )
    )


def long_model(length: int) -> TextModel:
    """A model that always generates this number of tokens, within `max_output_tokens`. 400 take about a second."""
    generation = {"min_length_extra": length, "max_length_factor": 0.0, "max_length_extra": length}
    return TextModel(replace(random_model().stored_model, generation=generation))


class SmallServer:
    """Sends requests to a server and parses its responses."""

    def __init__(self, *models: ModelSpec, settings: ServeSettings | None = None) -> None:
        self.app = create_app(models, PATIENT if settings is None else settings)
        self.client = TestClient(self.app, base_url="http://localhost", raise_server_exceptions=True)

    def post(self, path: str, text: str = TEXT, **fields: Any) -> Any:
        """The JSON of a successful response."""
        response = self.raw(path, text=text, **fields)
        assert response.status_code == 200, response.text
        return response.json()

    def raw(self, path: str, **fields: Any) -> Any:
        return self.client.post(f"{API}/{path}", json=fields)

    def get(self, path: str) -> Any:
        response = self.client.get(f"{API}/{path}")
        assert response.status_code == 200, response.text
        return response.json()

    def events(self, path: str, text: str = TEXT, **fields: Any) -> list[tuple[str, Any]]:
        response = self.raw(path, text=text, **fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(parse_events(response.text))

    def post_error(self, path: str, status: int, code: str, **fields: Any) -> dict[str, Any]:
        """The error of a rejected request, after a check of its status and code."""
        return check_error(self.raw(path, **fields), status, code)


def check_error(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == code
    assert error["message"]
    assert any("\u4e00" <= character <= "\u9fff" for character in error["message_zh"]), error
    return error


def parse_events(text: str) -> Iterator[tuple[str, Any]]:
    for block in text.split("\n\n"):
        if block:
            name, data = block.split("\n")
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def write_run(folder: Path, model: TextModel, steps: dict[int, TextModel]) -> ModelSpec:
    """Writes a run folder with a model, checkpoints with other weights, and metrics."""
    model.save(folder / "model")
    checkpoints = Checkpoints(folder / "checkpoints")
    for step, each in steps.items():
        weights = {name: weight.detach() for name, weight in each.network.named_parameters()}
        checkpoints.save(Snapshot(step, weights, {"x": torch.zeros(1)}, {"x": torch.zeros(1)}, {}))
    lines: list[dict[str, Any]] = [
        {"kind": "step", "step": step, "loss": 5 - step, "lr": 0.1 * step, "tokens": 10, "seconds": step}
        for step in (1, 2, 3)
    ]
    lines.append({"kind": "validation", "step": 3, "loss": 1.5, "scores": {"bleu": 12.5}, "best": True})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return ModelSpec("run", model, folder / "model")
