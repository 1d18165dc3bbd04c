"""Other ways to go on at a position of an answer."""

from collections.abc import Sequence

import torch

from attendo.decode.requests import Request, begun, sources_of
from attendo.text import BOS, EOS, PAD, Tokenizer
from attendo.text_model.answering import Line
from attendo.text_model.networks import Reader
from attendo.text_model.results import Alternative, Result

_MORE = 4  # tokens looked at for each word asked for: several of them may begin the same word


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
