"""The application: models in, HTTP out."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from attendo import __version__
from attendo.serve.errors import handle_errors
from attendo.serve.explorer import ablation, answers, catalogue, inside, page
from attendo.serve.explorer.desk import Desk
from attendo.serve.explorer.requests import known_names
from attendo.serve.guard import Guard
from attendo.serve.settings import ServeSettings
from attendo.serve.shelf import NamedModel, Shelf

API = "/api/v1"


def create_app(models: Sequence[NamedModel], settings: ServeSettings | None = None) -> ASGIApp:
    """The page and what it asks for. `settings` say what is allowed; only this machine may ask unless they say more."""
    settings = settings or ServeSettings()
    # The pages that FastAPI would make of its description load code from other hosts.
    app = FastAPI(
        title="attendo", version=__version__, openapi_url=f"{API}/openapi.json", docs_url=None, redoc_url=None
    )
    desk = Desk(Shelf(models, settings), settings)
    api = APIRouter(prefix=API)
    for group in (catalogue, answers, inside, ablation):
        api.include_router(group.routes(desk))
    app.include_router(api)
    app.include_router(page.routes())
    handle_errors(app, known_names())
    return Guard(app, settings)
