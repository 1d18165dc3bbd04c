"""Models, training history and formulas for the explorer page, and the page's static files."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, Response

import attendo.explore
from attendo.errors import AttendoError
from attendo.explore.curves import History, read_histories
from attendo.explore.formulas.catalogue import catalogue_json
from attendo.serve.explorer.schemas import FormulasReply, ModelsReply, TrainingReply
from attendo.serve.http.errors import Refusal, answer
from attendo.serve.http.openapi import Responses, refusals
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served
from attendo.text_model import TextModel

SAMPLES = 8
MOST_POINTS = 2_000
OF_TRAINING = ("bad_request", "unknown_model", "no_training", "bad_training")
FOLDER = Path(attendo.explore.__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
}


def routes(office: Office) -> APIRouter:
    router = APIRouter()

    @router.get("/models", response_model=None, tags=["programs"], responses={200: {"model": ModelsReply}})
    async def models() -> Response:
        """The models that are served, with their sizes, settings and languages; the first is the default."""
        return await run_in_threadpool(lambda: answer({"models": [_described(each) for each in office.shelf.all()]}))

    told = {**refusals("ours", *OF_TRAINING), 200: {"model": TrainingReply}}

    @router.get("/training", response_model=None, tags=["page"], responses=told)
    async def training(model: Annotated[str | None, Query(max_length=500)] = None) -> Response:
        """Loss, learning rate and scores of the run that a model comes from."""
        served = office.served(model)
        return await run_in_threadpool(lambda: answer(_training(served)))

    @router.get("/formulas", response_model=None, tags=["page"], responses={200: {"model": FormulasReply}})
    async def formulas() -> Response:
        """The catalogue of formulas, in English and Chinese."""
        return await run_in_threadpool(lambda: answer({"formulas": _formulas()}))

    return router


def _described(served: Served) -> dict[str, Any]:
    model, about = served.model, served.about
    languages = (about.source_language, about.target_language)
    return {
        "name": served.name,
        "direction": " → ".join(each for each in languages if each) if all(languages) else None,
        **about.model_dump(exclude={"trained_on"}),
        **_network(model),
        "checkpoints": served.checkpoints,
        "has_training": served.metrics is not None,
        "scores": model.scores,
        "generation": model.generation.model_dump(mode="json", exclude_unset=True),
    }


def _network(model: TextModel) -> dict[str, Any]:
    """What only a model folder tells: an exported model can be asked, not looked into."""
    if model.runtime.name != "torch":
        names = ("parameters", "config", "encoder_layers", "decoder_layers", "heads")
        return {**dict.fromkeys(names), "samples": []}
    config = model.network.config
    return {
        "parameters": sum(each.numel() for each in model.network.parameters()),
        "config": config.model_dump(mode="json"),
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "heads": config.num_heads,
        "samples": list(dict.fromkeys(source for source, _ in model.stored.sample))[:SAMPLES],
    }


def _training(served: Served) -> dict[str, Any]:
    if served.metrics is None:
        raise Refusal("no_training", model=served.name)
    try:
        (history,) = read_histories([served.metrics])
    except AttendoError as error:
        raise Refusal("bad_training", detail=str(error)) from None
    best = None if history.best is None else int(history.best)
    return {**_steps(history), "validations": _validations(history), "best": best}


def _steps(history: History) -> dict[str, Any]:
    """Of a long run every so many steps, and the last one; how many is told."""
    every = -(-len(history.steps) // MOST_POINTS) or 1
    places = sorted({*range(0, len(history.steps), every), len(history.steps) - 1} - {-1})
    columns = {
        "loss": history.loss,
        "learning_rate": history.lr,
        "tokens": history.tokens,
        "seconds": history.seconds,
    }
    rows = [
        {"step": int(history.steps[place]), **{name: float(each[place]) for name, each in columns.items()}}
        for place in places
    ]
    return {"metrics": rows, "every": every, "steps": len(history.steps)}


def _validations(history: History) -> list[dict[str, Any]]:
    told = []
    for place, step in enumerate(history.validated):
        scores = {name: each[place] for name, each in history.scores.items() if np.isfinite(each[place])}
        loss = scores.pop("valid_loss", None)
        row = {"step": int(step), "loss": None if loss is None else float(loss)}
        told.append({**row, **{name: float(value) for name, value in scores.items()}})
    return told


def _formulas() -> list[dict[str, Any]]:
    """By the row of the list of what must be seen that each is for; one formula may be for several."""
    return [
        {"id": row, "name": name, **{key: value for key, value in each.items() if key != "rows"}}
        for name, each in catalogue_json().items()
        for row in each["rows"]
    ]


def page_routes(folder: Path = FOLDER) -> APIRouter:
    router = APIRouter(tags=["page"])

    @router.get("/", response_class=HTMLResponse, response_model=None)
    async def index() -> Response:
        """The page."""
        return _file(folder, "index.html")

    kinds = {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in KINDS.values()}
    told: Responses = {**refusals("ours", "no_page"), 200: {"content": kinds}}

    @router.get("/page/{path:path}", response_class=Response, response_model=None, responses=told)
    async def file(path: str) -> Response:
        """A file of the page."""
        return _file(folder, path)

    return router


def _file(folder: Path, path: str) -> Response:
    """Only of kinds that a page is made of, and only from inside the folder, wherever links in it lead."""
    root = folder.resolve()
    try:
        place = (root / path).resolve()
        found = place.is_relative_to(root) and place.suffix in KINDS and place.is_file()
    except (OSError, ValueError):  # a name that no file can have
        found = False
    if not found:
        raise Refusal("no_page", path=path[:100])
    return FileResponse(place, media_type=KINDS[place.suffix], headers={"cache-control": "no-cache"})
