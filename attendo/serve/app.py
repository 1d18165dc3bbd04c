"""Builds the ASGI application: the page and all APIs."""

from collections.abc import Sequence

from fastapi import FastAPI

from attendo import __version__
from attendo.serve.apis import deepl, deepl_glossaries, huggingface, libretranslate, native, openai
from attendo.serve.explorer.catalogue_routes import page_routes
from attendo.serve.http.errors import handle_errors
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.http.openapi import install_openapi
from attendo.serve.scheduling import monitoring
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ModelRegistry, ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.serve.translation.glossaries import GlossaryStore


class Application(RequestGuard):
    """The ASGI application: every API behind the checks of `RequestGuard`, with the gateway to its models."""

    gateway: ModelGateway


def create_app(models: Sequence[ModelSpec], settings: ServeSettings | None = None) -> Application:
    """Return the application with the page and every API. The default settings allow only local host names."""
    settings = settings or ServeSettings()
    # FastAPI's documentation pages are off: they load scripts from other hosts.
    app = FastAPI(
        title="attendo",
        version=__version__,
        openapi_url=f"{native.API_PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    gateway = ModelGateway(ModelRegistry(models, settings), settings, ServerMetrics())
    glossaries = GlossaryStore()
    for group in (monitoring, libretranslate, huggingface, openai, native):
        app.include_router(group.routes(gateway))
    for group_with_glossaries in (deepl, deepl_glossaries):
        app.include_router(group_with_glossaries.routes(gateway, glossaries))
    app.include_router(page_routes())
    handle_errors(app, native.request_field_names())
    install_openapi(app, settings)
    return Application(app, gateway)
