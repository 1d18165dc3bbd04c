"""Forms, and what an address asks by name: read as UTF-8, percent-encoded or raw, and refused where they are not."""

from urllib.parse import parse_qsl

from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from attendo.serve.errors import Refusal

_FIELDS = 1_000  # of a form; each text is one
_NOT_UTF8 = "its fields are not UTF-8"


async def form_of(request: Request, files: int = _FIELDS) -> FormData:
    """To be closed when done: a file in it may lie on disk until then. Without a form it is empty."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return FormData([*pairs_in(await request.body())])
    if kind != "multipart/form-data":
        return FormData()
    try:
        return await _Parts(request.headers, request.stream(), max_files=files, max_fields=_FIELDS).parse()
    except MultiPartException as error:
        raise Refusal("bad_form", detail=error.message[:200]) from None


def pairs_in(written: bytes) -> list[tuple[str, str]]:
    """Names and values of a form or an address. Starlette would take raw UTF-8 for Latin-1, and so another text."""
    try:
        return parse_qsl(written.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except UnicodeDecodeError:
        raise Refusal("bad_form", detail=_NOT_UTF8) from None
    except ValueError:
        raise Refusal("bad_form", detail=f"it has more than {_FIELDS:,} fields") from None


class _Parts(MultiPartParser):
    """Every field is UTF-8, whatever charset the form speaks of: Starlette would read by any codec, or as Latin-1."""

    def on_part_begin(self) -> None:
        super().on_part_begin()
        self._charset = "utf-8"

    def on_part_end(self) -> None:
        if self._current_part.file is None:
            try:
                self._current_part.data.decode()
            except UnicodeDecodeError:
                raise MultiPartException(_NOT_UTF8) from None
        super().on_part_end()
