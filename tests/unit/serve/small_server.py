"""A server on a small random model, asked without a network in between."""

import json
from collections.abc import Iterator
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
POSTS = ("answer", "steps", "tree", "trace", "mask", "ledger", "ablate", "rank")
HOSTILE = ("<img src=x onerror=alert(1)>", "</script>", "{{7*7}}", "%s%n", "\u202e", "'; --")


def random_model(seed: int = 0, hostile: bool = False, **changes: Any) -> TextModel:
    """With gains and biases drawn too, and logits apart enough for answers of several words."""
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


class Asking:
    """Asks a server, and takes apart what it answers."""

    def __init__(self, *models: ModelSpec, settings: ServeSettings | None = None) -> None:
        self.app = create_app(models, settings)
        self.client = TestClient(self.app, base_url="http://localhost", raise_server_exceptions=True)

    def post(self, path: str, text: str = TEXT, **fields: Any) -> Any:
        """The answer to a request that can be met."""
        answered = self.raw(path, text=text, **fields)
        assert answered.status_code == 200, answered.text
        return answered.json()

    def raw(self, path: str, **fields: Any) -> Any:
        return self.client.post(f"{API}/{path}", json=fields)

    def get(self, path: str) -> Any:
        answered = self.client.get(f"{API}/{path}")
        assert answered.status_code == 200, answered.text
        return answered.json()

    def events(self, path: str, text: str = TEXT, **fields: Any) -> list[tuple[str, Any]]:
        answered = self.raw(path, text=text, **fields)
        assert answered.status_code == 200, answered.text
        assert answered.headers["content-type"].startswith("text/event-stream")
        return list(parsed_events(answered.text))

    def refused(self, path: str, status: int, code: str, **fields: Any) -> dict[str, Any]:
        """The error of a request that is refused as it should be."""
        return error_of(self.raw(path, **fields), status, code)


def error_of(answered: Any, status: int, code: str) -> dict[str, Any]:
    assert answered.status_code == status, answered.text
    error: dict[str, Any] = answered.json()["error"]
    assert error["code"] == code
    assert error["message"]
    assert any("\u4e00" <= sign <= "\u9fff" for sign in error["message_zh"]), error
    return error


def parsed_events(text: str) -> Iterator[tuple[str, Any]]:
    for block in text.split("\n\n"):
        if block:
            name, data = block.split("\n")
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def finished_run(folder: Path, model: TextModel, steps: dict[int, TextModel]) -> ModelSpec:
    """A run folder with a model, checkpoints of other weights, and what was measured."""
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
