"""Log-probabilities of given targets, next-token alternatives, and batches of similar length."""

from collections.abc import Sequence
from itertools import takewhile

import torch

from attendo.data.batch import Example, collate
from attendo.decode.config import GenerationConfig
from attendo.decode.requests import Request, begun, sources_of
from attendo.decode.step_hook import between_steps
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD, Tokenizer
from attendo.text.newlines import as_line
from attendo.text_model.inputs import Line, prefixes_of, shortened
from attendo.text_model.length_batches import in_groups
from attendo.text_model.options import NotANumberError, TooLongError, is_wrong
from attendo.text_model.results import Alternative, Result, ScoredTarget
from attendo.text_model.search_setup import Reader

_POSITIONS = 1024  # of a batch: for each there is a number for every token of the vocabulary
_MORE = 4  # tokens looked at for each word asked for: several of them may begin the same word


def pairs_of(
    sources: Sequence[str],
    targets: Sequence[str],
    config: GenerationConfig,
    source: Tokenizer | None,
    target: Tokenizer,
) -> list[Example]:
    """As ids, with what the model puts before them.

    Without an encoder, whose tokenizer is then None, both are one text: of its ids, the source has those that the
    beginning alone has too, and the target all behind them.
    """
    if len(sources) != len(targets):
        raise UsageError("score_pair_count_mismatch", sources=len(sources), targets=len(targets))
    before, begin = prefixes_of(config, source or target, target)
    if source is not None:
        lines = ([as_line(text) for text in texts] for texts in (sources, targets))
        encoded = zip(source.encode_many(next(lines)), target.encode_many(next(lines)), strict=True)
        pairs = []
        for number, (first, other) in enumerate(encoded):
            one, _ = shortened(first, config, len(before))
            if (tokens := len(before) + len(one)) > config.max_source:
                raise TooLongError(
                    "source_exceeds_model_limit",
                    number,
                    position=number + 1,
                    total=len(sources),
                    tokens=tokens,
                    limit=config.max_source,
                )
            pairs.append(Example((*before, *one), (*begin, *other)))
        return pairs
    alone = target.encode_many(sources)
    whole = target.encode_many([first + rest for first, rest in zip(sources, targets, strict=True)])
    shared = [_alike(one, other) for one, other in zip(alone, whole, strict=True)]
    return [Example((*begin, *ids[:count]), ids[count:]) for ids, count in zip(whole, shared, strict=True)]


def checked(found: list[ScoredTarget], precision: str) -> list[ScoredTarget]:
    """All of them are numbers."""
    for number, each in enumerate(found):
        if is_wrong(each.log_probabilities):
            raise NotANumberError("text_log_probability_nan", precision, number, position=number + 1, total=len(found))
    return found


def scored(pairs: Sequence[Example], reader: Reader, device: torch.device, tokenizer: Tokenizer) -> list[ScoredTarget]:
    """In the order given, eos included."""
    log_probabilities = _read(pairs, reader, device)
    return [_told([*pair.target, EOS], each, tokenizer) for pair, each in zip(pairs, log_probabilities, strict=True)]


def continued(
    pairs: Sequence[Example], reader: Reader, device: torch.device, tokenizer: Tokenizer
) -> list[ScoredTarget]:
    """The same without an encoder: each target behind its source, in one text that need not end there."""
    whole = [Example((), (*pair.source, *pair.target)) for pair in pairs]
    behind = (each[len(pair.source) :] for pair, each in zip(pairs, _read(whole, reader, device), strict=True))
    return [_told(list(pair.target), each, tokenizer) for pair, each in zip(pairs, behind, strict=True)]


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many of their first ids are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _told(ids: list[int], log_probabilities: list[float], tokenizer: Tokenizer) -> ScoredTarget:
    return ScoredTarget(tuple(tokenizer.pieces(ids)), tuple(log_probabilities[: len(ids)]))


@torch.inference_mode()
def _read(pairs: Sequence[Example], reader: Reader, device: torch.device) -> list[list[float]]:
    """Of each target the log-probabilities of its tokens and of eos."""
    found: dict[int, list[float]] = {}

    def read(group: Sequence[int]) -> None:
        between_steps()
        batch = collate([pairs[number] for number in group]).to(device)
        logits, _ = reader.step(batch.target_ids, begun(reader, batch.source_ids, batch.source_mask))
        each = logits.float().log_softmax(-1).gather(-1, batch.labels[..., None])[..., 0].tolist()
        for row, number in enumerate(group):
            found[number] = each[row][: len(pairs[number].target) + 1]

    in_groups([pair.length for pair in pairs], _POSITIONS, read)
    return [found[number] for number in range(len(pairs))]


@torch.inference_mode()
def next_tokens(line: Line, reader: Reader, device: torch.device, count: int) -> list[tuple[int, float]]:
    """The most probable tokens behind the prefix of a line, each with its log-probability."""
    ids, _ = sources_of([Request(0, line.source, line.limit)], device)
    target = torch.tensor([[BOS, *line.prefix]], device=device)
    logits, _ = reader.step(target, begun(reader, ids))
    log_probs = logits[0, -1].float().log_softmax(-1)
    log_probs[[PAD, BOS]] = float("-inf")
    best = log_probs.topk(min(_MORE * count, log_probs.numel() - 2))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def distinct(
    tokens: Sequence[tuple[int, float]], results: Sequence[Result], prefix: Sequence[int], tokenizer: Tokenizer
) -> list[Alternative]:
    """Different words, each with the most probable token that begins it and the answer that token led to."""
    told: dict[str, Alternative] = {}
    for (token, log_probability), result in zip(tokens, results, strict=True):
        word = "" if token == EOS else _first_word(tokenizer, prefix, result.ids)
        told.setdefault(word, Alternative(word, log_probability, result))
    return list(told.values())


def _first_word(tokenizer: Tokenizer, prefix: Sequence[int], ids: Sequence[int]) -> str:
    """What stands behind the prefix up to the next space."""
    rest = tokenizer.decode(ids).removeprefix(tokenizer.decode(prefix))
    return (rest.split() or [""])[0]
