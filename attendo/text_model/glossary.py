"""Glossaries: terms with their translations, read from a file, and found in a source text.

A file is UTF-8 with one term per line: the source term, a tab, and the target term. Two more columns are optional:
other forms of the source term, and other forms of the target term, separated by `|`. The source term is found in any
of its forms, and any form of the target term may be the translation.
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from attendo.errors import DataError, MessagePart, UsageError, shorten
from attendo.text.scripts import unspaced_class
from attendo.text_model.constraints import is_inside_word

MAX_FILE_BYTES = 10 * 1024 * 1024  # of a glossary, as DeepL's
MAX_TERM_BYTES = 1024  # of a term in UTF-8, as DeepL's
MAX_TERMS = 100_000
MAX_FORMS = 100  # other forms of one term
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SPACE_IN_UNSPACED = re.compile(f"(?<=[{unspaced_class()}]) | (?=[{unspaced_class()}])")
Span = tuple[int, int]  # the first character and the one after the last


class _HasSpan(Protocol):
    @property
    def span(self) -> Span: ...


Match = TypeVar("Match", bound=_HasSpan)


@dataclass(frozen=True)
class Term:
    """A source term and its translation, with their other forms."""

    source: str
    target: str
    source_forms: tuple[str, ...] = ()
    target_forms: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The allowed translations: the target and its forms, as given and with a capital first letter."""
        forms = dict.fromkeys((self.target, *self.target_forms))
        return tuple(dict.fromkeys((*forms, *(form[0].upper() + form[1:] for form in forms))))


@dataclass(frozen=True)
class TermMatch:
    """A term that a text contains in some form."""

    term: Term
    begin: int
    end: int

    @property
    def span(self) -> Span:
        return self.begin, self.end


