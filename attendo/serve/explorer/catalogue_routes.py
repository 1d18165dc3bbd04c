"""Models, training history and formulas for the explorer page, and the page's static files."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations, islice, product, zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, Response

import attendo
import attendo.explore
from attendo.errors import AttendoError
from attendo.explore.curves import History, read_histories
from attendo.explore.formulas.catalogue import catalogue_json
from attendo.serve.explorer.schemas import ModelsResponse
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import JSON_OBJECT_CONTENT, Responses, error_responses
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.text_model import TextModel

MAX_SAMPLES = 8
_MIN_ALIGNED_PAIRS, _MAX_ALIGNED_PAIRS = 50, 500
_MIN_DICE, _MIN_LINKS, _MAX_WORDS = 0.5, 4, 12
MAX_POINTS = 2_000
TRAINING_ERRORS = ("bad_request", "unknown_model", "no_training", "bad_training")
PAGE_FOLDER = Path(attendo.explore.__file__).parent / "page"
SITE_FOLDER = Path(attendo.__file__).parents[1] / "site"  # of a checkout: where `make docs` writes the documentation
SITE_PATH = "/documentation"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webp": "image/webp",
    ".json": "application/json",
    ".woff2": "font/woff2",
}


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter()

    @router.get("/models", response_model=None, tags=["programs"], responses={200: {"model": ModelsResponse}})
    async def models() -> Response:
        """List the served models with their sizes, settings and languages. The first is the default."""
        return await run_in_threadpool(
            lambda: json_response({"models": [_describe_model(each) for each in gateway.registry.all()]})
        )

    training_responses = {**error_responses("ours", *TRAINING_ERRORS), 200: {"content": JSON_OBJECT_CONTENT}}

    @router.get("/training", response_model=None, tags=["page"], responses=training_responses)
    async def training(model: Annotated[str | None, Query(max_length=500)] = None) -> Response:
        """Return loss, learning rate and scores of the training run of a model."""
        served = gateway.get_model(model)
        return await run_in_threadpool(lambda: json_response(_read_training(served)))

    vocabulary_responses = {**error_responses("ours", "unknown_model"), 200: {"content": JSON_OBJECT_CONTENT}}

    @router.get("/vocabulary", response_model=None, tags=["page"], responses=vocabulary_responses)
    async def vocabulary(model: Annotated[str | None, Query(max_length=500)] = None) -> Response:
        """Return the pieces of the target vocabulary by id."""
        tokenizer = gateway.get_model(model).model.target_tokenizer
        return await run_in_threadpool(lambda: json_response({"pieces": tokenizer.pieces(range(tokenizer.vocab_size))}))

    @router.get("/formulas", response_model=None, tags=["page"], responses={200: {"content": JSON_OBJECT_CONTENT}})
    async def formulas() -> Response:
        """Return the catalogue of formulas, in English and Chinese."""
        return await run_in_threadpool(lambda: json_response({"formulas": _list_formulas()}))

    return router


def _describe_model(served: ServedModel) -> dict[str, Any]:
    model, about = served.model, served.about
    languages = (about.source_language, about.target_language)
    return {
        "name": served.name,
        "direction": " → ".join(each for each in languages if each) if all(languages) else None,
        **about.model_dump(exclude={"trained_on"}),
        **_describe_network(model),
        "checkpoints": served.checkpoints,
        "label_smoothing": served.label_smoothing,
        "has_training": served.metrics_path is not None,
        "scores": model.scores,
        "generation": model.generation.model_dump(mode="json", exclude_unset=True),
    }


def _describe_network(model: TextModel) -> dict[str, Any]:
    """Describe the network. The values are null for exported models, whose network cannot be inspected."""
    if model.backend.name != "torch":
        names = ("parameters", "config", "encoder_layers", "decoder_layers", "heads")
        return {**dict.fromkeys(names), "samples": [], "longest_sample": None}
    config = model.network.config
    return {
        "parameters": sum(each.numel() for each in model.network.parameters()),
        "config": config.model_dump(mode="json"),
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "heads": config.num_heads,
        "samples": list(choose_samples(tuple(model.stored_model.sample))),
        "longest_sample": max((len(source) for source, _ in model.stored_model.sample), default=None),
    }


@cache
def choose_samples(pairs: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return up to `MAX_SAMPLES` sources. Every second one has another word order than its target.

    Words are aligned by the Dice coefficient of their occurrences. Too few pairs give no reliable alignment.
    """
    plain = list(dict.fromkeys(source for source, _ in pairs))
    if len(pairs) < _MIN_ALIGNED_PAIRS:
        return tuple(plain[:MAX_SAMPLES])
    words = [(_split_words(source), _split_words(target)) for source, target in pairs[:_MAX_ALIGNED_PAIRS]]
    sources, targets = (Counter(word for pair in words for word in set(pair[side])) for side in (0, 1))
    both = Counter(each for source, target in words for each in product(set(source), set(target)))

    def reordering(source: Sequence[str], target: Sequence[str]) -> float:
        links = []
        for word in source:
            dice = [2 * both[word, other] / (sources[word] + targets[other]) for other in target]
            if max(dice) > _MIN_DICE:
                links.append(dice.index(max(dice)))
        crossing = sum(one > other for one, other in combinations(links, 2))
        return crossing / math.comb(len(links), 2) if len(links) >= _MIN_LINKS else 0.0

    scores = [reordering(*each) if len(each[0]) <= _MAX_WORDS else 0.0 for each in words]
    reordered: list[str] = []
    for index in sorted(range(len(words)), key=lambda index: -scores[index]):
        seen = set(words[index][0])
        different = all(len(seen & set(_split_words(other))) <= len(seen) / 3 for other in reordered)
        if scores[index] > 0 and different and len(reordered) < MAX_SAMPLES:
            reordered.append(pairs[index][0])
    mixed = (text for pair in zip_longest(reordered, plain) for text in pair if text)
    return tuple(islice(dict.fromkeys(mixed), MAX_SAMPLES))


