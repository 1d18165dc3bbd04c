"""The application: models in, HTTP out."""

from collections.abc import Sequence

from fastapi import FastAPI

from attendo import __version__
from attendo.serve.apis import deepl, huggingface, libretranslate, native, openai
from attendo.serve.explorer.catalogue_routes import page_routes
from attendo.serve.http import metrics
from attendo.serve.http.errors import handle_errors
from attendo.serve.http.metrics import Tally
from attendo.serve.http.middleware import Guard
from attendo.serve.http.openapi import describe
from attendo.serve.scheduling import health
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import NamedModel, Shelf
from attendo.serve.settings import ServeSettings


def create_app(models: Sequence[NamedModel], settings: ServeSettings | None = None) -> Guard:
    """The page and every API. `settings` say what is allowed; only this machine may ask unless they say more."""
    settings = settings or ServeSettings()
    # The pages that FastAPI would make of its description load code from other hosts.
    app = FastAPI(
        title="attendo", version=__version__, openapi_url=f"{native.API}/openapi.json", docs_url=None, redoc_url=None
    )
    office = Office(Shelf(models, settings), settings, Tally())
    for group in (health, metrics, libretranslate, huggingface, deepl, openai, native):
        app.include_router(group.routes(office))
    app.include_router(page_routes())
    handle_errors(app, native.known_names())
    describe(app, settings)
    return Guard(app, office)
