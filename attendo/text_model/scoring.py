"""Log-probabilities of given targets, and alternatives for the next word."""

from collections.abc import Sequence

import torch

from attendo.data.batch import Example, collate
from attendo.decode.config import GenerationConfig
from attendo.decode.frontier import NEG_INF
from attendo.decode.requests import DecodeRequest, encode_and_start, pad_sources, run_in_length_batches
from attendo.decode.search import Seq2SeqNetwork, run_step_hook
from attendo.errors import UsageError
from attendo.model.parallel import ParallelTransformer
from attendo.nn.ctc import ctc_emissions, ctc_token_log_probs
from attendo.text import BOS, EOS, PAD, Tokenizer
from attendo.text.tokenizer import strip_line_end
from attendo.text_model.inputs import SourceLine, encode_symbols, truncate
from attendo.text_model.options import NotANumberError, TooLongError, has_nan
from attendo.text_model.results import Alternative, Result, ScoredTarget
from attendo.text_model.streaming import common_prefix

_MAX_BATCH_POSITIONS = 1024  # per batch; each position has a logit for every token of the vocabulary
_TOKENS_PER_WORD = 4  # tokens examined per requested word: several tokens may start the same word


def encode_pairs(
    sources: Sequence[str],
    targets: Sequence[str],
    config: GenerationConfig,
    source: Tokenizer | None,
    target: Tokenizer,
) -> list[Example]:
    """Encode pairs as ids, with the prefixes of the model.

    A decoder-only model has no source tokenizer (None), and both texts are encoded as one. The source is the common
    prefix of these ids and of the ids of the source alone. The target is the rest.
    """
    if len(sources) != len(targets):
        raise UsageError("score_pair_count_mismatch", sources=len(sources), targets=len(targets))
    symbols = encode_symbols(config, source or target, target)
    if source is not None:
        lines = ([strip_line_end(text) for text in texts] for texts in (sources, targets))
        encoded = zip(source.encode_many(next(lines)), target.encode_many(next(lines)), strict=True)
        pairs = []
        for number, (first, other) in enumerate(encoded):
            one, _ = truncate(first, config, config.max_source - symbols.source_tokens)
            if (tokens := symbols.source_tokens + len(one)) > config.max_source:
                raise TooLongError(
                    "source_exceeds_model_limit", number, len(sources), tokens=tokens, limit=config.max_source
                )
            pairs.append(Example(symbols.wrap_source(one), (*symbols.begin, *other)))
        return pairs
    alone = target.encode_many(sources)
    joined = target.encode_many([first + rest for first, rest in zip(sources, targets, strict=True)])
    shared = [len(common_prefix([one, other])) for one, other in zip(alone, joined, strict=True)]
    return [Example((*symbols.begin, *ids[:count]), ids[count:]) for ids, count in zip(joined, shared, strict=True)]


def check_scores(scored_targets: list[ScoredTarget], precision: str) -> list[ScoredTarget]:
    """Raise if any log-probability is NaN, else return the targets."""
    for number, each in enumerate(scored_targets):
        if has_nan(each.log_probabilities):
            raise NotANumberError("text_log_probability_nan", precision, number, len(scored_targets))
    return scored_targets


