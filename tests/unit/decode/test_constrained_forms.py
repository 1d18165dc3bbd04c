"""Requirements that any of several phrases satisfies, compared with all sequences."""

from itertools import product

import pytest
import torch
from test_constrained_beam import LIMIT, count_phrase, search_hypotheses, token_ids
from toy_networks import TEXT_TOKENS, VOCABULARY, A, B, log_probability

from attendo.decode.constrained_beam import ConstrainedBeam, PhraseAutomaton
from attendo.text import EOS, UNK

Forms = list[list[int]]
KINDS: dict[str, list[Forms]] = {
    "one of two tokens": [[[A], [UNK]]],
    "short or long": [[[B, UNK], [UNK]]],
    "one begins the other": [[[A], [A, B]]],
    "two requirements": [[[A, B], [B]], [[UNK], [A]]],
    "a shared form": [[[A], [B]], [[B], [UNK]]],
    "twice": [[[A], [B]], [[A], [B]]],
    "one form": [[[A, B]], [[UNK]]],
}


def is_met(ids: list[int], requirements: list[Forms]) -> list[bool]:
    """Whether each requirement is met. A requirement listed n times needs n occurrences of any of its forms."""
    met = []
    for number, forms in enumerate(requirements):
        if len(forms) == 1:
            found = count_phrase(ids, forms[0])
        elif all(len(form) == 1 for form in forms):
            found = sum(ids.count(form[0]) for form in forms)
        else:
            found = int(any(count_phrase(ids, form) for form in forms))
        met.append(found > requirements[:number].count(forms))
    return met


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_beam_finds_the_best_sequence_with_a_form_of_each_requirement(kind: str) -> None:
    trees, requirements = 3, KINDS[kind]
    last = search_hypotheses(dict.fromkeys(range(trees), requirements), [LIMIT] * trees, VOCABULARY**2)
    for tree in range(trees):
        sequences = ([*ids, EOS] for tokens in range(LIMIT + 1) for ids in product(TEXT_TOKENS, repeat=tokens))
        candidates = [ids for ids in sequences if all(is_met(ids, requirements))]
        best = max(candidates, key=lambda ids: log_probability(tree, ids) / len(ids))
        assert token_ids(last.select_sentences(torch.tensor([tree])))[0] == best


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_form_fits_into_the_smallest_limit(kind: str, width: int) -> None:
    requirements = KINDS[kind]
    smallest = next(
        n for n in range(9) if any(all(is_met([*ids], requirements)) for ids in product(TEXT_TOKENS, repeat=n))
    )
    automaton = PhraseAutomaton(requirements)
    assert automaton.count_tokens_left(automaton.start) == smallest
    constraints = dict.fromkeys(range(3), requirements)
    last = search_hypotheses(constraints, [smallest] * 3, width)
    met = ConstrainedBeam(width, constraints=constraints).find_satisfied(last)
    for tree in range(3):
        assert met[tree * width] == (True,) * len(requirements)
        assert all(is_met(token_ids(last)[tree * width], requirements))


def test_a_longer_word_satisfies_only_its_own_form() -> None:
    def extends(phrase: tuple[int, ...], token: int) -> bool:
        return phrase == (A,) and token == B

    plain, with_plural = PhraseAutomaton([[[A]]], extends), PhraseAutomaton([[[A], [A, B]]], extends)
    for automaton, met in ((plain, False), (with_plural, True)):
        assert automaton.find_satisfied(automaton.read([A])) == (True,)
        assert automaton.find_satisfied(automaton.read([A, B])) == (met,)
        assert automaton.count_tokens_left(automaton.read([A, B])) == 1 - met
    assert plain.find_satisfied(plain.read([A, B, A])) == (True,)
