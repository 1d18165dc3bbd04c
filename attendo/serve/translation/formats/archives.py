"""Zip archives of XML: Word, PowerPoint, Excel, OpenDocument and EPUB. Nothing is unpacked to disk."""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from attendo.serve.http.errors import ApiError
from attendo.serve.translation.formats.draft import Draft, Segment
from attendo.serve.translation.formats.plain import read_html
from attendo.serve.translation.formats.runs import Paragraph, RunTags, find_paragraphs
from attendo.serve.translation.formats.xml_parts import inner_xml, local_name, parse_xml, set_inner_xml, write_xml

MAX_PARTS = 5_000  # files in an archive
MAX_UNPACKED_BYTES = 64 * 1024 * 1024  # of all of them
MAX_PART_BYTES = 16 * 1024 * 1024  # of one that is translated
MAX_EXPANSION = 200  # times the size of the file; XML of real documents is 5 to 50 times as large as packed

_WORD = RunTags("p", "t", "r", "rPr", breaks=("br", "tab", "cr", "fldChar", "instrText", "drawing", "pict", "object"))
_SLIDES = RunTags("p", "t", "r", "rPr", breaks=("br", "fld"))
_CELLS = RunTags("si", "t", "r", "rPr", breaks=("rPh",))
_INLINE_CELLS = RunTags("is", "t", "r", "rPr", breaks=("rPh",))


class PartReader(NamedTuple):
    """Which parts of an archive are translated, and how each is read."""

    names: re.Pattern[str]
    read: Callable[[bytes, str], Draft]


@dataclass(frozen=True)
class Archive:
    """An archive with the parts that are translated. All other parts are copied."""

    content: bytes
    drafts: Mapping[str, Draft]  # by the name of the part

    @property
    def segments(self) -> list[Segment]:
        return [segment for draft in self.drafts.values() for segment in draft.segments]

    def assemble(self, translations: Sequence[str]) -> bytes:
        remaining, written, result = iter(translations), dict[str, bytes](), BytesIO()
        for name, draft in self.drafts.items():
            written[name] = draft.assemble([next(remaining) for _ in draft.segments])
        with zipfile.ZipFile(BytesIO(self.content)) as old, zipfile.ZipFile(result, "w") as new:
            for entry in old.infolist():  # in the same order: EPUB and OpenDocument begin with `mimetype`, stored
                part = written.get(entry.filename)
                new.writestr(entry, old.read(entry) if part is None else part)
        return result.getvalue()


def read_archive(content: bytes, ending: str) -> Archive:
    """Read an archive. Raise `ApiError` if it is damaged, encrypted, too large unpacked, or has no text part."""
    reader = _READERS[ending]
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            _check_sizes(archive, len(content), ending)
            if archive.testzip() is not None:
                raise zipfile.BadZipFile("a checksum is wrong")
            names = sorted(name for name in archive.namelist() if reader.names.fullmatch(name))
            drafts = {name: reader.read(_read_part(archive, name, ending), ending) for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ApiError("document_damaged", ending=ending, detail=str(error)[:200]) from None
    if not drafts:
        raise ApiError("document_damaged", ending=ending, detail="the archive has no part with text")
    return Archive(content, drafts)


def _check_sizes(archive: zipfile.ZipFile, packed: int, ending: str) -> None:
    """The sizes are those in the directory. zipfile never unpacks more than these."""
    entries = archive.infolist()
    if len(entries) > MAX_PARTS or len({each.filename for each in entries}) < len(entries):
        raise ApiError("document_damaged", ending=ending, detail=f"more than {MAX_PARTS} parts, or one of them twice")
    if any(_leaves_folder(each.filename) for each in entries):  # for programs that unpack the result
        raise ApiError("document_damaged", ending=ending, detail="the name of a part leads out of the archive")
    if any(each.flag_bits & 0x1 for each in entries):
        raise ApiError("document_damaged", ending=ending, detail="it is encrypted")
    most = min(MAX_UNPACKED_BYTES, MAX_EXPANSION * packed)
    if (size := sum(each.file_size for each in entries)) > most:
        raise ApiError("document_too_large_unpacked", size=size, most=most)


def _leaves_folder(name: str) -> bool:
    name = name.replace("\\", "/")
    return name.startswith("/") or ".." in name.split("/") or name[1:2] == ":"


def _read_part(archive: zipfile.ZipFile, name: str, ending: str) -> bytes:
    with archive.open(name) as part:
        content = part.read(MAX_PART_BYTES + 1)
    if len(content) > MAX_PART_BYTES:
        raise ApiError("document_too_large_unpacked", size=len(content), most=MAX_PART_BYTES)
    return content


@dataclass(frozen=True)
class RunPart:
    """A part whose paragraphs consist of runs: Word, PowerPoint, Excel."""

    tree: Any
    paragraphs: Sequence[Paragraph]

    @property
    def segments(self) -> list[Segment]:
        return [each.segment for each in self.paragraphs]

    def assemble(self, translations: Sequence[str]) -> bytes:
        for paragraph, translation in zip(self.paragraphs, translations, strict=True):
            paragraph.write(translation)
        return write_xml(self.tree)


def _read_runs(*tags: RunTags) -> Callable[[bytes, str], RunPart]:
    def read(content: bytes, ending: str) -> RunPart:
        tree = parse_xml(content, ending)
        return RunPart(tree, [paragraph for each in tags for paragraph in find_paragraphs(tree, each)])

    return read


@dataclass(frozen=True)
class MixedPart:
    """A part whose paragraphs mix text and elements: OpenDocument."""

    tree: Any
    paragraphs: Sequence[Any]

    @property
    def segments(self) -> list[Segment]:
        return [Segment(inner_xml(each), "xml") for each in self.paragraphs]

    def assemble(self, translations: Sequence[str]) -> bytes:
        for paragraph, translation in zip(self.paragraphs, translations, strict=True):
            set_inner_xml(paragraph, translation)
        return write_xml(self.tree)


def _read_mixed(content: bytes, ending: str) -> MixedPart:
    tree = parse_xml(content, ending)
    return MixedPart(tree, [each for each in tree.iter() if _is_paragraph(each) and not any(_list_inner(each))])


def _list_inner(element: Any) -> Iterator[bool]:
    """A paragraph around another one, such as that of a text box, is not translated: the inner one is."""
    return (_is_paragraph(each) for each in element.iterdescendants())


def _is_paragraph(element: Any) -> bool:
    return local_name(element) in ("p", "h")


_READERS = {
    "docx": PartReader(re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml"), _read_runs(_WORD)),
    "pptx": PartReader(re.compile(r"ppt/(slides|notesSlides)/[^/]+\.xml"), _read_runs(_SLIDES)),
    "xlsx": PartReader(re.compile(r"xl/(sharedStrings|worksheets/[^/]+)\.xml"), _read_runs(_CELLS, _INLINE_CELLS)),
    "odt": PartReader(re.compile(r"(content|styles)\.xml"), _read_mixed),
    "odp": PartReader(re.compile(r"(content|styles)\.xml"), _read_mixed),
    "epub": PartReader(re.compile(r".+\.x?html?"), lambda content, _: read_html(content)),
}
