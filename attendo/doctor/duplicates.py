"""Finds repeated pairs, copied sources, and test or validation text in the training data."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attendo.data.batch import RaggedArray
from attendo.data.config import CorpusConfig
from attendo.data.corpus_files import read_rows
from attendo.data.prepared import PreparedData
from attendo.doctor.bad_lines import LineLocator
from attendo.doctor.data_sampling import PairBlock, PairSpan, locate
from attendo.doctor.finding import MAX_EXAMPLES, Finding, Level, format_count, format_share
from attendo.errors import LocalizedText, cut_line
from attendo.runs.config import RunConfig
from attendo.runs.recipe_config import make_test_corpus
from attendo.text import UNK

Hashes = NDArray[np.uint64]
PairPosition = tuple[int, int]  # corpus index and pair index in it
TextPair = tuple[str, str]
REPEATED_NOTE_SHARE, REPEATED_WARNING_SHARE = 0.01, 0.2
COPIED_WARNING_SHARE, COPIED_FAULT_SHARE = 0.01, 0.99
LEAKED_WARNING_SHARE, LEAKED_FAULT_SHARE = 0.01, 0.5
MAX_TEXT_PAIRS = 200_000  # pairs compared as text; with separate vocabularies, ids do not show a copy


class DuplicateFinder:
    """Collects two hashes per pair (source and pair), and compares them at the end.

    At most `max_text_pairs` pairs are compared as text. With `allow_copies`, targets may equal their sources.
    """

    def __init__(
        self,
        data: PreparedData,
        locator: LineLocator,
        tests: Mapping[str, Sequence[TextPair]] | None = None,
        max_text_pairs: int = MAX_TEXT_PAIRS,
        allow_copies: bool = False,
    ) -> None:
        self._data, self._locator = data, locator
        self._allow_copies, self._max_text_pairs = allow_copies, max_text_pairs
        self._heldout_sets = {"validation": data.valid, **(tests or {})}  # must not be in the training data
        self._sources: list[Hashes] = []
        self._pairs: list[Hashes] = []
        self._spans: list[PairSpan] = []
        self._copies: list[PairPosition] = []
        self._num_compared = 0

    def add(self, block: PairBlock) -> None:
        sources, targets = _sequences_to_bytes(block.source), _sequences_to_bytes(block.target)
        self._sources.append(_hash_each(sources))
        self._pairs.append(_hash_each(map(_join_pair, sources, targets)))
        self._spans.append((block.corpus, block.first, len(block)))
        if self._data.source_tokenizer is self._data.target_tokenizer:
            self._num_compared += len(sources)
            same = (
                number for number, (source, target) in enumerate(zip(sources, targets, strict=True)) if source == target
            )
        else:
            most = -(-self._max_text_pairs * len(sources) // self._data.pairs)
            numbers = np.unique(np.linspace(0, len(sources) - 1, min(most, len(sources))).astype(np.int64)).tolist()
            self._num_compared += len(numbers)
            same = (number for number in numbers if self._is_copy(block, number))
        self._copies += [(block.corpus, block.first + number) for number in same]

    def check(self) -> Iterator[Finding]:
        sources, pairs = np.concatenate(self._sources), np.concatenate(self._pairs)
        yield self._check_repeated_pairs(pairs)
        yield self._check_several_targets(sources, pairs)
        yield self._check_copies()
        for name, texts in self._heldout_sets.items():
            yield self._check_leak(name, texts, sources, pairs)

    def _check_repeated_pairs(self, pairs: Hashes) -> Finding:
        _, firsts, counts = np.unique(pairs, return_index=True, return_counts=True)
        more = len(pairs) - len(counts)
        values = {"pairs": len(pairs), "repeated": more}
        found = LocalizedText(
            "{more:,} of {pairs} ({share}) occur earlier",
            more=more,
            pairs=format_count(len(pairs), "pairs"),
            share=format_share(more / len(pairs)),
        )
        if more < REPEATED_NOTE_SHARE * len(pairs):
            return Finding("repeated pairs", "ok", found, values=values)
        level: Level = "warning" if more >= REPEATED_WARNING_SHARE * len(pairs) else "note"
        advice = "a pair counts as often as it occurs: take repeated lines out unless that is meant"
        examples = tuple(
            LocalizedText("{count:,} times: {pair}", count=int(counts[n]), pair=self._quote(int(firsts[n])))
            for n in _most_frequent(counts)
        )
        return Finding("repeated pairs", level, found, advice, examples, values)

    def _check_several_targets(self, sources: Hashes, pairs: Hashes) -> Finding:
        """Find sources with several targets, among which the network can only guess."""
        _, once = np.unique(pairs, return_index=True)
        _, firsts, counts = np.unique(sources[once], return_index=True, return_counts=True)
        several = int((counts > 1).sum())
        values = {"sources": len(counts), "with_several_targets": several}
        found = LocalizedText(
            "{several:,} of {sources} ({share}) have several targets",
            several=several,
            sources=format_count(len(counts), "sources"),
            share=format_share(several / len(counts)),
        )
        if several < REPEATED_NOTE_SHARE * len(counts):
            return Finding("several targets", "ok", found, values=values)
        examples = tuple(
            LocalizedText("{count:,} targets: {pair}", count=int(counts[n]), pair=self._quote(int(once[firsts[n]])))
            for n in _most_frequent(counts)
        )
        return Finding("several targets", "note", found, "leave them, if all are right answers", examples, values)

    def _check_copies(self) -> Finding:
        count, compared = len(self._copies), self._num_compared
        values = {"compared": compared, "copied": count}
        found = LocalizedText(
            "{count:,} of {pairs} ({share}) have a target equal to the source",
            count=count,
            pairs=format_count(compared, "pairs"),
            share=format_share(count / compared),
        )
        if not count or self._allow_copies:
            return Finding("copied sources", "ok", found, values=values)
        if count >= COPIED_FAULT_SHARE * compared:
            advice = "are both sides the same text? If copying is the task, set data.allow_copies to true"
            return Finding("copied sources", "fault", found, advice, values=values)
        many = count >= COPIED_WARNING_SHARE * compared
        advice = "take such lines out: a network soon learns to copy, unless that is the task"
        examples = tuple(self._locator.quote(*position) for position in self._copies[:MAX_EXAMPLES])
        return Finding("copied sources", "warning" if many else "note", found, advice, examples, values)

    def _check_leak(self, name: str, texts: Sequence[TextPair], sources: Hashes, pairs: Hashes) -> Finding:
        """Find held-out pairs in the training data. Sources with unknown tokens are skipped as ambiguous."""
        ids = self._encode(texts)
        known = [number for number, (source, _) in enumerate(ids) if UNK not in source]
        raw = [(_ids_to_bytes(ids[number][0]), _ids_to_bytes(ids[number][1])) for number in known]
        by_source = np.isin(_hash_each(source for source, _ in raw), sources)
        by_pair = np.isin(_hash_each(_join_pair(*pair) for pair in raw), pairs)
        count, exact, of, left = int(by_source.sum()), int(by_pair.sum()), max(1, len(known)), len(ids) - len(known)
        values = {name: len(ids), "sources": count, "pairs": exact, "not_compared": left}
        found = LocalizedText(
            "{count:,} of {sources} ({share}) are in the training data, {exact:,} of them with the same target",
            count=count,
            sources=format_count(len(known), f"{name} sources"),
            share=format_share(count / of),
            exact=exact,
        )
        if left:
            found += LocalizedText("; {left:,} with unknown tokens cannot be compared", left=left)
        if not count and left > len(known):
            advice = "raise tokenizer.size, or use tokenizer.kind bpe, so that most can be compared"
            return Finding(f"{name} leak", "note", found, advice, values=values)
        if not count:
            return Finding(f"{name} leak", "ok", found, values=values)
        mostly, many = exact >= LEAKED_FAULT_SHARE * len(ids), count >= LEAKED_WARNING_SHARE * of
        level: Level = "fault" if mostly else "warning" if many else "note"
        leaked = [known[index] for index in np.flatnonzero(by_pair if exact else by_source)[:MAX_EXAMPLES]]
        return Finding(
            f"{name} leak",
            level,
            found,
            "scores will be too good: take these sources out of the training data, or take others to score with",
            tuple(self._format_leak(name, texts[number][0], number, sources) for number in leaked),
            values,
            stops=False,
        )

    def _format_leak(self, name: str, text: str, number: int, sources: Hashes) -> str:
        wanted = _hash_each([_ids_to_bytes(self._data.source_tokenizer.encode(text))])[0]
        position = locate(self._spans, int(np.flatnonzero(sources == wanted)[0]))
        return LocalizedText(
            "{name} pair {number:,} is {place}: {text}",
            name=LocalizedText(name),
            number=number + 1,
            place=self._locator.describe(*position),
            text=cut_line(text),
        )

    def _encode(self, texts: Sequence[TextPair]) -> list[tuple[list[int], list[int]]]:
        sources = self._data.source_tokenizer.encode_many([source for source, _ in texts])
        targets = self._data.target_tokenizer.encode_many([target for _, target in texts])
        return list(zip(sources, targets, strict=True))

    def _is_copy(self, block: PairBlock, number: int) -> bool:
        source, target = self._data.source_tokenizer, self._data.target_tokenizer
        return source.decode(block.source[number]) == target.decode(block.target[number])

    def _quote(self, number: int) -> str:
        return self._locator.quote(*locate(self._spans, number))


def _most_frequent(counts: NDArray[np.int64]) -> list[int]:
    """Return the indices of the largest counts above 1."""
    return [int(n) for n in np.argsort(-counts, kind="stable")[:MAX_EXAMPLES] if counts[n] > 1]


def _sequences_to_bytes(sequences: RaggedArray) -> list[bytes]:
    content, ends = sequences.ids.astype("<i4").tobytes(), (4 * sequences.offsets).tolist()
    return [content[begin:end] for begin, end in pairwise(ends)]


def _ids_to_bytes(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, "<i4").tobytes()


def _join_pair(source: bytes, target: bytes) -> bytes:
    return source + b"\xff\xff\xff\xff" + target  # a separator that is not a valid id


def _hash_each(contents: Iterable[bytes]) -> Hashes:
    digests = b"".join(hashlib.blake2b(content, digest_size=8).digest() for content in contents)
    return np.frombuffer(digests, "<u8")


def read_test_pairs(config: RunConfig, test_corpus: CorpusConfig | None = None) -> dict[str, list[TextPair]]:
    """Return test pairs by set name. Bad lines are skipped without a report."""
    corpora: dict[str, CorpusConfig | None] = {} if test_corpus is None else {"test": test_corpus}
    for test in () if config.reproduce is None else config.reproduce.test:
        for name, one in test.split_parts().items():
            corpora.setdefault(name, make_test_corpus(one, config.data))
    return {
        name: [(row.source, row.target) for row in read_rows(corpus) if row.fault is None]
        for name, corpus in corpora.items()
        if corpus is not None and corpus not in config.data.validation
    }
