"""`preset="hf"` against transformers' generate with the same weights."""

from collections.abc import Callable
from typing import Any

import pytest
from search_parity import Hypotheses, assert_same, our_hypotheses, random_text_model, random_texts

from attendo.data.batch import collate_sources
from attendo.interop.huggingface.model_classes import MARIAN as MARIAN_CLASS
from attendo.text import BOS, EOS, PAD
from attendo.text_model import TextModel

pytest.importorskip("transformers")

TEXTS = random_texts()
STOPS = {False: "settled", True: "first", "never": "exhaustive"}

# Our options and theirs.
SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"min_length": 4}, {"min_new_tokens": 4}),
    ({"min_length": 9}, {"min_new_tokens": 9}),
    ({"max_length": 1}, {"max_new_tokens": 1}),
    ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
    ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
    ({"repetition_penalty": 0.8}, {"repetition_penalty": 0.8}),
    ({"renormalise": True}, {"renormalize_logits": True}),
]

BEAMS = [(2, 1.0), (4, 0.6), (4, 2.0), (5, 0.0)]  # beam and length penalty


def slow_unless(short: bool) -> list[Any]:
    """Marks of one case of a grid. Every value occurs in a short case; `make test-all` runs all combinations."""
    return [] if short else [pytest.mark.slow]


Generate = Callable[..., list[Hypotheses]]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return random_text_model()


@pytest.fixture(scope="module")
def theirs(model: TextModel) -> Generate:
    marian = MARIAN_CLASS.build(model.network)
    ids, mask = collate_sources([model.source_tokenizer.encode(text) for text in TEXTS])

    def generate(beam: int, **settings: Any) -> list[Hypotheses]:
        """Return `beam` hypotheses for each sentence. Without a beam they have no scores."""
        options = {
            "num_beams": beam,
            "num_return_sequences": beam,
            "return_dict_in_generate": True,
            "output_scores": True,
        }
        output = marian.generate(ids, attention_mask=mask, **options, **settings)
        token_rows = [tuple(each for each in row if each not in (PAD, BOS, EOS)) for row in output.sequences.tolist()]
        scores = [0.0] * len(token_rows) if beam == 1 else output.sequences_scores.tolist()
        found = list(zip(token_rows, scores, strict=True))
        return [found[first : first + beam] for first in range(0, len(found), beam)]

    return generate


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("beam", "length_penalty", "early_stopping"),
    [
        pytest.param(*beam, stop, marks=slow_unless((i + j) % 3 == 0))
        for i, beam in enumerate(BEAMS)
        for j, stop in enumerate(STOPS)
    ],
)
def test_beam_hypotheses_and_scores_are_equal(
    model: TextModel, theirs: Generate, beam: int, length_penalty: float, early_stopping: bool | str
) -> None:
    settings: dict[str, Any] = {"max_length": 9, "length_penalty": length_penalty, "stop": STOPS[early_stopping]}
    ours = our_hypotheses(model, TEXTS, preset="hf", beam=beam, n_best=beam, **settings)
    expected = theirs(beam, max_new_tokens=9, length_penalty=length_penalty, early_stopping=early_stopping)
    assert_same(ours, expected)


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("our_options", "their_options", "beam"),
    [
        pytest.param(*each, beam, marks=slow_unless(i % 2 == (beam > 1)))
        for i, each in enumerate(SETTINGS)
        for beam in (1, 4)
    ],
    ids=str,
)
def test_other_settings_agree(
    model: TextModel, theirs: Generate, beam: int, our_options: dict[str, Any], their_options: dict[str, Any]
) -> None:
    ours = our_hypotheses(model, TEXTS, preset="hf", beam=beam, n_best=beam, **{"max_length": 9, **our_options})
    assert_same(ours, theirs(beam, **{"max_new_tokens": 9, **their_options}), scores=beam > 1)


@pytest.mark.short(1)
@pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")
@pytest.mark.parametrize("beam", [1, 2])
def test_omitted_settings_have_the_defaults_of_transformers(model: TextModel, theirs: Generate, beam: int) -> None:
    ours = our_hypotheses(model, TEXTS, preset="hf", n_best=beam, **({} if beam == 1 else {"beam": beam}))
    assert_same(ours, theirs(beam), scores=beam > 1)
    assert max(len(found[0][0]) for found in ours) == 20


def test_lengths_vary_and_our_defaults_give_other_answers(model: TextModel, theirs: Generate) -> None:
    expected = theirs(4, max_new_tokens=9)
    assert len({len(ids) for found in expected for ids, _ in found}) > 6
    ours = our_hypotheses(model, TEXTS, beam=4, n_best=4, max_length=9)
    assert sum(one != other for one, other in zip(ours, expected, strict=True)) > 20
