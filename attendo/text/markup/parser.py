"""HTML and XML parser in linear time: tokens, inline and block tags, character references."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

MarkupFormat = Literal["html", "xml"]
# text; opening, closing and self-closing tags; other: comments and the like; declaration: <!DOCTYPE ...>
MarkupTokenType = Literal["text", "open", "close", "alone", "other", "declaration"]
# text; inline tags that open or close; atom: one unit in a sentence; wall: a boundary between sentences
SpanType = Literal["text", "open", "close", "atom", "wall"]


class MarkupToken(NamedTuple):
    """A part of the input, from begin to end. Joined, the tokens are the input. Tags have a name."""

    type: MarkupTokenType
    begin: int
    end: int
    name: str = ""


_NAME = {"html": re.compile(r"[A-Za-z][^\s/<>]*"), "xml": re.compile(r"(?:[^\W\d]|:)[^\s/<>]*")}
_STOP = re.compile(r"[<>]|=\s*[\"']")  # ends a tag, or starts a quoted value, in which > is text
_SUBSET_END = re.compile(r"\]\s*>")  # of a document type with an internal subset
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
# Elements with raw text up to the closing tag.
_RAW_TEXT_END = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "xmp", "iframe")
}


def scan(text: str, markup_format: MarkupFormat) -> list[MarkupToken]:
    """Split the input into tokens. A `<` that starts no tag is text. An unclosed comment extends to the end.

    Nothing is resolved or expanded: a document type is one token, and so is a CDATA section.
    """
    scanner = _Scanner(text, markup_format)
    tokens: list[MarkupToken] = []
    text_start = at = 0
    while (at := text.find("<", at)) >= 0:
        token = scanner.read_token(at)
        if token is None:
            at += 1
            continue
        if text_start < at:
            tokens.append(MarkupToken("text", text_start, at))
        tokens.append(token)
        text_start = at = token.end
    if text_start < len(text):
        tokens.append(MarkupToken("text", text_start, len(text)))
    return tokens


class _Scanner:
    """Reads one token at a time. It caches the tag end for every quoted value, so that scanning stays linear."""

    def __init__(self, text: str, markup_format: MarkupFormat) -> None:
        self._text, self._format = text, markup_format
        self._ends: dict[int, int | None] = {}

    def read_token(self, at: int) -> MarkupToken | None:
        """Return the token that starts with the `<` at this position, or None."""
        text, xml = self._text, self._format == "xml"
        if text.startswith("<!--", at):
            return MarkupToken("other", at, self._find_end("-->", at + (4 if xml else 2)))
        if xml and text.startswith("<![CDATA[", at):
            return MarkupToken("other", at, self._find_end("]]>", at))
        if text.startswith("<!", at):
            return MarkupToken("declaration", at, self._declaration_end(at))
        if text.startswith("<?", at):
            return MarkupToken("other", at, self._find_end("?>" if xml else ">", at))
        return self._read_tag(at)

    def _read_tag(self, at: int) -> MarkupToken | None:
        closing = self._text.startswith("/", at + 1)
        name_match = _NAME[self._format].match(self._text, at + 1 + closing)
        end = self._tag_end(name_match.end()) if name_match else None
        if name_match is None or end is None:
            return None
        name = name_match[0] if self._format == "xml" else name_match[0].lower()
        if closing:
            return MarkupToken("close", at, end, name)
        if self._format == "html" and name in _RAW_TEXT_END:
            end_match = _RAW_TEXT_END[name].search(self._text, end)
            return MarkupToken(
                "alone", at, self._find_end(">", end_match.end()) if end_match else len(self._text), name
            )
        is_void = name in _VOID if self._format == "html" else False
        return MarkupToken("alone" if is_void or self._closes_itself(name_match.end(), end) else "open", at, end, name)

    def _tag_end(self, at: int) -> int | None:
        """Return the position after the `>` of a tag. None if the input ends or another `<` precedes it."""
        quote_starts: list[int] = []
        end = None
        while stop := _STOP.search(self._text, at):
            if stop[0] == ">":
                end = stop.end()
            if stop[0] in "<>":
                break
            if stop.start() in self._ends:
                end = self._ends[stop.start()]
                break
            quote_starts.append(stop.start())
            quote_end = self._text.find(stop[0][-1], stop.end())
            if quote_end < 0:
                break
            at = quote_end + 1
        for each in quote_starts:
            self._ends[each] = end
        return end

    def _closes_itself(self, name_end: int, end: int) -> bool:
        """Whether a tag ends in `/>`. In HTML the slash of `<a href=b/>` is part of the URL."""
        if not self._text.endswith("/>", name_end, end):
            return False
        before = self._text[end - 3]
        return self._format == "xml" or end - 2 == name_end or before.isspace() or before in "\"'"

    def _declaration_end(self, at: int) -> int:
        end = self._find_end(">", at)
        subset_start = self._text.find("[", at, end)
        if self._format == "html" or subset_start < 0:
            return end
        subset = _SUBSET_END.search(self._text, subset_start)
        return subset.end() if subset else len(self._text)

    def _find_end(self, sign: str, at: int) -> int:
        found = self._text.find(sign, at)
        return len(self._text) if found < 0 else found + len(sign)


class TextRun(NamedTuple):
    """A part of the input and its decoded text. None for a placeholder, which is kept unchanged."""

    begin: int
    end: int
    text: str | None


# Every repetition is bounded or ends at the start of the next one, so that matching stays linear.
PLACEHOLDER = r"""
    \{\{ [^{}]* \}\}                                 # {{ name }}
    | [%$]? \{ [\w.]{0,64} \}                        # {0} {name} ${name} %{name}
    | (?<![%\d]) % (?: \(\w{1,64}\) | \d{1,2}\$ )?   # %s %d %(name)s %1$s %.2f, and not 100%
      [-+\#0]{0,4} \d{0,4} (?: \.\d{1,4} )? (?: hh? | ll? | [jztLq] )?
      (?: [sd] | [iuoxXfFeEgGcCp@](?![A-Za-z]) )
"""
_SPECIAL = re.compile(
    rf"(?P<reference> & (?: \#\d{{1,7}} | \#[xX][0-9a-fA-F]{{1,6}} | [A-Za-z]\w{{0,39}} ) ;? ) | {PLACEHOLDER}",
    re.VERBOSE,
)
_XML_REFERENCES = frozenset(("&amp;", "&lt;", "&gt;", "&quot;", "&apos;"))
_NON_TEXT_CATEGORIES = ("Cc", "Cs", "Co", "Cn")  # controls, surrogates, private use and unassigned
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")  # not allowed in XML, even escaped


def split_text_runs(text: str, begin: int, end: int, markup_format: MarkupFormat) -> Iterator[TextRun]:
    """Yield the runs of a range without tags, without gaps."""
    at = begin
    for found in _SPECIAL.finditer(text, begin, end):
        if at < found.start():
            yield TextRun(at, found.start(), text[at : found.start()])
        reference = found["reference"]
        yield TextRun(found.start(), found.end(), reference and _decode_reference(reference, markup_format))
        at = found.end()
    if at < end:
        yield TextRun(at, end, text[at:end])


def remove_unwritable(text: str) -> str:
    """Remove characters that a document cannot contain, and surrounding white space."""
    return _UNWRITABLE.sub("", text).strip()


def escape_text(text: str) -> str:
    """Escape a text for use between tags."""
    return html.escape(text, quote=False)


def _decode_reference(reference: str, markup_format: MarkupFormat) -> str | None:
    """Decode a character reference. None if only a document type defines it. Without `;` it may be plain text."""
    if markup_format == "xml" and not (
        reference in _XML_REFERENCES or (reference[1] == "#" and reference.endswith(";"))
    ):
        return None if reference.endswith(";") else reference
    decoded = html.unescape(reference)
    if decoded == reference:
        return None if reference.endswith(";") else reference
    is_text = decoded and all(
        each.isspace() or unicodedata.category(each) not in _NON_TEXT_CATEGORIES for each in decoded
    )
    return decoded if is_text else None


class MarkupSpan(NamedTuple):
    """A part of the input, from begin to end. The two tags of an element have the same number."""

    type: SpanType
    begin: int
    end: int
    element: int = -1


class TagRules(NamedTuple):
    """Element names that split sentences, and names that never do.

    With `outline_detection` other elements are classified by their HTML name, or in XML by their context.
    """

    splitting_tags: frozenset[str] = frozenset()
    non_splitting_tags: frozenset[str] = frozenset()
    outline_detection: bool = True

    def lower(self) -> "TagRules":
        """Return the rules in lower case, for HTML, whose names are case-insensitive."""
        dividing, joining = (
            frozenset(map(str.lower, names)) for names in (self.splitting_tags, self.non_splitting_tags)
        )
        return TagRules(dividing, joining, self.outline_detection)


_DEFAULT_RULES = TagRules()
_SPLITTING_NAMES = """
address article aside base blockquote body br canvas caption center col colgroup dd details dialog dir div dl dt
fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe legend li
link main menu meta nav noframes noscript object ol optgroup option p param pre script section select source style
summary table tbody td template textarea tfoot th thead title tr track ul xmp
"""
_SPLITTING_TAGS = frozenset(_SPLITTING_NAMES.split())
_UNTRANSLATED_TAGS = frozenset(("code", "iframe", "kbd", "math", "samp", "script", "style", "svg", "var", "xmp"))
_PREFORMATTED_TAGS = frozenset(("pre", "textarea"))  # line breaks are significant
_ATTRIBUTE = re.compile(r"([^\s=/<>\"']+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]*))?")
_LINE_BREAK = re.compile(r"\r\n?|\n")


def parse_spans(
    text: str, markup_format: MarkupFormat, ignored_tags: Collection[str], rules: TagRules = _DEFAULT_RULES
) -> list[MarkupSpan]:
    """Parse the input into spans in order, without gaps. Inline tags of a sentence are properly nested.

    In HTML the name of an element determines whether it splits sentences. In XML an element splits sentences unless its
    parent contains text. `rules` take precedence. An element that is not translated is one atom or wall, and so is a
    tag without a partner.
    """
    tokens = scan(text, markup_format)
    tree = _TagTree(text, tokens, markup_format, rules.lower() if markup_format == "html" else rules)
    names = (
        {name.lower() for name in ignored_tags} | _UNTRANSLATED_TAGS if markup_format == "html" else set(ignored_tags)
    )
    parts: list[MarkupSpan] = []
    index = by_lines = 0
    while index < len(tokens):
        token, partner = tokens[index], tree.partners[index]
        if token.type == "open" and partner >= 0 and (token.name in names or _is_untranslated(text, token)):
            parts.append(
                MarkupSpan("wall" if tree.splits_sentence(index) else "atom", token.begin, tokens[partner].end)
            )
            index = partner
        elif token.type == "text":
            parts += _split_lines(text, token) if by_lines else [MarkupSpan("text", token.begin, token.end)]
        else:
            by_lines += _step_preformatted_depth(token, partner) if markup_format == "html" else 0
            parts.append(_classify_tag(tree, index))
        index += 1
    return _remove_crossings(parts)


class _TagTree:
    """The partner of each tag, or -1, and the parents that directly contain text."""

    def __init__(self, text: str, tokens: Sequence[MarkupToken], markup_format: MarkupFormat, rules: TagRules) -> None:
        self.tokens, self._format, self._rules = tokens, markup_format, rules
        self.partners = [-1] * len(tokens)
        self._parents = [-1] * len(tokens)
        self._parents_with_text: set[int] = set()
        open_indices: list[int] = []
        names: Counter[str] = Counter()  # of open elements, to skip the search for a closing tag without a match
        for index, token in enumerate(tokens):
            if token.type == "close" and names[token.name]:
                self._close(index, open_indices, names)
            self._parents[index] = open_indices[-1] if open_indices else -1
            if token.type == "open":
                open_indices.append(index)
                names[token.name] += 1
            elif token.type == "text" and not text[token.begin : token.end].isspace():
                self._parents_with_text.add(self._parents[index])

    def splits_sentence(self, index: int) -> bool:
        token = self.tokens[index]
        if token.type in ("declaration", "other"):
            return token.type == "declaration"
        if (
            token.name in self._rules.splitting_tags
            or token.name in self._rules.non_splitting_tags
            or not self._rules.outline_detection
        ):
            return token.name in self._rules.splitting_tags
        if self._format == "html":
            return token.name in _SPLITTING_TAGS
        return self._parents[index] not in self._parents_with_text

    def _close(self, index: int, opened: list[int], names: Counter[str]) -> None:
        """Match a closing tag. Elements opened after its partner and still open have no partner."""
        name = self.tokens[index].name
        while True:
            last = opened.pop()
            names[self.tokens[last].name] -= 1
            if self.tokens[last].name == name:
                self.partners[last], self.partners[index] = index, last
                return


def _classify_tag(tree: _TagTree, index: int) -> MarkupSpan:
    token, partner = tree.tokens[index], tree.partners[index]
    if tree.splits_sentence(index):
        return MarkupSpan("wall", token.begin, token.end)
    if partner < 0:
        return MarkupSpan("atom", token.begin, token.end)
    return MarkupSpan("open" if token.type == "open" else "close", token.begin, token.end, min(index, partner))


def _step_preformatted_depth(token: MarkupToken, partner: int) -> int:
    """Return 1 on entering a preformatted element, -1 on leaving it, else 0."""
    if token.name not in _PREFORMATTED_TAGS or partner < 0:
        return 0
    return 1 if token.type == "open" else -1


def _split_lines(text: str, token: MarkupToken) -> Iterator[MarkupSpan]:
    at = token.begin
    for found in _LINE_BREAK.finditer(text, token.begin, token.end):
        yield MarkupSpan("text", at, found.start())
        yield MarkupSpan("wall", found.start(), found.end())
        at = found.end()
    yield MarkupSpan("text", at, token.end)


def _is_untranslated(text: str, token: MarkupToken) -> bool:
    tag = text[token.begin + 1 + len(token.name) : token.end - 1]
    if "translate" not in tag.lower():
        return False
    values = {name.lower(): value.strip("\"'").lower() for name, value in _ATTRIBUTE.findall(tag)}
    return values.get("translate") == "no"


def _remove_crossings(spans: Sequence[MarkupSpan]) -> list[MarkupSpan]:
    """Turn the two tags of an element that contains a wall into walls.

    The other elements stay properly nested: an element around both tags contains the same wall, and an element around
    only one of them would not be nested properly.
    """
    num_walls = 0
    walls_before: dict[int, int] = {}
    crossing: set[int] = set()
    for part in spans:
        num_walls += part.type == "wall"
        if part.type == "open":
            walls_before[part.element] = num_walls
        elif part.type == "close" and walls_before[part.element] != num_walls:
            crossing.add(part.element)
    return [part._replace(type="wall", element=-1) if part.element in crossing else part for part in spans]
