"""Translation catalogues: gettext (PO) and XLIFF 1.2 and 2."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attendo.serve.http.errors import ApiError
from attendo.serve.translation.formats.draft import DecodedText, Segment, decode
from attendo.serve.translation.formats.xml_parts import inner_xml, local_name, parse_xml, set_inner_xml, write_xml


@dataclass(frozen=True)
class PoFile:
    """Entries without a translation are translated and marked as fuzzy, so that a person checks them."""

    decoded: DecodedText
    catalogue: Any  # polib.POFile
    entries: Sequence[Any]

    @property
    def segments(self) -> list[Segment]:
        texts = (text for entry in self.entries for text in _list_texts(entry))
        return [Segment(text, "text") for text in texts]

    def assemble(self, translations: Sequence[str]) -> bytes:
        remaining = iter(translations)
        for entry in self.entries:
            own = [next(remaining) for _ in _list_texts(entry)]
            if entry.msgid_plural:  # the forms of a language are not known: the first is singular, all others plural
                forms = sorted(entry.msgstr_plural) or [0, 1]
                entry.msgstr_plural = {form: own[0] if form == 0 else own[1] for form in forms}
            else:
                entry.msgstr = own[0]
            if "fuzzy" not in entry.flags:
                entry.flags.append("fuzzy")
        return self.decoded.encode(f"{str(self.catalogue).strip()}\n")


def read_po(content: bytes) -> PoFile:
    import polib

    decoded = decode(content, "text")
    # polib opens a file if its argument is the path of one. A path has no line with msgid.
    if "\nmsgid " not in f"\n{decoded.text}":
        raise ApiError("document_damaged", ending="po", detail="no msgid")
    try:
        catalogue = polib.pofile(f"\n{decoded.text}")
    except (OSError, ValueError, IndexError, UnicodeError) as error:
        raise ApiError("document_damaged", ending="po", detail=str(error)[:200]) from None
    entries = [each for each in catalogue if not each.obsolete and not each.translated() and not each.fuzzy]
    return PoFile(decoded, catalogue, entries)


def _list_texts(entry: Any) -> list[str]:
    return [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]


@dataclass(frozen=True)
class Xliff:
    """Every source gets a target. Targets with text, and texts marked as not translatable, stay."""

    tree: Any
    sources: Sequence[Any]

    @property
    def segments(self) -> list[Segment]:
        return [Segment(inner_xml(source), "xml") for source in self.sources]

    def assemble(self, translations: Sequence[str]) -> bytes:
        for source, translation in zip(self.sources, translations, strict=True):
            target = _find_target(source)
            if target is None:
                target, tail = source.makeelement(source.tag.removesuffix("source") + "target"), source.tail
                source.addnext(target)
                source.tail = target.tail = tail
            set_inner_xml(target, translation)
        return write_xml(self.tree)


def read_xliff(content: bytes) -> Xliff:
    tree = parse_xml(content, "xliff")
    sources = [each for each in tree.iter() if local_name(each) == "source" and _is_open(each)]
    return Xliff(tree, sources)


def _is_open(source: Any) -> bool:
    """Return whether a source is one to translate: it has no target with text, and nothing around it says no."""
    if local_name(source.getparent()) not in ("trans-unit", "segment"):  # others are proposals and notes
        return False
    target = _find_target(source)
    if target is not None and "".join(target.itertext()).strip():
        return False
    return all(each.get("translate") != "no" for each in (source, *source.iterancestors()))


def _find_target(source: Any) -> Any:
    return next((each for each in source.itersiblings() if local_name(each) == "target"), None)
