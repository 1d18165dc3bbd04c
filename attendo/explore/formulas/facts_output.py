"""Facts about the output, the loss and decoding, with the numbers of a run."""

import math

from attendo.explore.formulas.formula import join_first, value_width
from attendo.text_model import Trace

_TEMPERATURES = (0.5, 1.0, 2.0)


def factorisation(trace: Trace) -> str:
    each = trace.log_probabilities
    total = float(each.sum())
    product = " · ".join(f"{math.exp(value):.3f}" for value in each.tolist()[:8])
    return f"{product}{' · …' if len(each) > 8 else ''} = {math.exp(total):.3g}, log p = {total:.3f}"


def cross_entropy(trace: Trace) -> str:
    return f"L = {trace.loss:.4f}, e^L = {math.exp(min(trace.loss, 700.0)):.3f}"


def parallel(trace: Trace) -> str:
    length, width = len(trace.read_pieces), trace.config.d_model
    return f"[{length}, {width}]·[{width}, {width}] = {length * width * width:,}"


def exposure(trace: Trace) -> str:
    others = [step.piece for step in trace.steps(1) if step.rank > 1]
    return f"{len(others)} / {len(trace.target_pieces)} ŷ ≠ y" + (f": {', '.join(others[:5])}" if others else "")


def turns(trace: Trace) -> str:
    return f"{'' if trace.config.decoder_only else '1 × Enc, '}{len(trace.target_pieces)} × Dec"


def stop(trace: Trace) -> str:
    return f"p(</s>) = {', '.join(f'{each:.2f}' for each in trace.eos_probability.tolist()[-4:])}"


def greedy(trace: Trace) -> str:
    return join_first([f"{step.top[0].piece} {step.top[0].probability:.2f}" for step in trace.steps(1)], 6)


def beam(trace: Trace) -> str:
    """Top candidates for the first token with their log-probabilities, which beam search sums."""
    first = trace.steps(3)[0].top
    return ", ".join(f"{each.piece} {math.log(max(each.probability, 1e-30)):.2f}" for each in first)


def sampling(trace: Trace) -> str:
    logits = trace.logits[0]
    best = int(logits.argmax())
    probabilities = [float((logits / each).softmax(-1)[best]) for each in _TEMPERATURES]
    best_by_temperature = ", ".join(f"τ = {t:g}: {p:.3f}" for t, p in zip(_TEMPERATURES, probabilities, strict=True))
    cumulative = trace.probabilities[0].sort(descending=True).values.cumsum(dim=0)
    return f"{best_by_temperature}; top-p 0.9: {int((cumulative < 0.9).sum()) + 1}"


def kv_cache(trace: Trace) -> str:
    config = trace.config
    width = (config.num_kv_heads or config.num_heads) * (config.head_width + value_width(trace))
    total = config.num_decoder_layers * width
    tokens = len(trace.read_pieces)  # those of a source or a prompt too, if the decoder reads them
    return f"{config.num_decoder_layers}·{width} = {total:,}; × {tokens} = {tokens * total:,}"


def serial(trace: Trace) -> str:
    return f"m = {len(trace.target_pieces)}"


def distribution(trace: Trace) -> str:
    last = trace.steps(4)[-1].top
    return ", ".join(f"{each.piece} {each.probability:.3f}" for each in last)
