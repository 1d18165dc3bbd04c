"""From texts to a trace: encode, calculate, name the rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from attendo.data.line_breaks import as_line
from attendo.decode.config import GenerationConfig
from attendo.model.heads import HeadScales
from attendo.model.ledger import Traced
from attendo.model.trace import trace_network
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, Tokenizer
from attendo.text_model.prefixes import prefixes_of
from attendo.text_model.results import Hypothesis
from attendo.text_model.trace import Trace

# Whatever else the model's own settings are: what is shown of a step is then why its token was chosen.
GREEDY: dict[str, Any] = {
    "beam": 1,
    "groups": 1,
    "sample": False,
    "mbr": "none",
    "coverage_penalty": 0.0,
    "split": False,
}


@dataclass(frozen=True)
class Pair:
    """A source and a target as ids, with the tokenizers that name them; without an encoder a target alone."""

    source: Sequence[int]  # eos included
    target: Sequence[int]  # the tokens predicted: eos included, unless the answer was cut before it
    source_tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer
    given: bool
    unknown: Sequence[str]

    @staticmethod
    def of(
        text: str, said: str | Hypothesis, config: GenerationConfig, source: Tokenizer | None, target: Tokenizer
    ) -> "Pair":
        """A text and what is said to it: a text that is given, or an answer of the model.

        Without an encoder, whose tokenizer is then None, what is said stands behind the text and need not end there.
        """
        if source is None:
            return _alone(text, said, config, target)
        before, begin = prefixes_of(config, source, target)
        text, given = as_line(text), isinstance(said, str)
        answer = (*begin, *target.encode(as_line(said))) if isinstance(said, str) else said.ids
        # An answer that was cut before its end never came to predict eos: its last token is the last row.
        ends = isinstance(said, str) or said.has_end
        ids = (*before, *source.encode(text), EOS), (*answer, *((EOS,) if ends else ()))
        return Pair(*ids, source, target, given, source.unknown(text))


def traced(network: Transformer, pair: Pair, heads: HeadScales, masked: bool, layer: int | None) -> Trace:
    """The run that reads this source and predicts this target."""
    read = [BOS, *pair.target[:-1]]
    source, target = (torch.tensor(each, device=network.device) for each in (list(pair.source), read))
    entries = trace_network(network, None if network.decoder_only else source, target, heads, masked, layer)
    return Trace(
        config=network.config,
        source_pieces=() if pair.source_tokenizer is None else tuple(pair.source_tokenizer.pieces(list(pair.source))),
        read_pieces=tuple(pair.target_tokenizer.pieces(read)),
        target_pieces=tuple(pair.target_tokenizer.pieces(list(pair.target))),
        source_ids=tuple(pair.source),
        target_ids=tuple(pair.target),
        entries={name: _on_cpu(each) for name, each in entries.items()},
        tokenizer=pair.target_tokenizer,
        text=pair.target_tokenizer.decode(list(pair.target)),
        given=pair.given,
        unknown=tuple(pair.unknown),
        heads=heads,
        masked=masked,
    )


def _alone(text: str, said: str | Hypothesis, config: GenerationConfig, tokenizer: Tokenizer) -> Pair:
    begin = prefixes_of(config, tokenizer, tokenizer)[1]
    if isinstance(said, str):
        return Pair((), (*begin, *tokenizer.encode(text + said)), None, tokenizer, True, tokenizer.unknown(text + said))
    return Pair((), (*said.ids, *((EOS,) if said.has_end else ())), None, tokenizer, False, tokenizer.unknown(text))


def merged(first: HeadScales, second: HeadScales) -> dict[str, dict[int, float]]:
    """Both, and where they speak of the same head the second."""
    return {site: {**first.get(site, {}), **second.get(site, {})} for site in {**first, **second}}


def _on_cpu(each: Traced) -> Traced:
    return each if each.value.device.type == "cpu" else replace(each, value=each.value.cpu())
