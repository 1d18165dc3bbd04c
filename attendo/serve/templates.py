"""Which route a path belongs to: what may be counted by and written down, as the path itself may not."""

from collections.abc import Sequence

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, compile_path

UNKNOWN = "none"


class Templates:
    """The paths of an application, with names in braces for what differs."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        paths = dict.fromkeys(each.path for each in iter_route_contexts(routes) if each.path is not None)
        self._fixed = {path for path in paths if "{" not in path}
        # With `{name:path}` written as `{name}`, as the description of the API has it.
        self._others = [compile_path(path)[:2] for path in paths if "{" in path]

    def of(self, path: str) -> str:
        if path in self._fixed:
            return path
        return next((template for pattern, template in self._others if pattern.match(path)), UNKNOWN)
