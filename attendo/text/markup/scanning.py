"""HTML or XML as a row of tokens, in time proportional to its length, whatever stands in it."""

import re
from typing import Literal, NamedTuple

Kind = Literal["html", "xml"]
# text; a tag that opens, closes or stands alone; other: comments and the like; declaration: <!DOCTYPE ...>
TokenKind = Literal["text", "open", "close", "alone", "other", "declaration"]


class Token(NamedTuple):
    """A part of the input, from begin to end. Joined, the tokens are the input. Tags have a name."""

    kind: TokenKind
    begin: int
    end: int
    name: str = ""


_NAME = {"html": re.compile(r"[A-Za-z][^\s/<>]*"), "xml": re.compile(r"(?:[^\W\d]|:)[^\s/<>]*")}
_STOP = re.compile(r"[<>]|=\s*[\"']")  # what ends a tag, or begins a value in which > is a letter
_SUBSET_END = re.compile(r"\]\s*>")  # of a document type with declarations of its own
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
# What is in these is not HTML, up to the closing tag.
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "xmp", "iframe")}


def scan(text: str, kind: Kind) -> list[Token]:
    """A `<` that begins no tag is text. What begins as a comment and does not end is one up to the end of the input.

    Nothing is looked up or expanded: a document type is one token, and so is a section of CDATA.
    """
    scanner = _Scanner(text, kind)
    tokens: list[Token] = []
    behind = at = 0
    while (at := text.find("<", at)) >= 0:
        token = scanner.token(at)
        if token is None:
            at += 1
            continue
        if behind < at:
            tokens.append(Token("text", behind, at))
        tokens.append(token)
        behind = at = token.end
    if behind < len(text):
        tokens.append(Token("text", behind, len(text)))
    return tokens


class _Scanner:
    """Knows of every value that was begun where the tag around it ends, so that no part is read again and again."""

    def __init__(self, text: str, kind: Kind) -> None:
        self._text, self._kind = text, kind
        self._ends: dict[int, int | None] = {}

    def token(self, at: int) -> Token | None:
        """What begins with the `<` at this place."""
        text, xml = self._text, self._kind == "xml"
        if text.startswith("<!--", at):
            return Token("other", at, self._behind("-->", at + (4 if xml else 2)))
        if xml and text.startswith("<![CDATA[", at):
            return Token("other", at, self._behind("]]>", at))
        if text.startswith("<!", at):
            return Token("declaration", at, self._declaration_end(at))
        if text.startswith("<?", at):
            return Token("other", at, self._behind("?>" if xml else ">", at))
        return self._tag(at)

    def _tag(self, at: int) -> Token | None:
        closing = self._text.startswith("/", at + 1)
        named = _NAME[self._kind].match(self._text, at + 1 + closing)
        end = self._tag_end(named.end()) if named else None
        if named is None or end is None:
            return None
        name = named[0] if self._kind == "xml" else named[0].lower()
        if closing:
            return Token("close", at, end, name)
        if self._kind == "html" and name in _RAW:
            closed = _RAW[name].search(self._text, end)
            return Token("alone", at, self._behind(">", closed.end()) if closed else len(self._text), name)
        alone = name in _VOID if self._kind == "html" else False
        return Token("alone" if alone or self._closes_itself(named.end(), end) else "open", at, end, name)

    def _tag_end(self, at: int) -> int | None:
        """Behind its `>`; None where the input ends or another `<` comes first."""
        passed: list[int] = []
        end = None
        while stop := _STOP.search(self._text, at):
            if stop[0] == ">":
                end = stop.end()
            if stop[0] in "<>":
                break
            if stop.start() in self._ends:
                end = self._ends[stop.start()]
                break
            passed.append(stop.start())
            closed = self._text.find(stop[0][-1], stop.end())
            if closed < 0:
                break
            at = closed + 1
        for each in passed:
            self._ends[each] = end
        return end

    def _closes_itself(self, name_end: int, end: int) -> bool:
        """`<b/>` and `<x id="1"/>` do; the slash of `<a href=b/>` is part of the address, unless this is XML."""
        if not self._text.endswith("/>", name_end, end):
            return False
        before = self._text[end - 3]
        return self._kind == "xml" or end - 2 == name_end or before.isspace() or before in "\"'"

    def _declaration_end(self, at: int) -> int:
        end = self._behind(">", at)
        begun = self._text.find("[", at, end)
        if self._kind == "html" or begun < 0:
            return end
        subset = _SUBSET_END.search(self._text, begun)
        return subset.end() if subset else len(self._text)

    def _behind(self, sign: str, at: int) -> int:
        found = self._text.find(sign, at)
        return len(self._text) if found < 0 else found + len(sign)
