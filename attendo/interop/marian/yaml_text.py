"""Scalars and keys of the YAML that Marian and its tools write: plain, in single quotes or in double quotes.

It is used instead of a YAML library, because a library turns the tokens `1`, `yes`, `null` and `~` into other types,
and rejects control characters, which vocabularies contain.
"""

import re

_ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
    **{sign: sign for sign in '\t "/\\'},
}
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_ITEM = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\'|[^,\[\]{}"\']*)\s*')


class YamlTextError(Exception):
    """The text is not a scalar of this form."""


def read_scalar(text: str) -> str:
    """Return the value of a scalar that ends with the text, apart from a comment."""
    if not text.startswith(('"', "'")):
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
    value, rest = _read_quoted(text)
    if rest.strip() and not rest.strip().startswith("#"):
        raise YamlTextError
    return value


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of `[a, "b"]`."""
    inner = re.split(r"\s#", text, maxsplit=1)[0].strip()
    if not inner.startswith("[") or not inner.endswith("]"):
        raise YamlTextError
    inner, items = inner[1:-1], list[str]()
    position = 0
    while inner.strip():
        found = _ITEM.match(inner, position)
        if found is None or not found[1]:
            raise YamlTextError
        items.append(read_scalar(found[1].strip()))
        position = found.end()
        if position == len(inner):
            break
        if inner[position] != ",":
            raise YamlTextError
        position += 1
    return tuple(items)


def read_key(text: str) -> tuple[str, str]:
    """Return the key of `key: value` and the text of the value. A plain key may contain colons."""
    if text.startswith(('"', "'")):
        key, rest = _read_quoted(text)
        if not rest.lstrip().startswith(":"):
            raise YamlTextError
        return key, rest.lstrip()[1:].strip()
    key, colon, value = text.rpartition(":")
    if not colon or (value and not value[0].isspace()):
        raise YamlTextError
    return key.rstrip(" "), value.strip()


def _read_quoted(text: str) -> tuple[str, str]:
    """Return the value of a quoted scalar and the text behind it."""
    found = (_DOUBLE if text[0] == '"' else _SINGLE).match(text)
    if found is None:
        raise YamlTextError
    inner = found[1]
    value = _ESCAPE.sub(_unescape, inner) if text[0] == '"' else inner.replace("''", "'")
    return value, text[found.end() :]


def _unescape(escape: re.Match[str]) -> str:
    if escape[4] is not None:
        if escape[4] not in _ESCAPES:
            raise YamlTextError
        return _ESCAPES[escape[4]]
    point = int(escape[1] or escape[2] or escape[3], 16)
    if point > 0x10FFFF or 0xD800 <= point < 0xE000:
        raise YamlTextError
    return chr(point)


def write_scalar(text: str) -> str:
    """Return a text in double quotes, as yaml-cpp writes it: Marian, CTranslate2 and attendo read it alike."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    point = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if character in "\n\t\r\b":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b"}[character]
    if point < 0x20 or 0x7F <= point <= 0xA0:
        return f"\\x{point:02X}"
    return f"\\u{point:04X}" if point in (0xFEFF, 0x2028, 0x2029) else character
