"""Word alignments of given pairs, from one model or from models of both directions, merged on request.

    rows        each target word is linked with the source word that it attends to most
    columns     each source word is linked with the target word that attends to it most

Without a model of the other direction, `symmetrise` merges the rows and the columns of one attention matrix, as
awesome-align (Dou and Neubig 2021) does with its similarities. With one, it merges the rows of both models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

from attendo.data.batch import Example, collate
from attendo.data.pharaoh import Link
from attendo.decode.config import GenerationConfig
from attendo.decode.requests import run_in_length_batches
from attendo.decode.search import run_step_hook
from attendo.errors import MessagePart, UsageError
from attendo.model.transformer import Transformer
from attendo.text import EOS, Tokenizer
from attendo.text_model.alignment import MAX_BATCH_POSITIONS, AlignmentHead, cross_attention
from attendo.text_model.inputs import encode_symbols
from attendo.text_model.options import check_text_list
from attendo.text_model.results import format_pharaoh
from attendo.text_model.scoring import encode_pairs
from attendo.text_model.symmetrisation import Symmetrisation, check_symmetrisation, symmetrise
from attendo.text_model.token_words import map_tokens_to_words

LinkUnit = Literal["words", "tokens"]
_UNNAMED = MessagePart("unnamed_sentence")


@dataclass(frozen=True)
class PairWords:
    """A pair of texts with the words to link. Joined without spaces, the words of a side are its text."""

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    location: MessagePart | str = _UNNAMED  # for error messages

    @classmethod
    def split(cls, source: str, target: str) -> "PairWords":
        """Return the pair with its words between white space."""
        return cls(source, target, tuple(source.split()), tuple(target.split()))

    def swap(self) -> "PairWords":
        return PairWords(self.target, self.source, self.target_words, self.source_words, self.location)


@dataclass(frozen=True)
class WordAlignment:
    """The links of one pair: (source, target), counted from 0, between words or between tokens of the model."""

    links: tuple[Link, ...]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]

    def __str__(self) -> str:
        """Format as `0-0 1-2`, as Pharaoh, fast_align and Marian do."""
        return format_pharaoh(self.links)


@dataclass(frozen=True)
class DirectedLinks:
    """Links of one pair: of each target word (`rows`) and of each source word (`columns`)."""

    rows: frozenset[Link]
    columns: frozenset[Link]

    @classmethod
    def from_weights(
        cls, weights: Float[Tensor, "T S"], source_words: Sequence[int], target_words: Sequence[int]
    ) -> "DirectedLinks":
        """Link the words of these tokens. The last column is EOS: a row that attends to it most has no link."""
        if weights.numel() == 0 or not source_words or not target_words:
            return cls(frozenset(), frozenset())
        best_sources = weights.argmax(dim=1).tolist()
        best_targets = weights[:, : len(source_words)].argmax(dim=0).tolist()
        rows = {
            (source_words[source], word)
            for source, word in zip(best_sources, target_words, strict=True)
            if source < len(source_words)
        }
        columns = {(word, target_words[target]) for target, word in zip(best_targets, source_words, strict=True)}
        return cls(frozenset(rows), frozenset(columns))


def merge_links(
    forward: DirectedLinks, backward: DirectedLinks | None, method: Symmetrisation | None
) -> tuple[Link, ...]:
    """Return the links, sorted. `backward` are those of the model of the other direction."""
    if method is None:
        return tuple(sorted(forward.rows))
    other = forward.columns if backward is None else frozenset((one, two) for two, one in backward.rows)
    return tuple(sorted(symmetrise(forward.rows, other, method)))


@dataclass(frozen=True)
class PairAligner:
    """Aligns given pairs by the attention of the head in `scores`, else by the mean of the last layer."""

    network: Transformer
    scores: Mapping[str, Any]
    tokenizers: tuple[Tokenizer, Tokenizer]
    generation: GenerationConfig
    batch_tokens: int

    def link(self, pairs: Sequence[PairWords], unit: LinkUnit) -> list[DirectedLinks]:
        """Return the links of each pair, from one pass of the network."""
        texts = [each.source for each in pairs], [each.target for each in pairs]
        examples = encode_pairs(*texts, self.generation, *self.tokenizers)
        head = AlignmentHead.from_scores(self.scores, self.network.config)
        found: dict[int, DirectedLinks] = {}

        def align_group(group: Sequence[int]) -> None:
            run_step_hook()
            batch = collate([examples[number] for number in group]).to(self.network.device)
            attention = cross_attention(self.network, batch, head).cpu()
            for row, number in enumerate(group):
                found[number] = self._link_words(pairs[number], examples[number], attention[row], unit)

        positions = min(self.batch_tokens, MAX_BATCH_POSITIONS)
        run_in_length_batches([each.length for each in examples], positions, align_group)
        return [found[number] for number in range(len(pairs))]

    def pieces(self, pair: PairWords) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tokens of a pair as readable labels."""
        one, other = self.tokenizers
        return tuple(one.pieces(one.encode(pair.source))), tuple(other.pieces(other.encode(pair.target)))

    def _link_words(
        self, pair: PairWords, example: Example, attention: Float[Tensor, "T S"], unit: LinkUnit
    ) -> DirectedLinks:
        symbols = encode_symbols(self.generation, *self.tokenizers)
        before, begin = len(symbols.before), len(symbols.begin)
        tokens = example.source.index(EOS) if EOS in example.source else len(example.source)
        weights = attention[begin : len(example.target), before : tokens + 1]
        targets, sources = weights.size(0), weights.size(1) - 1
        if unit == "tokens":
            return DirectedLinks.from_weights(weights, range(sources), range(targets))
        source, target = self.tokenizers
        left = map_tokens_to_words(source, pair.source, pair.source_words, pair.location)
        right = map_tokens_to_words(target, pair.target, pair.target_words, pair.location)
        return DirectedLinks.from_weights(weights, left[:sources], right[:targets])  # a cut source has fewer tokens


def align_pairs(
    pairs: Sequence[PairWords], aligners: Sequence[PairAligner], method: Symmetrisation | None, unit: LinkUnit
) -> list[WordAlignment]:
    """Return the alignment of each pair. A second aligner is that of the other direction."""
    if method is not None:
        check_symmetrisation(method)
    aligner, *reverse = aligners
    backward: list[DirectedLinks] | list[None] = [None] * len(pairs)
    if reverse:
        if method is None:
            raise UsageError("reverse_without_symmetrisation")
        if unit == "tokens" and reverse[0].tokenizers != aligner.tokenizers[::-1]:
            raise UsageError("reverse_tokens_differ")
        backward = reverse[0].link([each.swap() for each in pairs], unit)
    forward = aligner.link(pairs, unit)
    return [
        WordAlignment(
            merge_links(one, other, method),
            *(aligner.pieces(pair) if unit == "tokens" else (pair.source_words, pair.target_words)),
        )
        for pair, one, other in zip(pairs, forward, backward, strict=True)
    ]


def pair_texts(sources: Sequence[str], targets: Sequence[str]) -> list[PairWords]:
    """Return the pairs of two lists of texts, with their words between white space."""
    check_text_list(sources)
    check_text_list(targets)
    if len(sources) != len(targets):
        raise UsageError("align_pair_count_mismatch", sources=len(sources), targets=len(targets))
    return [PairWords.split(source, target) for source, target in zip(sources, targets, strict=True)]
