"""/models, /training and /formulas: what there is to look at."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from attendo.errors import AttendoError
from attendo.explore.curves import History, read_histories
from attendo.explore.formulas import catalogue_json
from attendo.serve.errors import Refusal, answer
from attendo.serve.explorer.desk import Desk
from attendo.serve.shelf import Served

SAMPLES = 8
MOST_POINTS = 2_000


def routes(desk: Desk) -> APIRouter:
    router = APIRouter()

    @router.get("/models", response_model=None)
    async def models() -> Response:
        return await run_in_threadpool(lambda: answer({"models": [_described(each) for each in desk.shelf.all()]}))

    @router.get("/training", response_model=None)
    async def training(model: Annotated[str | None, Query(max_length=500)] = None) -> Response:
        served = desk.shelf.named(model)
        return await run_in_threadpool(lambda: answer(_training(served)))

    @router.get("/formulas", response_model=None)
    async def formulas() -> Response:
        return await run_in_threadpool(lambda: answer({"formulas": _formulas()}))

    return router


def _described(served: Served) -> dict[str, Any]:
    stored = served.model.stored
    config = stored.network.config
    return {
        "name": served.name,
        "direction": None,  # a model folder does not tell
        "parameters": sum(each.numel() for each in stored.network.parameters()),
        "config": config.model_dump(mode="json"),
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "heads": config.num_heads,
        "checkpoints": served.checkpoints,
        "has_training": served.metrics is not None,
        "samples": list(dict.fromkeys(source for source, _ in stored.sample))[:SAMPLES],
        "scores": stored.scores,
        "generation": stored.generation,
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
