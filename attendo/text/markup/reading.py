"""The text between tags: characters that are written as references, and placeholders that no model should see."""

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from attendo.text.markup.scanning import Kind


class Piece(NamedTuple):
    """A part of the input and what it says; None for a placeholder, which is kept as it is."""

    begin: int
    end: int
    text: str | None


# Every repetition has a limit or ends at a sign that begins the next, so that reading stays linear.
_SPECIAL = re.compile(
    r"""
    (?P<reference> & (?: \#\d{1,7} | \#[xX][0-9a-fA-F]{1,6} | [A-Za-z]\w{0,39} ) ;? )
    | \{\{ [^{}]* \}\}                               # {{ name }}
    | [%$]? \{ [\w.]{0,64} \}                        # {0} {name} ${name} %{name}
    | (?<![%\d]) % (?: \(\w{1,64}\) | \d{1,2}\$ )?   # %s %d %(name)s %1$s %.2f, and not 100%
      [-+\#0]{0,4} \d{0,4} (?: \.\d{1,4} )? (?: hh? | ll? | [jztLq] )?
      (?: [sd] | [iuoxXfFeEgGcCp@](?![A-Za-z]) )
    """,
    re.VERBOSE,
)
_OF_XML = frozenset(("&amp;", "&lt;", "&gt;", "&quot;", "&apos;"))
_NO_TEXT = ("Cc", "Cs", "Co", "Cn")  # controls, halves of pairs, and what has no meaning of its own
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")  # in XML, whatever one does


def read(text: str, begin: int, end: int, kind: Kind) -> Iterator[Piece]:
    """The pieces of a part of the input that has no tags, without a gap."""
    at = begin
    for found in _SPECIAL.finditer(text, begin, end):
        if at < found.start():
            yield Piece(at, found.start(), text[at : found.start()])
        reference = found["reference"]
        yield Piece(found.start(), found.end(), reference and _character(reference, kind))
        at = found.end()
    if at < end:
        yield Piece(at, end, text[at:end])


def writable(text: str) -> str:
    """Without the characters that no document can hold, and the white space around it."""
    return _UNWRITABLE.sub("", text).strip()


def escaped(text: str) -> str:
    """As it may stand between tags."""
    return html.escape(text, quote=False)


def _character(reference: str, kind: Kind) -> str | None:
    """None for what only a document type could explain. Without its semicolon it may be no reference but just text."""
    if kind == "xml" and not (reference in _OF_XML or (reference[1] == "#" and reference.endswith(";"))):
        return None if reference.endswith(";") else reference
    meant = html.unescape(reference)
    if meant == reference:
        return None if reference.endswith(";") else reference
    is_text = meant and all(each.isspace() or unicodedata.category(each) not in _NO_TEXT for each in meant)
    return meant if is_text else None
