"""Glossaries of a server, each with a dictionary for one or several language pairs. They are in memory."""

import csv
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import StringIO
from typing import Literal

from attendo.serve.http.errors import ApiError
from attendo.text_model import Glossary, Term

MAX_GLOSSARIES = 1_000  # of a server
MAX_TOTAL_BYTES = 64 * 1024**2  # entries of all glossaries in UTF-8
Pair = tuple[str, str]  # codes of the source and of the target language
EntriesFormat = Literal["tsv", "csv"]


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary with its id. It never changes: an update replaces it in the store."""

    name: str
    dictionaries: Mapping[Pair, Glossary]
    glossary_id: str = field(default_factory=lambda: secrets.token_hex(16))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def size(self) -> int:
        """Bytes of the entries."""
        return sum(len(format_entries(each).encode()) for each in self.dictionaries.values())

    def get(self, source: str, target: str) -> Glossary:
        """Return the dictionary of a language pair."""
        if (source, target) not in self.dictionaries:
            raise ApiError("glossary_pair_missing", source=source, target=target)
        return self.dictionaries[source, target]


class GlossaryStore:
    """The glossaries of one server, shared by all its clients. They are lost when it ends."""

    def __init__(self) -> None:
        self._glossaries: dict[str, StoredGlossary] = {}
        self._sizes: dict[str, int] = {}

    def list_all(self) -> list[StoredGlossary]:
        return list(self._glossaries.values())

    def get(self, glossary_id: str) -> StoredGlossary:
        if glossary_id not in self._glossaries:
            raise ApiError("unknown_glossary")
        return self._glossaries[glossary_id]

    def put(self, glossary: StoredGlossary) -> StoredGlossary:
        """Add a glossary, or replace the one with its id. Raise `ApiError` if there is no room."""
        sizes = {**self._sizes, glossary.glossary_id: glossary.size}
        if len(sizes) > MAX_GLOSSARIES or sum(sizes.values()) > MAX_TOTAL_BYTES:
            raise ApiError("too_many_glossaries", most=MAX_GLOSSARIES, size=MAX_TOTAL_BYTES)
        self._glossaries[glossary.glossary_id], self._sizes = glossary, sizes
        return glossary

    def delete(self, glossary_id: str) -> None:
        self.get(glossary_id)
        del self._glossaries[glossary_id], self._sizes[glossary_id]


def parse_entries(entries: str, entries_format: EntriesFormat) -> Glossary:
    """Parse the entries of a dictionary. Only the first two columns of CSV are read."""
    if entries_format == "csv":
        rows = [row[:2] for row in csv.reader(StringIO(entries)) if any(row)]
        entries = "\n".join("\t".join(row) for row in rows)
    return Glossary.parse(entries.encode("utf-8", "replace"), "entries")


def format_entries(glossary: Glossary) -> str:
    """Return entries as tab-separated values, with the forms of terms that have any."""
    rows = []
    for term in glossary.terms:
        columns = [term.source, term.target, "|".join(term.source_forms), "|".join(term.target_forms)]
        rows.append("\t".join(columns).rstrip("\t"))
    return "\n".join(rows)


def merge_dictionary(stored: StoredGlossary, pair: Pair, changes: Glossary) -> StoredGlossary:
    """Return a glossary with more entries for a pair. They replace those with the same source term."""
    before = stored.dictionaries[pair].terms if pair in stored.dictionaries else ()
    terms: dict[str, Term] = {term.source: term for term in (*before, *changes.terms)}
    return replace_dictionary(stored, pair, Glossary(terms.values()))


def replace_dictionary(stored: StoredGlossary, pair: Pair, glossary: Glossary) -> StoredGlossary:
    return replace(stored, dictionaries={**stored.dictionaries, pair: glossary})


def delete_dictionary(stored: StoredGlossary, pair: Pair) -> StoredGlossary:
    """Return a glossary without the dictionary of a pair."""
    stored.get(*pair)
    return replace(stored, dictionaries={each: kept for each, kept in stored.dictionaries.items() if each != pair})
