"""What all document formats share: the segments of a file, and encodings."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from attendo.serve.http.errors import ApiError
from attendo.serve.translation.segmenter import TextFormat

_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
# Encodings that a document may declare. Python's other codecs can turn bytes into arbitrary text.
_ENCODINGS = frozenset(
    (
        *("utf-8", "us-ascii", "iso-8859-1", "iso-8859-2", "iso-8859-15", "windows-1250", "windows-1251"),
        *("windows-1252", "koi8-r", "gb18030", "gbk", "gb2312", "big5", "shift_jis", "euc-jp", "euc-kr"),
    )
)
_HEAD_BYTES = 1024  # searched for an encoding declaration
_ENCODING_DECLARATIONS = {
    "xml": re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]{1,40})["']""", re.ASCII),
    "html": re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE),
}


class Segment(NamedTuple):
    """A text of a document, possibly with tags. Its translation has the same format."""

    text: str
    text_format: TextFormat


class Draft(Protocol):
    """A document that was read. `assemble` writes it with one translation for each segment."""

    @property
    def segments(self) -> Sequence[Segment]: ...

    def assemble(self, translations: Sequence[str]) -> bytes: ...


@dataclass(frozen=True)
class DecodedText:
    """Text of a file, and how to encode another text like it."""

    text: str
    text_format: TextFormat
    byte_order_mark: bytes  # empty if the file has none
    encoding: str

    def encode(self, text: str) -> bytes:
        """Encode a text like this file. In markup, unencodable characters become character references."""
        errors = "strict" if self.text_format == "text" else "xmlcharrefreplace"
        return self.byte_order_mark + text.encode(self.encoding, errors)


def decode(content: bytes, text_format: TextFormat) -> DecodedText:
    """Decode a text file by its byte order mark, its declaration or as UTF-8."""
    mark = next((each for each in _BYTE_ORDER_MARKS if content.startswith(each)), b"")
    encoding = _BYTE_ORDER_MARKS[mark] if mark else _find_declared_encoding(content[:_HEAD_BYTES], text_format)
    if encoding not in _ENCODINGS and not mark:
        raise ApiError("unknown_encoding", encoding=encoding)
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        raise ApiError("not_encoded_so", encoding=encoding) from None
    if "\0" in text:  # a binary file with a wrong ending
        raise ApiError("not_encoded_so", encoding=encoding)
    return DecodedText(text, text_format, mark, encoding)


def _find_declared_encoding(head: bytes, text_format: TextFormat) -> str:
    found = _ENCODING_DECLARATIONS[text_format].search(head) if text_format != "text" else None
    return found[1].decode("ascii").lower() if found else "utf-8"