class Glossary:
    """Terms in the order of their file. A source term and its forms occur once in a glossary."""

    def __init__(self, terms: Iterable[Term | tuple[str, str]]) -> None:
        made = [each if isinstance(each, Term) else Term(*each) for each in terms]
        self.terms = _check_terms((MessagePart("glossary_entry", number=n), term) for n, term in enumerate(made, 1))

    @staticmethod
    def read(path: str | Path) -> "Glossary":
        """Read a file of tab-separated values."""
        path = Path(path)
        try:
            if path.exists() and not path.is_file():
                raise DataError("glossary_unreadable", path=path, reason="not a regular file")
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise DataError("glossary_unreadable", path=path, reason=error.strerror or error) from None
        return Glossary.parse(content, str(path))

    @staticmethod
    def parse(content: bytes, name: str) -> "Glossary":
        """Parse the content of a file. `name` is its name in errors."""
        if len(content) > MAX_FILE_BYTES:
            raise DataError("glossary_too_large", name=name, limit=MAX_FILE_BYTES)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise DataError("glossary_not_utf8", line=_line_of(name, line)) from None
        glossary = Glossary(())
        glossary.terms = _check_terms(_parse_lines(text, name))
        if not glossary.terms:
            raise DataError("glossary_without_terms", name=name)
        return glossary

    def __len__(self) -> int:
        return len(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glossary) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __repr__(self) -> str:
        return f"<Glossary: {len(self.terms):,} terms, {self.checksum[:16]}>"

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the terms."""
        return hashlib.sha256(repr(self.terms).encode("utf-8", "surrogatepass")).hexdigest()

    def find(self, text: str, taken: Sequence[Span] = ()) -> list[TermMatch]:
        """Return the terms in a text, in order. Of matches that overlap, the longest is kept, then the first.

        A match begins and ends at a word boundary; in scripts without spaces, at any character. A form without capital
        letters matches in any case, and other forms match as written. Nothing in the `taken` spans is matched.
        """
        return select_longest(self._find_all(text), len(text), taken)

    def _find_all(self, text: str) -> Iterator[TermMatch]:
        edges = [at for at in range(len(text) + 1) if not is_inside_word(text, at)]
        for number, begin in enumerate(edges):
            longest = self._longest.get(text[begin : begin + 1].casefold(), 0)
            for end in edges[number + 1 : bisect_right(edges, begin + longest)]:
                if not text[end - 1].isspace() and (term := self._look_up(text[begin:end])):
                    yield TermMatch(term, begin, end)

    def _look_up(self, text: str) -> Term | None:
        form = normalise_form(text)
        return self._by_form.get(form) or self._by_lower_form.get(form.casefold())

    @cached_property
    def _by_form(self) -> dict[str, Term]:
        return {normalise_form(form): term for term in self.terms for form in (term.source, *term.source_forms)}

    @cached_property
    def _by_lower_form(self) -> dict[str, Term]:
        """The forms without capital letters, which match in any case."""
        return {form.casefold(): term for form, term in self._by_form.items() if form == form.lower()}

    @cached_property
    def _longest(self) -> dict[str, int]:
        """Characters of the longest match by its first character. The text may have a space after each character."""
        found: dict[str, int] = {}
        for form in self._by_form:
            found[form[0].casefold()] = max(found.get(form[0].casefold(), 0), 2 * len(form))
        return found


def select_longest(matches: Iterable[Match], length: int, taken: Sequence[Span] = ()) -> list[Match]:
    """Return matches in a text of this length that do not overlap, in order: the longest first, then the first."""
    free = bytearray(b"\1") * length
    for begin, end in taken:
        free[begin:end] = bytes(end - begin)
    found: list[Match] = []
    for match in sorted(matches, key=lambda each: (each.span[0] - each.span[1], each.span[0])):
        begin, end = match.span
        if all(free[begin:end]):
            free[begin:end] = bytes(end - begin)
            found.append(match)
    return sorted(found, key=lambda each: each.span)


def normalise_form(text: str) -> str:
    """Return a form with single spaces, and without spaces beside letters of scripts without spaces."""
    return _SPACE_IN_UNSPACED.sub("", " ".join(text.split()))


def _parse_lines(text: str, name: str) -> Iterator[tuple[MessagePart, Term]]:
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        where, columns = _line_of(name, number), line.split("\t")
        if not 2 <= len(columns) <= 4:
            raise DataError("glossary_columns", line=where, text=shorten(line), columns=len(columns))
        forms = [tuple(form.strip() for form in column.split("|")) if column.strip() else () for column in columns[2:]]
        yield where, Term(columns[0].strip(), columns[1].strip(), *forms)


def _line_of(name: str, number: int) -> MessagePart:
    return MessagePart("line_of_file", path=name, line=number)


def _check_terms(terms: Iterable[tuple[MessagePart, Term]]) -> tuple[Term, ...]:
    """Return the terms. Raise for the first one that is empty, too long or repeated; the error names its place."""
    places: dict[str, MessagePart] = {}
    found: list[Term] = []
    for where, term in terms:
        for form in (term.source, term.target, *term.source_forms, *term.target_forms):
            _check_form(form, where)
        if max(len(term.source_forms), len(term.target_forms)) > MAX_FORMS:
            raise DataError("glossary_forms", line=where, limit=MAX_FORMS)
        for form in dict.fromkeys(map(normalise_form, (term.source, *term.source_forms))):
            if form in places:
                raise DataError("glossary_repeated", line=where, term=shorten(form), first=places[form])
            places[form] = where
        found.append(term)
        if len(found) > MAX_TERMS:
            raise DataError("glossary_terms", limit=MAX_TERMS)
    return tuple(found)


def _check_form(form: str, where: MessagePart) -> None:
    if not isinstance(form, str):
        raise UsageError("glossary_term_type", line=where, term=shorten(form))
    if not form.strip():
        raise DataError("glossary_term_empty", line=where)
    if _CONTROL.search(form):
        raise DataError("glossary_term_control", line=where, term=shorten(form))
    size = len(form.encode("utf-8", "surrogatepass"))
    if size > MAX_TERM_BYTES:
        raise DataError("glossary_term_long", line=where, term=shorten(form), size=size, limit=MAX_TERM_BYTES)
