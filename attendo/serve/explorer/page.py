"""The page itself: its files, and nothing beside them."""

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

import attendo.explore
from attendo.serve.errors import Refusal
from attendo.serve.openapi import Responses, refusals

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


def routes(folder: Path = FOLDER) -> APIRouter:
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
