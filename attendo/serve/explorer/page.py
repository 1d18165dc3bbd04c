"""The page itself: its files, and nothing beside them."""

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

import attendo.explore
from attendo.serve.errors import Refusal

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
    router = APIRouter()

    @router.get("/", response_model=None)
    async def index() -> Response:
        return _file(folder, "index.html")

    @router.get("/page/{path:path}", response_model=None)
    async def file(path: str) -> Response:
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
