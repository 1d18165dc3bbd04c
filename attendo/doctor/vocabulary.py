"""Vocabulary checks: unknown tokens, unused pieces, characters per token."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attendo.data.prepared import PreparedData
from attendo.doctor.data_sampling import PairBlock, read_blocks
from attendo.doctor.finding import MAX_EXAMPLES, Finding, Level, format_share
from attendo.errors import LocalizedText, cut_line, join_texts
from attendo.text import CONTROL_PIECES, UNK, SentencePiece, Tokenizer

UNKNOWN_WARNING_SHARE = 0.01
UNUSED_NOTE_SHARE, UNUSED_WARNING_SHARE = 0.2, 0.5
MIN_TOKEN_CHARACTERS = 1.2  # mean characters per token
_DECODED_PAIRS = 200  # pairs decoded per block to count characters
_BYTE = re.compile("<0x[0-9A-F]{2}>")
SIDES = ("source", "target")


class VocabularyUse:
    """Counts tokens and characters of both sides. `dropout` is the run's BPE-dropout rate."""

    def __init__(self, data: PreparedData, dropout: float = 0.0) -> None:
        self._data, self._dropout = data, dropout
        self._tokenizers = (data.source_tokenizer, data.target_tokenizer)
        self._counts = [np.zeros(tokenizer.vocab_size, np.int64) for tokenizer in self._tokenizers]
        self._characters, self._tokens = [0, 0], [0, 0]

    def add(self, block: PairBlock) -> None:
        for side, sequences in enumerate((block.source, block.target)):
            self._counts[side] += np.bincount(sequences.ids, minlength=len(self._counts[side]))
            numbers = np.unique(np.linspace(0, len(sequences) - 1, _DECODED_PAIRS).astype(np.int64))
            for number in numbers.tolist():
                ids = sequences[number]
                self._tokens[side] += len(ids)
                self._characters[side] += len(self._tokenizers[side].decode(ids))

    def check(self) -> Iterator[Finding]:
        yield self._check_unknown()
        yield self._check_unused()
        yield self._check_token_length()

    def _check_unknown(self) -> Finding:
        """Report unknown tokens, which the network cannot tell apart."""
        validation = [self._count_unknown_in_validation(side) for side in range(2)]
        rates = {}
        for side, name in enumerate(SIDES):
            rates[f"{name}_training"] = int(self._counts[side][UNK]) / max(1, int(self._counts[side].sum()))
            rates[f"{name}_validation"] = validation[side][0]
        advice = "raise tokenizer.size, or use tokenizer.kind bpe, which cuts rare words into known pieces"
        examples = [
            example for side, name in enumerate(SIDES) for example in _format_most_common(name, validation[side][1])
        ]
        return _report_unknown(rates, advice, examples)

    def _count_unknown_in_validation(self, side: int) -> tuple[float, Counter[str]]:
        """Return the share of unknown tokens, and the unknown words with their counts."""
        tokenizer, texts = self._tokenizers[side], [pair[side] for pair in self._data.valid]
        sentences = tokenizer.encode_many(texts)
        unknown = sum(ids.count(UNK) for ids in sentences)
        which: Counter[str] = Counter()
        for text, ids in zip(texts, sentences, strict=True):
            which.update(tokenizer.unknown(text) if UNK in ids else ())
        return unknown / max(1, sum(map(len, sentences))), which

    def _check_unused(self) -> Finding:
        """Report unused pieces. Their embeddings are never trained, but cost memory and time in every step."""
        counts = dict(zip(SIDES, self._counts, strict=True))
        if self._tokenizers[0] is self._tokenizers[1]:
            counts = {"vocabulary": self._counts[0] + self._counts[1]}
        tokenizers = dict(zip(counts, self._tokenizers, strict=False))
        learnt = {side: _list_trained_pieces(tokenizer) for side, tokenizer in tokenizers.items()}
        unused = {side: self._find_unused(tokenizers[side], ids, counts[side]) for side, ids in learnt.items()}
        shares = {side: len(ids) / max(1, len(learnt[side])) for side, ids in unused.items()}
        found = join_texts(
            LocalizedText(
                "{side}: {unused:,} of {pieces:,} pieces ({share}) never occur in training",
                side=LocalizedText(side),
                unused=len(ids),
                pieces=len(learnt[side]),
                share=format_share(shares[side]),
            )
            for side, ids in unused.items()
        )
        values = {f"{side}_unused": part for side, part in shares.items()}
        worst = max(shares, key=lambda side: shares[side])
        if shares[worst] < UNUSED_NOTE_SHARE:
            return Finding("unused pieces", "ok", found, values=values)
        level: Level = "warning" if shares[worst] >= UNUSED_WARNING_SHARE else "note"
        needed = tokenizers[worst].vocab_size - len(unused[worst])
        examples = tokenizers[worst].pieces(unused[worst][:MAX_EXAMPLES].tolist())
        shown = tuple(LocalizedText("{piece!r} is never used", piece=cut_line(piece)) for piece in examples)
        advice = LocalizedText("lower tokenizer.size, to about {size:,}", size=needed)
        return Finding("unused pieces", level, found, advice, shown, values)

    def _find_unused(
        self, tokenizer: Tokenizer, trained: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return unused trained pieces. With BPE-dropout, substrings of a used piece count as used."""
        unused = trained[counts[trained] == 0]
        if not self._dropout:
            return unused
        used = "\n".join(tokenizer.pieces(trained[counts[trained] > 0].tolist()))
        return unused[[piece not in used for piece in tokenizer.pieces(unused.tolist())]]

    def _check_token_length(self) -> Finding:
        lengths = [self._characters[side] / max(1, self._tokens[side]) for side in range(2)]
        found = join_texts(
            LocalizedText("{side} {length:.1f}", side=LocalizedText(name), length=length)
            for name, length in zip(SIDES, lengths, strict=True)
        )
        values = dict(zip(SIDES, lengths, strict=True))
        subwords = [isinstance(tokenizer, SentencePiece) for tokenizer in self._tokenizers]
        if any(
            is_subwords and length < MIN_TOKEN_CHARACTERS for is_subwords, length in zip(subwords, lengths, strict=True)
        ):
            advice = "words are cut into single letters: raise tokenizer.size, or learn the tokenizer from this text"
            return Finding("characters a token", "note", found, advice, values=values)
        return Finding("characters a token", "ok", found, values=values)


def _list_trained_pieces(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the ids of pieces learned from text, without control pieces and the 256 byte pieces."""
    ids = np.arange(len(CONTROL_PIECES), tokenizer.vocab_size)
    if tokenizer.kind == "bytes":
        return ids[:0]
    if not isinstance(tokenizer, SentencePiece):
        return ids
    return ids[[_BYTE.fullmatch(piece) is None for piece in tokenizer.pieces(ids.tolist())]]


def _format_most_common(side: str, unknown: Counter[str]) -> list[str]:
    several, once = (
        "{part!r}, {count:,} times in the {side} of the validation text",
        "{part!r} in the {side} of the validation text",
    )
    return [
        LocalizedText(several if count > 1 else once, part=cut_line(part), count=count, side=LocalizedText(side))
        for part, count in unknown.most_common(2)
    ]


def check_unknown_tokens(data: PreparedData) -> Finding:
    """Report the share of unknown tokens in training and validation text."""
    assert data.valid_windows is not None
    validation = data.valid_windows.read(0, min(len(data.valid_windows), 4096))[1].ids
    parts = {"training": [each.target.ids for each in read_blocks(data)], "validation": [validation]}
    rates = {name: float(np.mean(np.concatenate(ids) == UNK)) for name, ids in parts.items()}
    return _report_unknown(
        rates, "raise tokenizer.size, or use tokenizer.kind bpe or bytes, which can write everything"
    )


def _report_unknown(rates: dict[str, float], advice: str, examples: Sequence[str] = ()) -> Finding:
    """Report the shares of unknown tokens, by text."""
    worst = max(rates.values())
    if not worst:
        return Finding("unknown tokens", "ok", "none", values=rates)
    level: Level = "warning" if worst >= UNKNOWN_WARNING_SHARE else "note"
    found = join_texts(
        LocalizedText("{text} {share}", text=LocalizedText(name.replace("_", " of ")), share=format_share(rate))
        for name, rate in rates.items()
    )
    return Finding("unknown tokens", level, found, advice, tuple(examples[:MAX_EXAMPLES]), rates)
