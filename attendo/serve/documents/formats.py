"""Files as text and back: which of them are read, how they are encoded, and how their translations are."""

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from attendo.serve.errors import Refusal

Kind = Literal["text", "html", "xml"]
KINDS: dict[str, Kind] = {"txt": "text", "html": "html", "htm": "html", "xml": "xml"}

_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
# What a document may say of itself; with other codecs of Python bytes can become anything.
_ENCODINGS = frozenset(
    (
        *("utf-8", "us-ascii", "iso-8859-1", "iso-8859-2", "iso-8859-15", "windows-1250", "windows-1251"),
        *("windows-1252", "koi8-r", "gb18030", "gbk", "gb2312", "big5", "shift_jis", "euc-jp", "euc-kr"),
    )
)
_HEAD_BYTES = 1024  # in which a document says how it is encoded
_SAID = {
    "xml": re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]{1,40})["']""", re.ASCII),
    "html": re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE),
}


@dataclass(frozen=True)
class Draft:
    """What is read of a file, and what is needed to write it again."""

    text: str
    kind: Kind
    mark: bytes  # that the file begins with, where it tells how the rest is encoded
    encoding: str

    def written(self, text: str) -> bytes:
        """Another text, encoded as this one was. What the encoding does not have is written by its number."""
        return self.mark + text.encode(self.encoding, "strict" if self.kind == "text" else "xmlcharrefreplace")


def kind_of(name: str) -> Kind:
    """By the ending of a file's name. Whatever is packed is thus refused before anything unpacks it."""
    ending = PurePath(name).suffix[1:].lower()
    if ending not in KINDS:
        raise Refusal("unknown_format", ending=ending[:20] or "–", known=", ".join(KINDS))
    return KINDS[ending]


def read(content: bytes, kind: Kind) -> Draft:
    mark = next((each for each in _MARKS if content.startswith(each)), b"")
    encoding = _MARKS[mark] if mark else _said(content[:_HEAD_BYTES], kind)
    if encoding not in _ENCODINGS and not mark:
        raise Refusal("unknown_encoding", encoding=encoding)
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        raise Refusal("not_encoded_so", encoding=encoding) from None
    if "\0" in text:  # of no text; of zip, and of other files under a false name
        raise Refusal("not_encoded_so", encoding=encoding)
    return Draft(text, kind, mark, encoding)


def _said(head: bytes, kind: Kind) -> str:
    found = _SAID[kind].search(head) if kind != "text" else None
    return found[1].decode("ascii").lower() if found else "utf-8"
