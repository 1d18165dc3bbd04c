"""Source-target alignments from cross-attention, by token, word and character."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.decode.step_hook import run_step_hook
from attendo.errors import ModelError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text import Tokenizer
from attendo.text.newlines import strip_line_end
from attendo.text_model.length_batches import run_in_length_batches
from attendo.text_model.results import Alignment, Hypothesis, Result

ALIGNMENT_HEAD = "alignment_head"  # in scores.json
_MAX_BATCH_POSITIONS = 4096  # of a batch: for each there is a weight for every token of the source and every head
Tokenizers = tuple[Tokenizer, Tokenizer]  # of the source and of the target
Links = list[tuple[int, int]]  # a character of the source, and one of its translation; both count from 0
_CONTEXT_TOKENS = 4  # tokens that decide how the next one is written


@dataclass(frozen=True)
class AlignmentHead:
    """The head of cross-attention that best finds the word being translated; both count from 0."""

    layer: int
    head: int

    @staticmethod
    def from_scores(scores: Mapping[str, Any], config: ModelConfig) -> "AlignmentHead | None":
        """The one that a model folder names in its scores.json; None where it names none."""
        if (found := scores.get(ALIGNMENT_HEAD)) is None:
            return None
        sizes = {"layer": config.num_decoder_layers, "head": config.num_heads}
        places = {name: found.get(name) if isinstance(found, dict) else None for name in sizes}
        if not all(type(place) is int and 0 <= place < sizes[name] for name, place in places.items()):
            raise ModelError(
                "alignment_head_out_of_range",
                name=ALIGNMENT_HEAD,
                value=found,
                layers=sizes["layer"],
                heads=sizes["head"],
            )
        return AlignmentHead(found["layer"], found["head"])

    @property
    def site(self) -> str:
        return f"decoder.{self.layer}.cross"


@torch.inference_mode()
def align(
    results: Sequence[Result],
    sources: Sequence[Sequence[int]],
    networks: Sequence[Transformer],
    batch_tokens: int,
    scores: Mapping[str, Any] | None = None,
) -> list[Result]:
    """The same results, each hypothesis with its alignment: one more pass over answers that are known.

    It is that of the alignment head that `scores` name. Without one, and in an ensemble, whose members have learned
    different heads, it is the mean of the heads of the last layer.
    """
    head = AlignmentHead.from_scores(scores or {}, networks[0].config) if len(networks) == 1 else None
    pairs = [
        Example(source, each.ids) for result, source in zip(results, sources, strict=True) for each in result.hypotheses
    ]
    found: dict[int, Alignment] = {}

    def look(group: Sequence[int]) -> None:
        run_step_hook()
        batch = collate([pairs[number] for number in group]).to(networks[0].output.weight.device)
        mean = torch.stack([_cross_attention(each, batch, head) for each in networks]).mean(dim=0).cpu()
        for row, number in enumerate(group):
            pair = pairs[number]
            found[number] = Alignment(mean[row, : len(pair.target), : len(pair.source) + 1].clone())

    run_in_length_batches([pair.length for pair in pairs], min(batch_tokens, _MAX_BATCH_POSITIONS), look)
    each_in_turn = iter(range(len(pairs)))
    return [
        replace(
            result,
            hypotheses=tuple(replace(each, alignment=found[next(each_in_turn)]) for each in result.hypotheses),
        )
        for result in results
    ]


def _cross_attention(network: Transformer, batch: Batch, head: AlignmentHead | None) -> Float[Tensor, "B T S"]:
    """Its attention to the source: of this head, or the mean of those of the last layer."""
    seen: list[Tensor] = []
    site = head.site if head else f"decoder.{network.config.num_decoder_layers - 1}.cross"

    def tap(here: str, weights: Tensor) -> None:
        if here == site:
            seen.append(weights[:, head.head].float() if head else weights.float().mean(dim=1))

    network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
    return seen[0]


def link_characters(hypothesis: Hypothesis, text: str, source: Tokenizer, target: Tokenizer) -> Links | None:
    """Of an answer to this text by a model with these tokenizers; None where no alignment was asked for."""
    if hypothesis.alignment is None:
        return None
    ids = source.encode(strip_line_end(text))
    added = hypothesis.alignment.weights.size(1) - 1 - len(ids)  # what the model puts before every source
    here, there = _last_character_positions(source, ids), _last_character_positions(target, hypothesis.ids)
    return [(here[one - added], there[other]) for one, other in hypothesis.alignment.links if one >= added]


def add_word_indices(
    hypothesis: Hypothesis, source: Sequence[int], num_prefix_tokens: int, tokenizers: Tokenizers
) -> Hypothesis:
    """The same, its alignment with the tokens of the source and the words that tokens belong to.

    The first `num_prefix_tokens` tokens of the source are no part of its text.
    """
    if hypothesis.alignment is None:
        return hypothesis
    source_tokenizer, target_tokenizer = tokenizers
    alignment = replace(
        hypothesis.alignment,
        source_pieces=tuple(source_tokenizer.pieces(source)),
        source_words=(-1,) * num_prefix_tokens + word_indices(source_tokenizer, source[num_prefix_tokens:]),
        target_words=word_indices(target_tokenizer, hypothesis.ids),
    )
    return replace(hypothesis, alignment=alignment)


def word_indices(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[int, ...]:
    """Of each token the word that its last character belongs to, counted from 0; words are what white space divides."""
    text = tokenizer.decode(ids)
    begins = [n for n, each in enumerate(text) if not each.isspace() and (n == 0 or text[n - 1].isspace())]
    return tuple(bisect_right(begins, place) - 1 for place in _last_character_positions(tokenizer, ids))


def _last_character_positions(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Of each token, its place in the text: behind it there is a space only where the token is one."""
    places: list[int] = []
    length = 0
    for place, token in enumerate(ids):
        near = ids[max(0, place - _CONTEXT_TOKENS) : place]
        length += len(tokenizer.decode([*near, token])) - len(tokenizer.decode(near))
        places.append(max(0, length - 1))
    return places
