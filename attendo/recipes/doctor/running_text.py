"""Windows of running text: whether a network learns from them to go on, and whether the vocabulary fits them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attendo.data.batch import Batch
from attendo.data.prepared import Prepared
from attendo.recipes.doctor.finding import MOST_EXAMPLES, Finding, Level, share
from attendo.recipes.doctor.reading import pair_at, stretches
from attendo.text import BOS, PAD, UNK

MANY_UNKNOWN = 0.01


def window_shift(batches: Sequence[Batch], data: Prepared) -> Finding:
    """Labels are the window itself, inputs the same one step behind, from bos on; a window does not end the text."""
    faults = [fault for batch in batches for fault in _faults(batch, data)]
    rows = sum(len(batch.labels) for batch in batches)
    if not faults:
        found = f"labels of {rows:,} windows are the text one step ahead"
        return Finding("shift", "ok", found, values={"rows": rows}, about="network")
    return Finding(
        "shift",
        "fault",
        f"{len(faults):,} of {rows:,} windows are not the text and the same one step ahead",
        "the network would learn something else than to go on: mend how batches are made (data/batch.py)",
        tuple(faults[:MOST_EXAMPLES]),
        {"rows": rows, "faults": len(faults)},
        "network",
    )


def unknown_tokens(data: Prepared) -> Finding:
    """Of the text to learn from and of that to validate with."""
    parts = {"training": [each.target.ids for each in stretches(data)], "validation": [_validation(data)]}
    rates = {name: float(np.mean(np.concatenate(ids) == UNK)) for name, ids in parts.items()}
    found = ", ".join(f"{name} {share(rate)}" for name, rate in rates.items())
    worst = max(rates.values())
    if not worst:
        return Finding("unknown tokens", "ok", "none", values=rates)
    level: Level = "warning" if worst >= MANY_UNKNOWN else "note"
    advice = "raise tokenizer.size, or use tokenizer.kind bpe or bytes, which can write everything"
    return Finding("unknown tokens", level, found, advice, values=rates)


def _faults(batch: Batch, data: Prepared) -> Iterator[str]:
    rows = zip(batch.numbers, batch.target_ids.tolist(), batch.labels.tolist(), strict=True)
    for number, inputs, labels in rows:
        _, window = pair_at(data, number)
        kept = [each for each in labels if each != PAD]
        if kept != list(window):
            yield f"window {number + 1:,}: the labels are not that of the prepared data"
        elif inputs[: len(kept)] != [BOS, *kept[:-1]]:
            yield f"window {number + 1:,}: the labels {labels[:6]} are not the input {inputs[:6]} one step ahead"


def _validation(data: Prepared) -> NDArray[np.int32]:
    assert data.valid_windows is not None
    return data.valid_windows.read(0, min(len(data.valid_windows), 4096))[1].ids
