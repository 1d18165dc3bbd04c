"""The application: models in, HTTP out."""

from collections.abc import Sequence

from fastapi import FastAPI

from attendo import __version__
from attendo.serve import deepl, health, huggingface, libretranslate, metrics, openai, own
from attendo.serve.errors import handle_errors
from attendo.serve.explorer import page
from attendo.serve.guard import Guard
from attendo.serve.metrics import Tally
from attendo.serve.office import Office
from attendo.serve.openapi import describe
from attendo.serve.settings import ServeSettings
from attendo.serve.shelf import NamedModel, Shelf


def create_app(models: Sequence[NamedModel], settings: ServeSettings | None = None) -> Guard:
    """The page and every API. `settings` say what is allowed; only this machine may ask unless they say more."""
    settings = settings or ServeSettings()
    # The pages that FastAPI would make of its description load code from other hosts.
    app = FastAPI(
        title="attendo", version=__version__, openapi_url=f"{own.API}/openapi.json", docs_url=None, redoc_url=None
    )
    office = Office(Shelf(models, settings), settings, Tally())
    for group in (health, metrics, libretranslate, huggingface, deepl, openai, own):
        app.include_router(group.routes(office))
    app.include_router(page.routes())
    handle_errors(app, own.known_names())
    describe(app, settings)
    return Guard(app, office)
