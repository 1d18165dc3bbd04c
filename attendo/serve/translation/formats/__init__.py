"""Document formats: each reads a file into segments to translate and writes the file with their translations."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import PurePath

from attendo.serve.http.errors import ApiError
from attendo.serve.translation.formats.draft import Draft, Segment
from attendo.serve.translation.formats.plain import read_html, read_subtitles, read_text, read_xml

__all__ = ["Draft", "Segment", "find_format", "list_formats", "read_document"]

Reader = Callable[[bytes], Draft]
_ALIASES = {"htm": "html", "xlf": "xliff"}
_PACKAGES = {"po": "polib", **dict.fromkeys(("xliff", "docx", "pptx", "xlsx", "odt", "odp", "epub"), "lxml")}
_NAMES = ("txt", "html", "htm", "xml", "srt", "po", "xliff", "xlf", "docx", "pptx", "xlsx", "odt", "odp", "epub")


def list_formats() -> list[str]:
    """Return the endings of all formats whose package is installed."""
    return [name for name in _NAMES if (package := _find_package(name)) is None or find_spec(package) is not None]


def find_format(name: str) -> str:
    """Return the format of a file by its ending, or raise `ApiError`."""
    ending = PurePath(name).suffix[1:].lower()
    if ending not in _NAMES:
        raise ApiError("unknown_format", ending=ending[:20] or "–", known=", ".join(list_formats()))
    if ending not in list_formats():
        raise ApiError("format_needs_package", ending=ending, package=_find_package(ending))
    return _ALIASES.get(ending, ending)


def read_document(content: bytes, document_format: str) -> Draft:
    """Read a file of a format of `find_format`. Raise `ApiError` if it is damaged, too large unpacked or unsafe."""
    return _find_reader(document_format)(content)


def _find_package(ending: str) -> str | None:
    return _PACKAGES.get(_ALIASES.get(ending, ending))


def _find_reader(document_format: str) -> Reader:
    """Return the reader. Those of optional packages are imported only now."""
    plain: dict[str, Reader] = {"txt": read_text, "html": read_html, "xml": read_xml, "srt": read_subtitles}
    if document_format in plain:
        return plain[document_format]
    if document_format in ("po", "xliff"):
        from attendo.serve.translation.formats import catalogues

        return catalogues.read_po if document_format == "po" else catalogues.read_xliff
    from attendo.serve.translation.formats.archives import read_archive

    return lambda content: read_archive(content, document_format)
