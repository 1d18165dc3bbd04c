"""Repeated pairs, copied sources, and test or validation text in the training data."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attendo.data.batch import Sequences
from attendo.data.config import CorpusConfig
from attendo.data.corpus_files import rows
from attendo.data.prepared import Prepared
from attendo.doctor.bad_lines import Places
from attendo.doctor.data_sampling import Stretch
from attendo.doctor.finding import MOST_EXAMPLES, Finding, Level, counted, share, shortened
from attendo.runs.config import RunConfig
from attendo.runs.recipe_config import corpus_of
from attendo.text import UNK

Hashes = NDArray[np.uint64]
Place = tuple[int, int]  # corpus, and pair in it
TextPair = tuple[str, str]
SOME_REPEATED, MANY_REPEATED = 0.01, 0.2
MANY_COPIED, ALL_COPIED = 0.01, 0.99
MANY_LEAKED, MOSTLY_LEAKED = 0.01, 0.5
READ_AS_TEXT = 200_000  # pairs: where the sides have vocabularies of their own, ids do not show a copy
HeldOutPair = tuple[str, str]


class Repeats:
    """Keeps two hashes of every pair that is read, and asks them in the end.

    `read_as_text` pairs at most are compared as text. With `allow_copies` targets that equal their sources are right.
    """

    def __init__(
        self,
        data: Prepared,
        places: Places,
        tests: Mapping[str, Sequence[TextPair]] | None = None,
        read_as_text: int = READ_AS_TEXT,
        allow_copies: bool = False,
    ) -> None:
        self._data, self._places, self._allow_copies, self._read_as_text = data, places, allow_copies, read_as_text
        self._unseen = {"validation": data.valid, **(tests or {})}  # what must not be among what is learned from
        self._sources: list[Hashes] = []
        self._pairs: list[Hashes] = []
        self._begins: list[Place] = []
        self._copies: list[Place] = []
        self._compared = 0

    def add(self, stretch: Stretch) -> None:
        sources, targets = _as_bytes(stretch.source), _as_bytes(stretch.target)
        self._sources.append(_hashes(sources))
        self._pairs.append(_hashes(map(_one, sources, targets)))
        self._begins.append((stretch.corpus, stretch.first))
        if self._data.source_tokenizer is self._data.target_tokenizer:
            self._compared += len(sources)
            same = (
                number for number, (source, target) in enumerate(zip(sources, targets, strict=True)) if source == target
            )
        else:
            most = -(-self._read_as_text * len(sources) // self._data.pairs)
            numbers = np.unique(np.linspace(0, len(sources) - 1, min(most, len(sources))).astype(np.int64)).tolist()
            self._compared += len(numbers)
            same = (number for number in numbers if self._is_copy(stretch, number))
        self._copies += [(stretch.corpus, stretch.first + number) for number in same]

    def findings(self) -> Iterator[Finding]:
        sources, pairs = np.concatenate(self._sources), np.concatenate(self._pairs)
        yield self._repeated(pairs)
        yield self._ambiguous(sources, pairs)
        yield self._copied()
        for name, texts in self._unseen.items():
            yield self._leaked(name, texts, sources, pairs)

    def _repeated(self, pairs: Hashes) -> Finding:
        _, firsts, counts = np.unique(pairs, return_index=True, return_counts=True)
        more = len(pairs) - len(counts)
        values = {"pairs": len(pairs), "repeated": more}
        found = f"{more:,} of {counted(len(pairs), 'pairs')} ({share(more / len(pairs))}) occur earlier"
        if more < SOME_REPEATED * len(pairs):
            return Finding("repeated pairs", "ok", found, values=values)
        often = [n for n in np.argsort(-counts, kind="stable")[:MOST_EXAMPLES] if counts[n] > 1]
        level: Level = "warning" if more >= MANY_REPEATED * len(pairs) else "note"
        return Finding(
            "repeated pairs",
            level,
            found,
            "a pair counts as often as it occurs: take repeated lines out unless that is meant",
            tuple(f"{counts[n]:,} times: {self._quoted(int(firsts[n]))}" for n in often),
            values,
        )

    def _ambiguous(self, sources: Hashes, pairs: Hashes) -> Finding:
        """Sources with several targets: the network can only learn to guess among them."""
        _, once = np.unique(pairs, return_index=True)
        _, firsts, counts = np.unique(sources[once], return_index=True, return_counts=True)
        several = int((counts > 1).sum())
        values = {"sources": len(counts), "with_several_targets": several}
        found = (
            f"{several:,} of {counted(len(counts), 'sources')} ({share(several / len(counts))}) have several targets"
        )
        if several < SOME_REPEATED * len(counts):
            return Finding("several targets", "ok", found, values=values)
        often = [n for n in np.argsort(-counts, kind="stable")[:MOST_EXAMPLES] if counts[n] > 1]
        examples = tuple(f"{counts[n]:,} targets: {self._quoted(int(once[firsts[n]]))}" for n in often)
        return Finding("several targets", "note", found, "leave them, if all are right answers", examples, values)

    def _copied(self) -> Finding:
        count, compared = len(self._copies), self._compared
        values = {"compared": compared, "copied": count}
        found = (
            f"{count:,} of {counted(compared, 'pairs')} ({share(count / compared)}) have a target equal to the source"
        )
        if not count or self._allow_copies:
            return Finding("copied sources", "ok", found, values=values)
        if count >= ALL_COPIED * compared:
            advice = "are both sides the same text? If copying is the task, set data.allow_copies to true"
            return Finding("copied sources", "fault", found, advice, values=values)
        many = count >= MANY_COPIED * compared
        advice = "take such lines out: a network soon learns to copy, unless that is the task"
        examples = tuple(self._places.quoted(*place) for place in self._copies[:MOST_EXAMPLES])
        return Finding("copied sources", "warning" if many else "note", found, advice, examples, values)

    def _leaked(self, name: str, texts: Sequence[TextPair], sources: Hashes, pairs: Hashes) -> Finding:
        """Pairs that are in the training data too. A source with an unknown token may be any text: it is left out."""
        ids = self._cut(texts)
        known = [number for number, (source, _) in enumerate(ids) if UNK not in source]
        raw = [(_bytes(ids[number][0]), _bytes(ids[number][1])) for number in known]
        by_source = np.isin(_hashes(source for source, _ in raw), sources)
        by_pair = np.isin(_hashes(_one(*pair) for pair in raw), pairs)
        count, whole, of, left = int(by_source.sum()), int(by_pair.sum()), max(1, len(known)), len(ids) - len(known)
        values = {name: len(ids), "sources": count, "pairs": whole, "not_compared": left}
        found = (
            f"{count:,} of {counted(len(known), f'{name} sources')} ({share(count / of)}) are in the training data, "
            f"{whole:,} of them with the same target"
        )
        if left:
            found += f"; {left:,} with unknown tokens cannot be compared"
        if not count and left > len(known):
            advice = "raise tokenizer.size, or use tokenizer.kind bpe, so that most can be compared"
            return Finding(f"{name} leak", "note", found, advice, values=values)
        if not count:
            return Finding(f"{name} leak", "ok", found, values=values)
        mostly, many = whole >= MOSTLY_LEAKED * len(ids), count >= MANY_LEAKED * of
        level: Level = "fault" if mostly else "warning" if many else "note"
        leaked = [known[place] for place in np.flatnonzero(by_pair if whole else by_source)[:MOST_EXAMPLES]]
        return Finding(
            f"{name} leak",
            level,
            found,
            "scores will be too good: take these sources out of the training data, or take others to score with",
            tuple(self._leak(name, texts[number][0], number, sources) for number in leaked),
            values,
            stops=False,
        )

    def _leak(self, name: str, text: str, number: int, sources: Hashes) -> str:
        wanted = _hashes([_bytes(self._data.source_tokenizer.encode(text))])[0]
        place = self._place(int(np.flatnonzero(sources == wanted)[0]))
        return f"{name} pair {number + 1:,} is {self._places.named(*place)}: {shortened(text)}"

    def _cut(self, texts: Sequence[TextPair]) -> list[tuple[list[int], list[int]]]:
        sources = self._data.source_tokenizer.encode_many([source for source, _ in texts])
        targets = self._data.target_tokenizer.encode_many([target for _, target in texts])
        return list(zip(sources, targets, strict=True))

    def _is_copy(self, stretch: Stretch, number: int) -> bool:
        source, target = self._data.source_tokenizer, self._data.target_tokenizer
        return source.decode(stretch.source[number]) == target.decode(stretch.target[number])

    def _quoted(self, number: int) -> str:
        return self._places.quoted(*self._place(number))

    def _place(self, number: int) -> Place:
        for (corpus, first), hashes in zip(self._begins, self._sources, strict=True):
            if number < len(hashes):
                return corpus, first + number
            number -= len(hashes)
        raise IndexError(number)


def _as_bytes(sequences: Sequences) -> list[bytes]:
    whole, ends = sequences.ids.astype("<i4").tobytes(), (4 * sequences.offsets).tolist()
    return [whole[begin:end] for begin, end in pairwise(ends)]


def _bytes(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, "<i4").tobytes()


def _one(source: bytes, target: bytes) -> bytes:
    return source + b"\xff\xff\xff\xff" + target  # which is no id


def _hashes(contents: Iterable[bytes]) -> Hashes:
    digests = b"".join(hashlib.blake2b(content, digest_size=8).digest() for content in contents)
    return np.frombuffer(digests, "<u8")


def unseen_pairs(config: RunConfig, given: CorpusConfig | None = None) -> dict[str, list[HeldOutPair]]:
    """By the name of their set. What cannot be read in them is not for us to tell."""
    corpora: dict[str, CorpusConfig | None] = {} if given is None else {"test": given}
    for test in () if config.reproduce is None else config.reproduce.test:
        for part in test.parts or (None,):
            one = test if part is None else test.of_part(part)
            name = test.name if part is None else f"{test.name} {part}"
            corpora.setdefault(name, corpus_of(one, config.data))
    return {
        name: [(row.source, row.target) for row in rows(corpus) if row.fault is None]
        for name, corpus in corpora.items()
        if corpus is not None and corpus not in config.data.validation
    }
