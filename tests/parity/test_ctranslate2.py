"""The network against CTranslate2 with the same weights: scores of given targets, greedy search and beam search."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from export_models import needs_exact_int8

from attendo.bench.systems import Workload, prepare_generation
from attendo.data.batch import collate_sources
from attendo.decode.engines import CachedEngine
from attendo.errors import ModelError, UsageError
from attendo.interop.ctranslate2.converter import incompatibilities, placeholder_pieces, to_ctranslate2
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD

ctranslate2 = pytest.importorskip("ctranslate2")

MakeNetwork = Callable[..., Transformer]
Hypothesis = tuple[list[int], float]

SOURCES = [[5, 6, 7, 8, 9], [4, 4, 10], [11], [7, 12, 13, 14, 15, 16, 5]]
TARGETS = [[6, 7, 8], [9, 10, 11, 12], [5], [4, 13]]
STEPS = 6

EXPRESSIBLE: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"norm": "post", "final_norm": True},
    {"norm": "pre", "final_norm": False},
    {"activation": "gelu", "norm": "post"},
    {"activation": "silu"},
    {"activation": "swiglu"},
    {"activation": "swiglu", "norm": "post", "norm_kind": "rms"},
    {"norm_kind": "rms"},
    {"norm_epsilon": 1e-2},
    {"positions": "learned", "max_length": 12},
    {"positions": "learned", "max_length": 12, "position_offset": 2},
    {"positions": "rotary"},
    {"positions": "rotary", "d_key": 6, "d_value": 6, "norm": "post"},
    {"positions": "relative", "relative_buckets": 8, "relative_max_distance": 5},
    {"positions": "relative", "activation": "geglu_tanh", "tie": "inputs", "linear_bias": False, "norm_kind": "rms"},
    {"positions": "relative", "d_key": 6, "d_value": 3, "attention_scale": 0.7, "output_scale": 0.5, "norm": "post"},
    {"positions": "relative", "relative_bias": "per_layer"},
    {"activation": "gelu_tanh"},
    {"activation": "geglu"},
    {"activation": "reglu", "linear_bias": False},
    {"positions": "none"},
    {"position_layout": "halves", "norm": "post"},
    {"position_offset": 2},
    {"tie": "none"},
    {"tie": "all", "output_bias": True},
    {"vocab_size": None, "source_vocab_size": 17, "target_vocab_size": 23, "output_bias": True},
    {"scale_embedding": False},
    {"embedding_norm": True},
    {"embedding_norm": True, "norm": "post", "norm_kind": "rms"},
    {"d_key": 6, "d_value": 6},
    {"d_key": 6, "d_value": 3},
    {"d_key": 3, "d_value": 4},
    {"d_key": 2, "d_value": 6, "norm": "post"},
    {"d_key": 6, "d_value": 4, "positions": "rotary"},
    {"d_model": 18, "d_key": 2, "d_value": 2},
    {"num_heads": 1, "num_encoder_layers": 1, "num_decoder_layers": 3},
]


@pytest.mark.short(8)
@pytest.mark.parametrize("changes", EXPRESSIBLE, ids=str)
def test_scores_and_searches_are_equal(small_network: MakeNetwork, tmp_path: Path, changes: dict[str, Any]) -> None:
    network = varied_network(small_network, changes)
    assert incompatibilities(network.config) == []
    translator = export_translator(network, tmp_path)
    for given, target, expected in zip(
        translator.score_batch(to_pieces(SOURCES), to_pieces(TARGETS)), TARGETS, scores(network), strict=True
    ):
        assert given.log_probs == pytest.approx(expected, abs=1e-4), target

    assert_same(greedy(translator), reference(network, 1, {PAD, BOS}))
    assert_same(fixed_length(translator, 4), reference(network, 4, {PAD, BOS, EOS}))


def test_our_search_agrees_at_a_fixed_length(small_network: MakeNetwork, tmp_path: Path) -> None:
    network = small_network(seed=2, output_bias=True)
    with torch.no_grad():
        network.output.bias[
            [PAD, BOS, EOS]
        ] = -1e4  # CTranslate2 normalises without forbidden tokens, our search does not
    translator = export_translator(network, tmp_path)
    for beam in (1, 4):
        ours = prepare_generation(
            CachedEngine(network, 1 << 40), Workload(SOURCES, beam, batch=2, min_tokens=STEPS, max_tokens=STEPS)
        )()
        assert ours == [ids for ids, _ in fixed_length(translator, beam)]
        assert len({tuple(ids) for ids in ours}) > 1  # the answers depend on the sources


def test_reference_answers_differ_in_tokens_and_length(small_network: MakeNetwork) -> None:
    answers = [
        ids
        for changes in EXPRESSIBLE[:9]
        for ids, _ in reference(varied_network(small_network, changes), 1, {PAD, BOS})
    ]
    assert len({len(ids) for ids in answers}) > 3
    assert len({tuple(ids) for ids in answers}) > len(answers) / 3
    assert max(len(set(ids)) for ids in answers) > 3


@pytest.mark.parametrize("precision", ["float16", pytest.param("int8", marks=needs_exact_int8)])
def test_reduced_precision_is_close_and_keeps_the_network(
    small_network: MakeNetwork, tmp_path: Path, precision: Any
) -> None:
    network = small_network(seed=1, tie="all", norm="post")
    before = [parameter.clone() for parameter in network.parameters()]
    to_ctranslate2(network, tmp_path / "model", precision)
    kind = "int8" if precision == "int8" else "float32"
    translator = ctranslate2.Translator(str(tmp_path / "model"), compute_type=kind, intra_threads=1)
    assert translator.compute_type == ("int8_float32" if precision == "int8" else "float32")
    given = [each.log_probs for each in translator.score_batch(to_pieces(SOURCES), to_pieces(TARGETS))]
    difference = max(abs(a - b) for x, y in zip(given, scores(network), strict=True) for a, b in zip(x, y, strict=True))
    assert 1e-6 < difference < (0.1 if precision == "int8" else 0.01)
    assert all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_tied_tables_and_float16_reduce_the_file_size(small_network: MakeNetwork, tmp_path: Path) -> None:
    sizes = {}
    for name, tie, precision in (("all", "all", "float32"), ("none", "none", "float32"), ("half", "all", "float16")):
        to_ctranslate2(small_network(tie=tie, vocab_size=500, d_ff=2), tmp_path / name, precision, max_length=8)  # type: ignore[arg-type]
        sizes[name] = (tmp_path / name / "model.bin").stat().st_size
    table = 4 * 500 * 16
    assert 1.9 * table < sizes["none"] - sizes["all"] < 2.1 * table
    assert 0.5 * sizes["all"] < sizes["half"] < 0.65 * sizes["all"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_encoder_layers": 0}, has_code("encoder_missing")),
        ({"d_value": 7, "positions": "rotary"}, has_code("rotary_keys_narrow", keys=4, values=7)),
        ({"vocab_size": 3}, has_code("vocabulary_without_control_tokens", size=3)),
    ],
)
def test_unsupported_networks_raise_with_the_reason(
    small_network: MakeNetwork, tmp_path: Path, changes: dict[str, Any], reason: ErrorCheck
) -> None:
    network = small_network(**changes)
    (found,) = incompatibilities(network.config)
    assert reason(found)
    with pytest.raises(ModelError, check=has_code("ctranslate2_network_unsupported", reasons=reason)):
        to_ctranslate2(network, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_that_is_not_empty_is_rejected(small_network: MakeNetwork, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UsageError, check=has_code("output_folder_not_empty")):
        to_ctranslate2(small_network(), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_sequences_may_have_max_length_tokens(small_network: MakeNetwork, tmp_path: Path) -> None:
    to_ctranslate2(small_network(), tmp_path / "model", max_length=8)
    translator = ctranslate2.Translator(str(tmp_path / "model"), intra_threads=1)
    assert translator.score_batch(to_pieces([[5] * 7]), to_pieces([[5] * 7]))  # EOS or BOS is the eighth token
    with pytest.raises(RuntimeError, match="position encodings"):
        translator.score_batch(to_pieces([[5] * 8]), to_pieces([[5]]))


def test_placeholder_pieces_are_unique() -> None:
    pieces = placeholder_pieces(300)
    assert pieces[:5] == ["<pad>", "<unk>", "<s>", "</s>", "<4>"]
    assert len(set(pieces)) == 300


def varied_network(small_network: MakeNetwork, changes: dict[str, Any]) -> Transformer:
    """A network whose answers depend on positions and sources. With initial weights it repeats one token."""
    network = small_network(seed=1, **changes)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.startswith("decoder.") and parameter.dim() == 2:
                parameter *= 2
    return network


def export_translator(network: Transformer, folder: Path) -> Any:
    to_ctranslate2(network, folder / "model")
    return ctranslate2.Translator(str(folder / "model"), compute_type="float32", intra_threads=1)


def to_pieces(sentences: list[list[int]]) -> list[list[str]]:
    pieces = placeholder_pieces(30)
    return [[pieces[each] for each in sentence] for sentence in sentences]


def greedy(translator: Any) -> list[Hypothesis]:
    """Answers without a minimum length. PAD and BOS are forbidden."""
    forbidden = [["<pad>"], ["<s>"]]
    return _translate(translator, beam_size=1, min_decoding_length=0, suppress_sequences=forbidden)


def fixed_length(translator: Any, beam: int) -> list[Hypothesis]:
    forbidden = [["<pad>"], ["<s>"]]
    return _translate(translator, beam_size=beam, min_decoding_length=STEPS, suppress_sequences=forbidden)


def _translate(translator: Any, **settings: Any) -> list[Hypothesis]:
    ids_by_piece = {piece: n for n, piece in enumerate(placeholder_pieces(30))}
    results = translator.translate_batch(
        to_pieces(SOURCES), max_decoding_length=STEPS, length_penalty=0, return_scores=True, **settings
    )
    return [([ids_by_piece[piece] for piece in each.hypotheses[0]], each.scores[0]) for each in results]


def assert_same(theirs: list[Hypothesis], ours: list[Hypothesis]) -> None:
    assert [ids for ids, _ in theirs] == [ids for ids, _ in ours]
    assert [score for _, score in theirs] == pytest.approx([score for _, score in ours], abs=1e-4)


@torch.no_grad()
def scores(network: Transformer) -> list[list[float]]:
    """The log-probability of each token of the targets, EOS included."""
    found = []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        log_probs = network(collate_sources([source])[0], torch.tensor([[BOS, *target]])).log_softmax(-1)[0]
        found.append([float(log_probs[n, each]) for n, each in enumerate([*target, EOS])])
    return found


@torch.no_grad()
def reference(network: Transformer, beam: int, forbidden: set[int]) -> list[Hypothesis]:
    """A plain search that recomputes every step from the start and normalises without forbidden tokens.

    With a beam the length is fixed, so that no stop rule applies.
    """
    ids, mask = collate_sources(SOURCES)
    assert mask is not None
    best: list[list[Hypothesis]] = [[([], 0.0)] for _ in SOURCES]
    for _ in range(STEPS):
        sentence = torch.tensor([n for n, rows in enumerate(best) for _ in rows])
        target = torch.tensor([[BOS, *tokens] for rows in best for tokens, _ in rows])
        logits = network(ids[sentence], target, mask[sentence])[:, -1]
        logits[:, list(forbidden)] = -math.inf
        following = iter(logits.log_softmax(-1).tolist())
        best = [_extend(rows, following)[:beam] for rows in best]
    return [_cut_at_eos(rows[0]) for rows in best]


def _extend(rows: list[Hypothesis], following: Iterator[list[float]]) -> list[Hypothesis]:
    """All rows with one more token, best first. A finished row stays as it is."""
    found: list[Hypothesis] = []
    for tokens, total in rows:
        log_probs = next(following)
        if EOS in tokens:
            found.append(([*tokens, PAD], total))
        else:
            found += [([*tokens, each], total + log_prob) for each, log_prob in enumerate(log_probs)]
    return sorted(found, key=lambda one: -one[1])


def _cut_at_eos(found: Hypothesis) -> Hypothesis:
    tokens, total = found
    return tokens[: tokens.index(EOS)] if EOS in tokens else tokens, total
