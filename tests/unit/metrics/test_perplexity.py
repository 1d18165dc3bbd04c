"""The perplexity of references under a model, against the plain formula on its logits."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, TARGETS, tiny_model

from attendo import __version__
from attendo.data.batch import Example, collate
from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.metrics import (
    PERPLEXITIES,
    Likelihoods,
    check_metric,
    compare_perplexity,
    compute_likelihoods,
    perplexity,
    score,
)
from attendo.metrics.perplexity import LikelihoodModel
from attendo.text import Words
from attendo.text_model import ScoredTarget, TextModel


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model(3)


@pytest.fixture(scope="module")
def found(model: TextModel) -> Likelihoods:
    return compute_likelihoods(model, SOURCES, TARGETS)


@dataclass(frozen=True)
class Certain:
    """Finds every token as probable as any other of so many, and the end of a text too."""

    choices: int
    target_tokenizer: Words = field(default_factory=lambda: Words.build(TARGETS))
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    decoder_only: bool = False

    def score_tokens(self, sources: Any, targets: Any) -> list[ScoredTarget]:
        begin = len(self.generation.target_prefix)
        return [self._scored(len(target.split()) + begin + (not self.decoder_only)) for target in targets]

    def _scored(self, tokens: int) -> ScoredTarget:
        return ScoredTarget(("x",) * tokens, (-math.log(self.choices),) * tokens)


def value(name: str, model: LikelihoodModel, references: Any = TARGETS) -> float:
    return perplexity(name, compute_likelihoods(model, SOURCES, references)).score.value


def test_a_text_model_is_all_that_is_asked_for(model: TextModel) -> None:
    assert isinstance(model, LikelihoodModel)


def test_it_is_the_exponential_of_the_mean_loss_per_token(model: TextModel, found: Likelihoods) -> None:
    """Of all tokens together, the end of every reference among them."""
    source, target = model.source_tokenizer, model.target_tokenizer
    pairs = [Example(source.encode(one), target.encode(other)) for one, other in zip(SOURCES, TARGETS, strict=True)]
    batch = collate(pairs)
    with torch.no_grad():
        logits = model.network(batch.source_ids, batch.target_ids, batch.source_mask)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=0)
    scored = perplexity("perplexity", found).score
    assert scored.value == pytest.approx(math.exp(float(loss)), rel=1e-5)
    assert not scored.higher_is_better
    assert scored.signature == f"perplexity|tok:words-{target.vocab_size}|eos:yes|attendo:{__version__}"


def test_words_and_characters_share_the_same_probability(found: Likelihoods) -> None:
    """Targets are Chinese words set apart by spaces: a character is a word there, and each end counts as one."""
    log_probability = sum(found.log_probability)
    words = perplexity("perplexity_per_word", found).score
    assert words.value == pytest.approx(
        math.exp(-log_probability / (sum(len("".join(t.split())) + 1 for t in TARGETS)))
    )
    assert "|tok:char|eos:yes|" in words.signature
    characters = perplexity("perplexity_per_character", found).score
    assert characters.value == pytest.approx(math.exp(-log_probability / sum(len(text) + 1 for text in TARGETS)))
    assert "|tok:codepoint|eos:yes|" in characters.signature


def test_words_are_what_spaces_set_apart() -> None:
    found = compute_likelihoods(Certain(4), ["a", "b"], ["one two three", "four"])
    assert perplexity("perplexity_per_word", found).score.value == pytest.approx(4)
    assert perplexity("perplexity_per_character", found).score.value == pytest.approx(4 ** (6 / 19))
    assert "|tok:space|" in perplexity("perplexity_per_word", found).score.signature


def test_a_choice_between_so_many_is_as_unsure_as_that() -> None:
    assert value("perplexity", Certain(7)) == pytest.approx(7)


def test_several_references_are_all_expected() -> None:
    both = list(zip(TARGETS, TARGETS[::-1], strict=True))
    found = compute_likelihoods(Certain(5), SOURCES, both)
    assert perplexity("perplexity", found).score.value == pytest.approx(5)
    assert sum(found.tokens) == 2 * sum(len(text.split()) + 1 for text in TARGETS)
    assert perplexity("perplexity", found).score.signature.startswith("perplexity|nrefs:2|tok:words-")


def test_symbols_that_every_answer_begins_with_do_not_count() -> None:
    found = compute_likelihoods(Certain(5, generation=GenerationConfig(target_prefix=("<2zh>",))), SOURCES, TARGETS)
    assert list(found.tokens) == [len(text.split()) + 1 for text in TARGETS]


def test_without_an_encoder_a_reference_goes_on_where_the_source_ends_and_has_no_end_of_its_own() -> None:
    found = compute_likelihoods(Certain(5, decoder_only=True), ["a", "b"], ["one two", ""])
    assert list(found.tokens) == [2, 0]
    scored = perplexity("perplexity_per_word", found)
    assert scored.score.value == pytest.approx(5)
    assert "|eos:no|" in scored.score.signature
    assert scored.score_by_label(["x", "y"])["y"].value == 1


def test_a_label_has_the_perplexity_of_its_own_lines(model: TextModel, found: Likelihoods) -> None:
    by = perplexity("perplexity", found).score_by_label(["x", "y", "x", "y"])
    assert list(by) == ["x", "y"]
    odd = compute_likelihoods(model, SOURCES[1::2], TARGETS[1::2])
    assert by["y"].value == pytest.approx(perplexity("perplexity", odd).score.value)
    with pytest.raises(UsageError, check=has_code("label_count_mismatch", lines=4, labels=1)):
        perplexity("perplexity", found).score_by_label(["x"])


def test_the_less_surprised_model_is_better() -> None:
    one, other = (compute_likelihoods(Certain(choices), SOURCES * 5, TARGETS * 5) for choices in (3, 4))
    for name in PERPLEXITIES:
        found = compare_perplexity(name, one, other, samples=50)
        assert found.one_is_better
        assert found.significant
        assert found.one.value - found.other.value == found.difference < 0
    assert compare_perplexity("perplexity", one, one, samples=50).p_value == 1


def test_samples_are_those_of_lines_drawn_for_both() -> None:
    """Where each line has the same ratio of the two, every sample has it too."""
    lines = [f"{'a ' * n}a" for n in range(1, 30)]
    one, other = (compute_likelihoods(Certain(choices), lines, lines) for choices in (3, 4))
    low, high = compare_perplexity("perplexity", one, other, samples=50).interval
    assert (low, high) == pytest.approx((-1, -1))


def test_tokens_of_two_kinds_cannot_be_compared_but_words_can() -> None:
    one = compute_likelihoods(Certain(3), SOURCES, TARGETS)
    other = compute_likelihoods(Certain(3, target_tokenizer=Words.build(SOURCES)), SOURCES, TARGETS)
    with pytest.raises(UsageError, check=has_code("perplexity_tokenizers_differ")):
        compare_perplexity("perplexity", one, other)
    assert compare_perplexity("perplexity_per_word", one, other).difference == 0
    with pytest.raises(UsageError, check=has_code("models_scored_on_different_references")):
        compare_perplexity("perplexity", one, compute_likelihoods(Certain(3), SOURCES[:1], TARGETS[:1]))


def test_mistakes_are_told(model: TextModel) -> None:
    found = compute_likelihoods(Certain(3), SOURCES, TARGETS)
    with pytest.raises(
        UsageError, check=has_code("unknown_perplexity", name="perplexty", suggestion=" (did you mean perplexity?)")
    ):
        perplexity("perplexty", found)
    with pytest.raises(UsageError, check=has_code("source_reference_count_mismatch", sources=4, references=1)):
        compute_likelihoods(model, SOURCES, TARGETS[:1])
    with pytest.raises(UsageError, check=has_code("no_sources_to_score")):
        compute_likelihoods(model, [], [])
    with pytest.raises(UsageError, check=has_code("metric_needs_model", metric="perplexity")):
        score("perplexity", TARGETS, TARGETS)
    with pytest.raises(UsageError, check=has_code("metric_needs_model", metric="perplexity_per_word")):
        check_metric("perplexity_per_word")