def _split_words(text: str) -> list[str]:
    """Return the words of a text, or its characters if it has no spaces."""
    words = text.split()
    return words if len(words) > 1 else list(text)


def _read_training(served: ServedModel) -> dict[str, Any]:
    if served.metrics_path is None:
        raise ApiError("no_training", model=served.name)
    try:
        (history,) = read_histories([served.metrics_path])
    except AttendoError as error:
        raise ApiError("bad_training", detail=str(error)) from None
    best = None if history.best_step is None else int(history.best_step)
    return {**_training_steps(history), "validations": _validations(history), "best": best}


def _training_steps(history: History) -> dict[str, Any]:
    """Return at most about `MAX_POINTS` evenly spaced steps and the last one. `every` is the spacing."""
    every = -(-len(history.steps) // MAX_POINTS) or 1
    indices = sorted({*range(0, len(history.steps), every), len(history.steps) - 1} - {-1})
    columns = {
        "loss": history.loss,
        "learning_rate": history.lr,
        "tokens": history.tokens,
        "seconds": history.seconds,
    }
    rows = [
        {"step": int(history.steps[index]), **{name: float(each[index]) for name, each in columns.items()}}
        for index in indices
    ]
    return {"metrics": rows, "every": every, "steps": len(history.steps)}


def _validations(history: History) -> list[dict[str, Any]]:
    validations = []
    for index, step in enumerate(history.validation_steps):
        scores = {name: each[index] for name, each in history.scores.items() if np.isfinite(each[index])}
        loss = scores.pop("valid_loss", None)
        row = {"step": int(step), "loss": None if loss is None else float(loss)}
        validations.append({**row, **{name: float(value) for name, value in scores.items()}})
    return validations


def _list_formulas() -> list[dict[str, Any]]:
    """List the formulas by specification id (A1 to K8). A formula may have several ids."""
    return [
        {"id": row, "name": name, **{key: value for key, value in each.items() if key != "rows"}}
        for name, each in catalogue_json().items()
        for row in each["rows"]
    ]


def page_routes(folder: Path = PAGE_FOLDER, site: Path = SITE_FOLDER) -> APIRouter:
    router = APIRouter(tags=["page"])

    @router.get("/", response_class=HTMLResponse, response_model=None)
    async def index() -> Response:
        """Return the page. Its views link the documentation if its site has been built."""
        if not (site / "README.html").is_file():
            return _file_response(folder, "index.html")
        content = (folder / "index.html").read_text("utf-8")
        linked = content.replace("<html ", f'<html data-documentation="{SITE_PATH}" ', 1)
        return HTMLResponse(linked, headers={"cache-control": "no-cache"})

    @router.get(f"{SITE_PATH}/{{path:path}}", response_class=Response, response_model=None, include_in_schema=False)
    async def documentation(path: str) -> Response:
        """Return a file of the site of `make docs`."""
        return _file_response(site, path)

    kinds = {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()}
    responses: Responses = {**error_responses("ours", "no_page"), 200: {"content": kinds}}

    @router.get("/page/{path:path}", response_class=Response, response_model=None, responses=responses)
    async def file(path: str) -> Response:
        """Return a file of the page."""
        return _file_response(folder, path)

    return router


def _file_response(folder: Path, path: str) -> Response:
    """Return a file of a known media type. Symbolic links that leave the folder are rejected."""
    root = folder.resolve()
    try:
        resolved_path = (root / path).resolve()
        servable = (
            resolved_path.is_relative_to(root) and resolved_path.suffix in MEDIA_TYPES and resolved_path.is_file()
        )
    except (OSError, ValueError):  # invalid file name
        servable = False
    if not servable:
        raise ApiError("no_page", path=path[:100])
    return FileResponse(
        resolved_path, media_type=MEDIA_TYPES[resolved_path.suffix], headers={"cache-control": "no-cache"}
    )
