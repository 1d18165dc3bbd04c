"""Hypothesis strategies for networks and batches."""

from typing import Any, get_args

import torch
from hypothesis import strategies as st
from torch import Tensor

from attendo.nn.feedforward import Activation

VOCABULARY = 17  # of the small network


@st.composite
def network_settings(draw: st.DrawFn, decoder_only: bool | None = None) -> dict[str, Any]:
    """Any settings of ModelConfig, at a small size. Half of the decoder-only networks are prefix LMs."""
    if decoder_only is None:
        decoder_only = draw(st.booleans())
    prefix_lm = decoder_only and draw(st.booleans())
    positions = draw(st.sampled_from(["sinusoidal", "learned", "rotary", "relative", "none"]))
    relative: dict[str, Any] = {}
    if positions == "relative":  # so few distances that short sentences reach the last bucket
        relative = draw(
            st.fixed_dictionaries(
                {
                    "relative_buckets": st.sampled_from([4, 6]),
                    "relative_max_distance": st.sampled_from([4, 5]),
                    "relative_bias": st.sampled_from(["shared", "per_layer"]),
                }
            )
        )
    layouts = ["interleaved", "halves"] if positions == "sinusoidal" else ["interleaved"]
    offsets = [0, 2] if positions in ("sinusoidal", "learned") else [0]
    return {
        "seed": draw(st.integers(0, 3)),
        "num_heads": draw(st.sampled_from([1, 2, 4])),
        "prefix_lm": prefix_lm,
        "num_encoder_layers": 0 if decoder_only else draw(st.integers(1, 2)),
        "num_decoder_layers": draw(st.integers(1, 2)),
        "d_key": draw(st.sampled_from([None, 6])),
        "d_value": draw(st.sampled_from([None, 3])),
        "norm": draw(st.sampled_from(["pre", "post"])),
        "norm_kind": draw(st.sampled_from(["layer", "rms"])),
        "final_norm": draw(st.sampled_from([None, True, False])),
        "activation": draw(st.sampled_from(get_args(Activation))),
        "linear_bias": draw(st.booleans()),
        "attention_scale": draw(st.sampled_from([None, 1.0])),
        "output_scale": draw(st.sampled_from([1.0, 0.25])),
        "positions": positions,
        "position_layout": draw(st.sampled_from(layouts)),
        "position_offset": draw(st.sampled_from(offsets)),
        **relative,
        "tie": draw(
            st.sampled_from(["none", "output", "all"] if decoder_only else ["none", "output", "inputs", "all"])
        ),
        "scale_embedding": draw(st.booleans()),
        "embedding_norm": draw(st.booleans()),
        "output_bias": draw(st.booleans()),
    }


def ids(rows: int, longest: int, shortest: int = 1) -> st.SearchStrategy[Tensor]:
    """A batch of `rows` sentences of one length."""
    return st.integers(shortest, longest).flatmap(lambda length: ids_of_length(rows, length))


def ids_of_length(rows: int, length: int) -> st.SearchStrategy[Tensor]:
    row = st.lists(st.integers(0, VOCABULARY - 1), min_size=length, max_size=length)
    return st.lists(row, min_size=rows, max_size=rows).map(lambda rows: torch.tensor(rows).view(len(rows), length))


@st.composite
def padded_ids(draw: st.DrawFn, rows: int, longest: int) -> tuple[Tensor, Tensor]:
    """Sentences of different lengths with random ids as padding, and the mask of their tokens."""
    batch = draw(ids(rows, longest))
    lengths = draw(st.lists(st.integers(1, batch.size(1)), min_size=rows, max_size=rows))
    return batch, torch.arange(batch.size(1)) < torch.tensor(lengths)[:, None]


@st.composite
def cuts(draw: st.DrawFn, length: int) -> list[int]:
    """Sizes of parts that sum to `length`."""
    parts: list[int] = []
    while sum(parts) < length:
        parts.append(draw(st.integers(1, length - sum(parts))))
    return parts
