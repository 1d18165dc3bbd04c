"""The network against CTranslate2 with the same weights: scores of given targets, and what greedy and beam find."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from exported import needs_exact_bytes

from attendo.bench.systems import Workload, prepare_generation
from attendo.data.batch import collate_sources
from attendo.decode.engines import CachedEngine
from attendo.errors import ModelError, UsageError
from attendo.interop.ctranslate2.converter import incompatibilities, placeholder_pieces, to_ctranslate2
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD

ctranslate2 = pytest.importorskip("ctranslate2")

MakeNetwork = Callable[..., Transformer]
Found = tuple[list[int], float]

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
def test_scores_and_what_is_found_are_equal(
    small_network: MakeNetwork, tmp_path: Path, changes: dict[str, Any]
) -> None:
    network = varied(small_network, changes)
    assert incompatibilities(network.config) == []
    translator = exported(network, tmp_path)
    for given, target, expected in zip(
        translator.score_batch(named(SOURCES), named(TARGETS)), TARGETS, scores(network), strict=True
    ):
        assert given.log_probs == pytest.approx(expected, abs=1e-4), target

    assert_same(greedy(translator), reference(network, 1, {PAD, BOS}))
    assert_same(forced(translator, 4), reference(network, 4, {PAD, BOS, EOS}))


def test_of_one_length_our_own_search_finds_the_same(small_network: MakeNetwork, tmp_path: Path) -> None:
    network = small_network(seed=2, output_bias=True)
    with torch.no_grad():
        network.output.bias[[PAD, BOS, EOS]] = -1e4  # what is forbidden it takes out of the sum, and we do not
    translator = exported(network, tmp_path)
    for beam in (1, 4):
        ours = prepare_generation(
            CachedEngine(network, 1 << 40), Workload(SOURCES, beam, batch=2, min_tokens=STEPS, max_tokens=STEPS)
        )()
        assert ours == [ids for ids, _ in forced(translator, beam)]
        assert len({tuple(ids) for ids in ours}) > 1  # the sources are heard


def test_the_networks_say_different_things_and_come_to_different_ends(small_network: MakeNetwork) -> None:
    answers = [
        ids for changes in EXPRESSIBLE[:9] for ids, _ in reference(varied(small_network, changes), 1, {PAD, BOS})
    ]
    assert len({len(ids) for ids in answers}) > 3
    assert len({tuple(ids) for ids in answers}) > len(answers) / 3
    assert max(len(set(ids)) for ids in answers) > 3


@pytest.mark.parametrize("precision", ["float16", pytest.param("int8", marks=needs_exact_bytes)])
def test_fewer_bits_come_close_and_leave_the_network_alone(
    small_network: MakeNetwork, tmp_path: Path, precision: Any
) -> None:
    network = small_network(seed=1, tie="all", norm="post")
    before = [parameter.clone() for parameter in network.parameters()]
    to_ctranslate2(network, tmp_path / "model", precision)
    kind = "int8" if precision == "int8" else "float32"
    translator = ctranslate2.Translator(str(tmp_path / "model"), compute_type=kind, intra_threads=1)
    assert translator.compute_type == ("int8_float32" if precision == "int8" else "float32")
    given = [each.log_probs for each in translator.score_batch(named(SOURCES), named(TARGETS))]
    difference = max(abs(a - b) for x, y in zip(given, scores(network), strict=True) for a, b in zip(x, y, strict=True))
    assert 1e-6 < difference < (0.1 if precision == "int8" else 0.01)
    assert all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_a_tied_table_is_stored_once_and_half_the_bits_take_half_the_room(
    small_network: MakeNetwork, tmp_path: Path
) -> None:
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
        ({"num_encoder_layers": 0}, "it has no encoder"),
        ({"d_value": 7, "positions": "rotary"}, "keys are 4 wide and turned, values 7"),
        ({"vocab_size": 3}, "a vocabulary of 3 tokens has no room for pad, unk, bos and eos"),
    ],
)
def test_what_it_cannot_hold_is_refused_with_the_reason(
    small_network: MakeNetwork, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    network = small_network(**changes)
    assert incompatibilities(network.config) == [reason]
    with pytest.raises(ModelError, check=has_code("ctranslate2_network_unsupported", reasons=reason)):
        to_ctranslate2(network, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_that_holds_something_is_left_alone(small_network: MakeNetwork, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UsageError, check=has_code("output_folder_not_empty")):
        to_ctranslate2(small_network(), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_sequences_may_be_as_long_as_was_asked_for(small_network: MakeNetwork, tmp_path: Path) -> None:
    to_ctranslate2(small_network(), tmp_path / "model", max_length=8)
    translator = ctranslate2.Translator(str(tmp_path / "model"), intra_threads=1)
    assert translator.score_batch(named([[5] * 7]), named([[5] * 7]))  # eos or bos is the eighth
    with pytest.raises(RuntimeError, match="position encodings"):
        translator.score_batch(named([[5] * 8]), named([[5]]))


def test_every_id_has_a_name_of_its_own() -> None:
    pieces = placeholder_pieces(300)
    assert pieces[:5] == ["<pad>", "<unk>", "<s>", "</s>", "<4>"]
    assert len(set(pieces)) == 300


def varied(small_network: MakeNetwork, changes: dict[str, Any]) -> Transformer:
    """With first values alone a network says one word for ever: one that gives its positions and sources weight."""
    network = small_network(seed=1, **changes)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.startswith("decoder.") and parameter.dim() == 2:
                parameter *= 2
    return network


def exported(network: Transformer, folder: Path) -> Any:
    to_ctranslate2(network, folder / "model")
    return ctranslate2.Translator(str(folder / "model"), compute_type="float32", intra_threads=1)


def named(sentences: list[list[int]]) -> list[list[str]]:
    pieces = placeholder_pieces(30)
    return [[pieces[each] for each in sentence] for sentence in sentences]


def greedy(translator: Any) -> list[Found]:
    """As long as they come, but for pad and bos, which are never said."""
    forbidden = [["<pad>"], ["<s>"]]
    return _found(translator, beam_size=1, min_decoding_length=0, suppress_sequences=forbidden)


def forced(translator: Any, beam: int) -> list[Found]:
    forbidden = [["<pad>"], ["<s>"]]
    return _found(translator, beam_size=beam, min_decoding_length=STEPS, suppress_sequences=forbidden)


def _found(translator: Any, **settings: Any) -> list[Found]:
    numbers = {piece: n for n, piece in enumerate(placeholder_pieces(30))}
    said = translator.translate_batch(
        named(SOURCES), max_decoding_length=STEPS, length_penalty=0, return_scores=True, **settings
    )
    return [([numbers[piece] for piece in each.hypotheses[0]], each.scores[0]) for each in said]


def assert_same(theirs: list[Found], ours: list[Found]) -> None:
    assert [ids for ids, _ in theirs] == [ids for ids, _ in ours]
    assert [score for _, score in theirs] == pytest.approx([score for _, score in ours], abs=1e-4)


@torch.no_grad()
def scores(network: Transformer) -> list[list[float]]:
    """The log-probability of each token of the targets, eos included."""
    found = []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        log_probs = network(collate_sources([source])[0], torch.tensor([[BOS, *target]])).log_softmax(-1)[0]
        found.append([float(log_probs[n, each]) for n, each in enumerate([*target, EOS])])
    return found


@torch.no_grad()
def reference(network: Transformer, beam: int, forbidden: set[int]) -> list[Found]:
    """The plainest search, every step from the start. What is forbidden is taken out of the sum too.

    With a beam the length is forced, so that no rule about ends comes in.
    """
    ids, mask = collate_sources(SOURCES)
    assert mask is not None
    best: list[list[Found]] = [[([], 0.0)] for _ in SOURCES]
    for _ in range(STEPS):
        sentence = torch.tensor([n for n, rows in enumerate(best) for _ in rows])
        target = torch.tensor([[BOS, *said] for rows in best for said, _ in rows])
        logits = network(ids[sentence], target, mask[sentence])[:, -1]
        logits[:, list(forbidden)] = -math.inf
        following = iter(logits.log_softmax(-1).tolist())
        best = [_longer(rows, following)[:beam] for rows in best]
    return [_ended(rows[0]) for rows in best]


def _longer(rows: list[Found], following: Iterator[list[float]]) -> list[Found]:
    """All rows with one more token, best first; a row that has ended stays as it is."""
    found: list[Found] = []
    for said, total in rows:
        log_probs = next(following)
        if EOS in said:
            found.append(([*said, PAD], total))
        else:
            found += [([*said, each], total + log_prob) for each, log_prob in enumerate(log_probs)]
    return sorted(found, key=lambda one: -one[1])


def _ended(found: Found) -> Found:
    said, total = found
    return said[: said.index(EOS)] if EOS in said else said, total