def score_targets(
    pairs: Sequence[Example],
    network: Seq2SeqNetwork,
    device: torch.device,
    tokenizer: Tokenizer,
    positions_per_token: int = 1,
) -> list[ScoredTarget]:
    """Score targets in the order given, eos included. A graph has several positions per source token.

    A decoder-only network scores them as continuations of their sources, without eos.
    """
    ends: tuple[int, ...] = () if network.continues_text else (EOS,)
    given = [Example((), (*pair.source, *pair.target)) for pair in pairs] if network.continues_text else pairs
    scores = []
    found = _compute_log_probabilities(given, network, device, _MAX_BATCH_POSITIONS // positions_per_token)
    for pair, log_probabilities in zip(pairs, found, strict=True):
        ids, first = (*pair.target, *ends), len(pair.source) if network.continues_text else 0
        scores.append(ScoredTarget(tuple(tokenizer.pieces(ids)), tuple(log_probabilities[first : first + len(ids)])))
    return scores


@torch.inference_mode()
def _compute_log_probabilities(
    pairs: Sequence[Example], network: Seq2SeqNetwork, device: torch.device, max_positions: int
) -> list[list[float]]:
    """Return the log-probabilities of the tokens of each target and of eos."""
    found: dict[int, list[float]] = {}

    def read(group: Sequence[int]) -> None:
        run_step_hook()
        batch = collate([pairs[number] for number in group]).to(device)
        logits, _ = network.step(batch.target_ids, encode_and_start(network, batch.source_ids, batch.source_mask))
        each = logits.float().log_softmax(-1).gather(-1, batch.labels[..., None])[..., 0].tolist()
        for row, number in enumerate(group):
            found[number] = each[row][: len(pairs[number].target) + 1]

    run_in_length_batches([pair.length for pair in pairs], max_positions, read)
    return [found[number] for number in range(len(pairs))]


@torch.inference_mode()
def score_ctc_targets(
    pairs: Sequence[Example], network: ParallelTransformer, tokenizer: Tokenizer
) -> list[ScoredTarget]:
    """Score targets in the order given, each token given those before it, and the end."""
    found: dict[int, ScoredTarget] = {}

    def read(group: Sequence[int]) -> None:
        run_step_hook()
        batch = collate([pairs[number] for number in group]).to(network.device)
        canvas = network.empty_canvas(batch.source_ids, batch.source_mask)
        logits = network(batch.source_ids, canvas, batch.source_mask).logits
        ids = batch.target_ids[:, 1:]  # without BOS
        emissions = ctc_emissions(logits, ids, PAD, (BOS, EOS))
        log_probs = ctc_token_log_probs(*emissions, ids, canvas.lengths, (ids != PAD).sum(-1)).tolist()
        for row, number in enumerate(group):
            tokens = (*pairs[number].target, EOS)
            found[number] = ScoredTarget(tuple(tokenizer.pieces(tokens)), tuple(log_probs[row][: len(tokens)]))

    run_in_length_batches([pair.length for pair in pairs], _MAX_BATCH_POSITIONS // network.upsample, read)
    return [found[number] for number in range(len(pairs))]


@torch.inference_mode()
def top_next_tokens(
    line: SourceLine, network: Seq2SeqNetwork, device: torch.device, count: int
) -> list[tuple[int, float]]:
    """Return the most probable tokens after the prefix of a line, with their log-probabilities."""
    ids, _ = pad_sources([DecodeRequest(0, line.source, line.max_length)], device)
    target = torch.tensor([[BOS, *line.prefix]], device=device)
    logits, _ = network.step(target, encode_and_start(network, ids))
    log_probs = logits[0, -1].float().log_softmax(-1)
    log_probs[[PAD, BOS]] = NEG_INF
    best = log_probs.topk(min(_TOKENS_PER_WORD * count, log_probs.numel() - 2))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def unique_alternatives(
    tokens: Sequence[tuple[int, float]], results: Sequence[Result], prefix: Sequence[int], tokenizer: Tokenizer
) -> list[Alternative]:
    """Return distinct words, each with its most probable first token and the result for that token."""
    alternatives: dict[str, Alternative] = {}
    for (token, log_probability), result in zip(tokens, results, strict=True):
        word = "" if token == EOS else _first_word(tokenizer, prefix, result.ids)
        alternatives.setdefault(word, Alternative(word, log_probability, result))
    return list(alternatives.values())


def _first_word(tokenizer: Tokenizer, prefix: Sequence[int], ids: Sequence[int]) -> str:
    """Return the text after the prefix, up to the next space."""
    rest = tokenizer.decode(ids).removeprefix(tokenizer.decode(prefix))
    return (rest.split() or [""])[0]
