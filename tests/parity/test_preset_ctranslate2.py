"""`preset="ctranslate2"` against CTranslate2 with the same weights."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from search_parity import Hypotheses, assert_same, our_hypotheses, random_text_model, random_texts

from attendo.interop.ctranslate2.converter import placeholder_pieces, to_ctranslate2
from attendo.text_model import TextModel

ctranslate2 = pytest.importorskip("ctranslate2")

TEXTS = random_texts()

# Our options and theirs.
SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"min_length": 4}, {"min_decoding_length": 4}),
    ({"min_length": 9}, {"min_decoding_length": 9}),
    ({"max_length": 1}, {"max_decoding_length": 1}),
    ({"min_length_extra": 0, "length_penalty": 0.0}, {"min_decoding_length": 0, "length_penalty": 0}),
    ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
    ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
    ({"repetition_penalty": 0.8}, {"repetition_penalty": 0.8}),
    ({"allow_unk": False}, {"disable_unk": True}),
]

Translate = Callable[..., list[Hypotheses]]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return random_text_model()


@pytest.fixture(scope="module")
def theirs(model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Translate:
    folder: Path = tmp_path_factory.mktemp("ctranslate2") / "model"
    to_ctranslate2(model.network, folder)
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    pieces = placeholder_pieces(model.target_tokenizer.vocab_size)
    ids_by_piece = {piece: n for n, piece in enumerate(pieces)}
    sources = [[pieces[each] for each in model.source_tokenizer.encode(text)] for text in TEXTS]

    def translate(n_best: int = 1, texts: Sequence[int] = range(len(TEXTS)), **settings: Any) -> list[Hypotheses]:
        requests, forbidden = [sources[n] for n in texts], {"suppress_sequences": [["<pad>"], ["<s>"]]}
        results = translator.translate_batch(
            requests, num_hypotheses=n_best, return_scores=True, **forbidden, **settings
        )
        return [
            [(tuple(ids_by_piece[piece] for piece in tokens), score) for tokens, score in zip(*each, strict=True)]
            for each in ((one.hypotheses, one.scores) for one in results)
        ]

    return translate


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("beam", "n_best", "length_penalty"),
    [(1, 1, 0.6), (2, 1, 0.0), (2, 2, 1.0), (4, 4, 0.0), (4, 1, 0.6), (4, 4, 2.0), (5, 2, 0.0), (5, 5, 1.0)],
)
def test_beam_hypotheses_and_scores_are_equal(
    model: TextModel, theirs: Translate, beam: int, n_best: int, length_penalty: float
) -> None:
    ours = our_hypotheses(
        model, TEXTS, preset="ctranslate2", beam=beam, n_best=n_best, length_penalty=length_penalty, max_length=9
    )
    assert_same(ours, theirs(n_best, beam_size=beam, length_penalty=length_penalty, max_decoding_length=9))


@pytest.mark.short(3)
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize(("our_options", "their_options"), SETTINGS, ids=lambda each: str(each))
def test_other_settings_agree(
    model: TextModel, theirs: Translate, beam: int, our_options: dict[str, Any], their_options: dict[str, Any]
) -> None:
    ours = our_hypotheses(
        model, TEXTS, preset="ctranslate2", beam=beam, n_best=beam, **{"max_length": 9, **our_options}
    )
    assert_same(ours, theirs(beam, beam_size=beam, **{"max_decoding_length": 9, **their_options}))


@pytest.mark.parametrize("patience", [0.5, 1.5])
def test_patience_agrees(model: TextModel, theirs: Translate, patience: float) -> None:
    settings: dict[str, Any] = {"n_best": 2, "patience": patience}
    ours = our_hypotheses(model, TEXTS, preset="ctranslate2", beam=4, max_length=9, **settings)
    assert_same(ours, theirs(**settings, beam_size=4, max_decoding_length=9))


def test_a_prefix_has_no_cost(model: TextModel, theirs: Translate) -> None:
    ids = [13, 17, 42]
    prefix = model.target_tokenizer.decode(ids)
    ours = our_hypotheses(model, TEXTS, preset="ctranslate2", beam=1, max_length=9, prefix=prefix)
    their_options = [[f"<{each}>" for each in ids]] * len(TEXTS)
    assert_same(ours, theirs(beam_size=1, max_decoding_length=9, target_prefix=their_options))


def test_omitted_settings_have_the_defaults_of_ctranslate2(model: TextModel, theirs: Translate) -> None:
    short = model.generate(TEXTS, preset="ctranslate2", max_length=9)
    texts = [n for n, result in enumerate(short) if not result.cut]  # the others would continue to 256 tokens
    assert len(texts) > 10
    assert_same(our_hypotheses(model, [TEXTS[n] for n in texts], preset="ctranslate2"), theirs(texts=texts))


def test_lengths_vary_and_our_defaults_give_other_answers(model: TextModel, theirs: Translate) -> None:
    expected = theirs(4, beam_size=4, max_decoding_length=9)
    assert len({len(ids) for found in expected for ids, _ in found}) > 6
    ours = our_hypotheses(model, TEXTS, beam=4, n_best=4, max_length=9)
    assert sum(one != other for one, other in zip(ours, expected, strict=True)) > 20
