"""Source-target alignments from cross-attention, by token, word and character."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.decode.requests import run_in_length_batches
from attendo.decode.search import run_step_hook
from attendo.errors import ModelError
from attendo.model.config import ModelConfig
from attendo.model.prefix import name_source_site, select_source_weights
from attendo.model.transformer import Transformer
from attendo.text import EOS, Tokenizer
from attendo.text.tokenizer import end_source, strip_line_end
from attendo.text_model.results import Alignment, Hypothesis, Result

ALIGNMENT_HEAD = "alignment_head"  # in scores.json
MAX_BATCH_POSITIONS = 4096  # per batch; each position has a weight for every source token and every head
Tokenizers = tuple[Tokenizer, Tokenizer]  # of the source and of the target
Links = list[tuple[int, int]]  # (source character, translation character), both counted from 0
_CONTEXT_TOKENS = 4  # preceding tokens that affect the text of the next one


@dataclass(frozen=True)
class AlignmentHead:
    """The cross-attention head that aligns words best. Layer and head count from 0."""

    layer: int
    head: int

    @staticmethod
    def from_scores(scores: Mapping[str, Any], config: ModelConfig) -> "AlignmentHead | None":
        """Return the head named in the scores.json of a model folder, or None."""
        if (found := scores.get(ALIGNMENT_HEAD)) is None:
            return None
        sizes = {"layer": config.num_decoder_layers, "head": config.num_heads}
        indices = {name: found.get(name) if isinstance(found, dict) else None for name in sizes}
        if not all(type(index) is int and 0 <= index < sizes[name] for name, index in indices.items()):
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
    """Return the results with an alignment for each hypothesis, from one more forward pass.

    The alignment is the attention of the head that `scores` name. Without one it is the mean over the heads of the last
    layer. An ensemble also uses the mean, because its members have learned different heads.
    """
    head = AlignmentHead.from_scores(scores or {}, networks[0].config) if len(networks) == 1 else None
    pairs = [
        Example(source, each.ids) for result, source in zip(results, sources, strict=True) for each in result.hypotheses
    ]
    alignments: dict[int, Alignment] = {}

    def align_group(group: Sequence[int]) -> None:
        run_step_hook()
        batch = collate([pairs[number] for number in group]).to(networks[0].output.weight.device)
        mean = torch.stack([cross_attention(each, batch, head) for each in networks]).mean(dim=0).cpu()
        for row, number in enumerate(group):
            pair = pairs[number]
            alignments[number] = Alignment(mean[row, : len(pair.target), : _count_through_eos(pair.source)].clone())

    run_in_length_batches([pair.length for pair in pairs], min(batch_tokens, MAX_BATCH_POSITIONS), align_group)
    numbers = iter(range(len(pairs)))
    return [
        replace(
            result,
            hypotheses=tuple(replace(each, alignment=alignments[next(numbers)]) for each in result.hypotheses),
        )
        for result in results
    ]


def _count_through_eos(source: Sequence[int]) -> int:
    """Return the tokens of a source up to its EOS. Symbols after EOS align with nothing."""
    return end_source(source).index(EOS) + 1


def cross_attention(network: Transformer, batch: Batch, head: AlignmentHead | None) -> Float[Tensor, "B T S"]:
    """Return the attention weights to the source: of `head`, or the mean over the last layer's heads."""
    seen: list[Tensor] = []
    config, size = network.config, batch.source_ids.size(1)
    site = head.site if head else name_source_site(config)

    def tap(here: str, weights: Tensor) -> None:
        if here == site:
            weights = select_source_weights(weights.float(), size, config)
            seen.append(weights[:, head.head] if head else weights.mean(dim=1))

    network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
    return seen[-1]  # a prefix LM reports the attention of the source first


def link_characters(hypothesis: Hypothesis, text: str, source: Tokenizer, target: Tokenizer) -> Links | None:
    """Return character links for a hypothesis of `text`, or None if it has no alignment."""
    if hypothesis.alignment is None:
        return None
    ids = source.encode(strip_line_end(text))
    added = hypothesis.alignment.weights.size(1) - 1 - len(ids)  # prefix tokens before every source
    here, there = last_character_positions(source, ids), last_character_positions(target, hypothesis.ids)
    return [(here[one - added], there[other]) for one, other in hypothesis.alignment.links if one >= added]


def add_word_indices(
    hypothesis: Hypothesis, source: Sequence[int], num_prefix_tokens: int, tokenizers: Tokenizers
) -> Hypothesis:
    """Return the hypothesis with source pieces and word indices in its alignment.

    The first `num_prefix_tokens` tokens of the source are not part of its text.
    """
    if hypothesis.alignment is None:
        return hypothesis
    source = source[: _count_through_eos(source) - 1]
    source_tokenizer, target_tokenizer = tokenizers
    alignment = replace(
        hypothesis.alignment,
        source_pieces=tuple(source_tokenizer.pieces(source)),
        source_words=(-1,) * num_prefix_tokens + word_indices(source_tokenizer, source[num_prefix_tokens:]),
        target_words=word_indices(target_tokenizer, hypothesis.ids),
    )
    return replace(hypothesis, alignment=alignment)


def word_indices(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[int, ...]:
    """Return the word of each token's last character, counted from 0.

    Words are separated by white space.
    """
    text = tokenizer.decode(ids)
    begins = [n for n, each in enumerate(text) if not each.isspace() and (n == 0 or text[n - 1].isspace())]
    return tuple(bisect_right(begins, position) - 1 for position in last_character_positions(tokenizer, ids))


def last_character_positions(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Return the position of each token's last character in the text.

    A space after a token counts only if it is a token of its own.
    """
    positions: list[int] = []
    length = 0
    for index, token in enumerate(ids):
        near = ids[max(0, index - _CONTEXT_TOKENS) : index]
        length += len(tokenizer.decode([*near, token])) - len(tokenizer.decode(near))
        positions.append(max(0, length - 1))
    return positions
