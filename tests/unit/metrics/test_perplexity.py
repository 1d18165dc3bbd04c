"""The perplexity of references under a model, compared with the formula on its logits."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, TARGETS, tiny_model

from attendo import __version__
from attendo.data.batch import Example, collate
from attendo.decode.config import GenerationConfig
from attendo.errors import DataError, UsageError
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
def likelihoods(model: TextModel) -> Likelihoods:
    return compute_likelihoods(model, SOURCES, TARGETS)


@dataclass(frozen=True)
class UniformModel:
    """A model that gives every token, EOS included, the probability 1 / choices."""

    choices: int
    target_tokenizer: Words = field(default_factory=lambda: Words.build(TARGETS))
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    continues_text: bool = False

    def score_tokens(self, sources: Any, targets: Any) -> list[ScoredTarget]:
        prefix_tokens = len(self.generation.target_prefix)
        return [self._scored(len(target.split()) + prefix_tokens + (not self.continues_text)) for target in targets]

    def _scored(self, tokens: int) -> ScoredTarget:
        return ScoredTarget(("x",) * tokens, (-math.log(self.choices),) * tokens)


def compute_perplexity(name: str, model: LikelihoodModel, references: Any = TARGETS) -> float:
    return perplexity(name, compute_likelihoods(model, SOURCES, references)).score.value


def test_a_text_model_implements_the_protocol(model: TextModel) -> None:
    assert isinstance(model, LikelihoodModel)


def test_perplexity_is_the_exponential_of_the_mean_loss(model: TextModel, likelihoods: Likelihoods) -> None:
    """The mean is over all tokens of all references, EOS included."""
    source, target = model.source_tokenizer, model.target_tokenizer
    pairs = [Example(source.encode(one), target.encode(other)) for one, other in zip(SOURCES, TARGETS, strict=True)]
    batch = collate(pairs)
    with torch.no_grad():
        logits = model.network(batch.source_ids, batch.target_ids, batch.source_mask)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=0)
    scored = perplexity("perplexity", likelihoods).score
    assert scored.value == pytest.approx(math.exp(float(loss)), rel=1e-5)
    assert not scored.higher_is_better
    assert scored.signature == f"perplexity|tok:words-{target.vocab_size}|eos:yes|attendo:{__version__}"


def test_word_and_character_perplexity_use_the_same_likelihood(likelihoods: Likelihoods) -> None:
    """Targets are Chinese words separated by spaces. Each character is a word, and each EOS counts as one."""
    log_probability = sum(likelihoods.log_probability)
    words = perplexity("perplexity_per_word", likelihoods).score
    assert words.value == pytest.approx(
        math.exp(-log_probability / (sum(len("".join(t.split())) + 1 for t in TARGETS)))
    )
    assert "|tok:char|eos:yes|" in words.signature
    characters = perplexity("perplexity_per_character", likelihoods).score
    assert characters.value == pytest.approx(math.exp(-log_probability / sum(len(text) + 1 for text in TARGETS)))
    assert "|tok:codepoint|eos:yes|" in characters.signature


def test_words_are_separated_by_spaces() -> None:
    likelihoods = compute_likelihoods(UniformModel(4), ["a", "b"], ["one two three", "four"])
    assert perplexity("perplexity_per_word", likelihoods).score.value == pytest.approx(4)
    assert perplexity("perplexity_per_character", likelihoods).score.value == pytest.approx(4 ** (6 / 19))
    assert "|tok:space|" in perplexity("perplexity_per_word", likelihoods).score.signature


def test_a_uniform_model_has_its_number_of_choices_as_perplexity() -> None:
    assert compute_perplexity("perplexity", UniformModel(7)) == pytest.approx(7)


def test_a_reference_of_probability_0_is_an_error(likelihoods: Likelihoods) -> None:
    scores = [float("-inf"), *likelihoods.log_probability[1:]]
    with pytest.raises(DataError, check=has_code("perplexity_infinite", count=1, lines="1")):
        perplexity("perplexity", replace(likelihoods, log_probability=scores))


def test_all_references_of_a_line_are_scored() -> None:
    both = list(zip(TARGETS, TARGETS[::-1], strict=True))
    likelihoods = compute_likelihoods(UniformModel(5), SOURCES, both)
    assert perplexity("perplexity", likelihoods).score.value == pytest.approx(5)
    assert sum(likelihoods.tokens) == 2 * sum(len(text.split()) + 1 for text in TARGETS)
    assert perplexity("perplexity", likelihoods).score.signature.startswith("perplexity|nrefs:2|tok:words-")


def test_target_prefix_symbols_do_not_count() -> None:
    likelihoods = compute_likelihoods(
        UniformModel(5, generation=GenerationConfig(target_prefix=("<2zh>",))), SOURCES, TARGETS
    )
    assert list(likelihoods.tokens) == [len(text.split()) + 1 for text in TARGETS]


def test_a_decoder_only_model_scores_continuations_without_eos() -> None:
    likelihoods = compute_likelihoods(UniformModel(5, continues_text=True), ["a", "b"], ["one two", ""])
    assert list(likelihoods.tokens) == [2, 0]
    scored = perplexity("perplexity_per_word", likelihoods)
    assert scored.score.value == pytest.approx(5)
    assert "|eos:no|" in scored.score.signature
    assert scored.score_by_label(["x", "y"])["y"].value == 1


def test_a_label_is_scored_on_its_own_lines(model: TextModel, likelihoods: Likelihoods) -> None:
    by_label = perplexity("perplexity", likelihoods).score_by_label(["x", "y", "x", "y"])
    assert list(by_label) == ["x", "y"]
    own_lines = compute_likelihoods(model, SOURCES[1::2], TARGETS[1::2])
    assert by_label["y"].value == pytest.approx(perplexity("perplexity", own_lines).score.value)
    with pytest.raises(UsageError, check=has_code("label_count_mismatch", lines=4, labels=1)):
        perplexity("perplexity", likelihoods).score_by_label(["x"])


def test_the_model_with_lower_perplexity_is_better() -> None:
    one, other = (compute_likelihoods(UniformModel(choices), SOURCES * 5, TARGETS * 5) for choices in (3, 4))
    for name in PERPLEXITIES:
        comparison = compare_perplexity(name, one, other, samples=50)
        assert comparison.one_is_better
        assert comparison.significant
        assert comparison.one.value - comparison.other.value == comparison.difference < 0
    assert compare_perplexity("perplexity", one, one, samples=50).p_value == 1


def test_samples_use_the_same_lines_for_both_models() -> None:
    """If the ratio of both models is the same for every line, it is the same for every sample."""
    lines = [f"{'a ' * n}a" for n in range(1, 30)]
    one, other = (compute_likelihoods(UniformModel(choices), lines, lines) for choices in (3, 4))
    low, high = compare_perplexity("perplexity", one, other, samples=50).interval
    assert (low, high) == pytest.approx((-1, -1))


def test_other_tokenizers_can_be_compared_only_per_word() -> None:
    one = compute_likelihoods(UniformModel(3), SOURCES, TARGETS)
    other = compute_likelihoods(UniformModel(3, target_tokenizer=Words.build(SOURCES)), SOURCES, TARGETS)
    with pytest.raises(UsageError, check=has_code("perplexity_tokenizers_differ")):
        compare_perplexity("perplexity", one, other)
    assert compare_perplexity("perplexity_per_word", one, other).difference == 0
    with pytest.raises(UsageError, check=has_code("models_scored_on_different_references")):
        compare_perplexity("perplexity", one, compute_likelihoods(UniformModel(3), SOURCES[:1], TARGETS[:1]))


def test_invalid_calls_raise_usage_error(model: TextModel) -> None:
    likelihoods = compute_likelihoods(UniformModel(3), SOURCES, TARGETS)
    with pytest.raises(
        UsageError, check=has_code("unknown_perplexity", name="perplexty", suggestion=" (did you mean perplexity?)")
    ):
        perplexity("perplexty", likelihoods)
    with pytest.raises(UsageError, check=has_code("source_reference_count_mismatch", sources=4, references=1)):
        compute_likelihoods(model, SOURCES, TARGETS[:1])
    with pytest.raises(UsageError, check=has_code("no_sources_to_score")):
        compute_likelihoods(model, [], [])
    with pytest.raises(UsageError, check=has_code("metric_needs_model", metric="perplexity")):
        score("perplexity", TARGETS, TARGETS)
    with pytest.raises(UsageError, check=has_code("metric_needs_model", metric="perplexity_per_word")):
        check_metric("perplexity_per_word")
