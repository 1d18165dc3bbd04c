"""Ensembles: means computed by hand; an ensemble of one network with itself equals that network."""

import math
from collections import deque
from collections.abc import Callable, Sequence

import pytest
import torch
from error_codes import ErrorCheck, has_code
from search_rows import make_limits
from torch import Tensor
from toy_networks import SHORT, VOCABULARY, A, B, Bigrams, BigramState, BigramTable, Trees, TreeState, logits

from attendo.decode.beam import Beam
from attendo.decode.frontier import Frontier
from attendo.decode.networks import Ensemble, EnsembleMethod, EnsembleState
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import SearchState, Stepper, Strategy, decode_step, search
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import UsageError
from attendo.model.decoder_state import StaticCacheState
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues
from attendo.text import BOS, EOS, PAD

Make = Callable[..., Transformer]
METHODS: tuple[EnsembleMethod, ...] = ("probabilities", "logarithms")
STRATEGIES: dict[str, Strategy] = {"greedy": Greedy(), "beam": Beam(3), "samples": Sampling(3, seed=2)}
LIMITS = [n % 6 + 1 for n in range(12)]
# The first network gives a 0.9. The second gives a 0.01 and prefers b or EOS.
SURE: BigramTable = {BOS: {A: 0.9, B: 0.08, EOS: 0.02}}
OPPOSED: BigramTable = {BOS: {A: 0.01, B: 0.39, EOS: 0.6}}


def ensemble_probabilities(
    *members: BigramTable, how: EnsembleMethod, weights: Sequence[float] | None = None
) -> list[float]:
    """Probabilities of a, b and EOS after BOS."""
    ensemble = Ensemble([Bigrams(table) for table in members], weights, how)
    state = EnsembleState((BigramState(torch.arange(1)),) * len(members))
    search_hypotheses, _ = ensemble.step(torch.tensor([[BOS]]), state)
    return search_hypotheses[0, 0].softmax(-1)[[A, B, EOS]].tolist()


def search_hypotheses(
    stepper: Stepper, state: SearchState, strategy: Strategy, limits: Sequence[int] = LIMITS
) -> Frontier:
    row_limits = make_limits(torch.tensor(limits))
    return deque(search(stepper, state, row_limits, strategy, [SuppressTokens()]), maxlen=1).pop().hypotheses


def assert_same(one: Frontier, other: Frontier) -> None:
    for name in ("ids", "length", "ended", "cut"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    torch.testing.assert_close(one.log_probability, other.log_probability, atol=1e-5, rtol=1e-5)


def test_the_mean_of_probabilities_equals_that_computed_by_hand() -> None:
    assert ensemble_probabilities(SURE, OPPOSED, how="probabilities") == pytest.approx([0.455, 0.235, 0.31])
    assert ensemble_probabilities(SURE, OPPOSED, how="probabilities", weights=[1.0, 3.0]) == pytest.approx(
        [0.2325, 0.3125, 0.455]
    )


def test_the_mean_of_logarithms_equals_that_computed_by_hand() -> None:
    """Square roots of .9 · .01, .08 · .39 and .02 · .6, normalised to sum 1. Weights give other exponents."""
    roots = [math.sqrt(0.009), math.sqrt(0.0312), math.sqrt(0.012)]
    assert ensemble_probabilities(SURE, OPPOSED, how="logarithms") == pytest.approx(
        [root / sum(roots) for root in roots]
    )
    powers = [0.9**0.25 * 0.01**0.75, 0.08**0.25 * 0.39**0.75, 0.02**0.25 * 0.6**0.75]
    weighted = ensemble_probabilities(SURE, OPPOSED, how="logarithms", weights=[0.5, 1.5])
    assert weighted == pytest.approx([power / sum(powers) for power in powers])


def test_probabilities_follow_the_sure_member_logarithms_the_opposed() -> None:
    assert (
        max(ensemble_probabilities(SURE, OPPOSED, how="probabilities"))
        == ensemble_probabilities(SURE, OPPOSED, how="probabilities")[0]
    )
    assert (
        min(ensemble_probabilities(SURE, OPPOSED, how="logarithms"))
        == ensemble_probabilities(SURE, OPPOSED, how="logarithms")[0]
    )


def test_a_beam_over_two_tables_equals_a_beam_over_their_mean() -> None:
    other: BigramTable = {BOS: {A: 0.2, B: 0.7, EOS: 0.1}, A: {B: 0.3, EOS: 0.3, A: 0.4}, B: {EOS: 0.1, A: 0.3, B: 0.6}}
    mean = {last: {token: (SHORT[last][token] + other[last][token]) / 2 for token in (A, B, EOS)} for last in SHORT}
    rows = BigramState(torch.arange(1))
    ensemble = Ensemble([Bigrams(SHORT), Bigrams(other)])
    ours = search_hypotheses(ensemble, EnsembleState((rows, rows)), Beam(3), [5])
    assert ours.ended.any()
    assert_same(ours, search_hypotheses(Bigrams(mean), rows, Beam(3), [5]))


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_network_ensembled_with_itself_gives_its_own_answers(name: str, how: EnsembleMethod) -> None:
    """Sentences leave the batch and rows are reordered: the states of all members must follow."""
    state = TreeState.start(*range(len(LIMITS)))
    ensemble = Ensemble([Trees(), Trees(), Trees()], how=how)
    ours = search_hypotheses(ensemble, EnsembleState((state,) * 3), STRATEGIES[name])
    assert_same(ours, search_hypotheses(Trees(), state, STRATEGIES[name]))


def test_member_states_follow_their_rows_and_sentences() -> None:
    """Every sentence has two trees of logits. Each token has the mean probability of both after the same prefix."""
    one, other = TreeState.start(*range(12)), TreeState.start(*range(100, 112))
    answers = search_hypotheses(Ensemble([Trees(), Trees()]), EnsembleState((one, other)), Beam(3))
    for row, ids in enumerate(answers.ids.tolist()):
        prefix, total = (BOS,), 0.0
        for token in (each for each in ids[1:] if each != PAD):
            probabilities = [logits(tree + row // 3, prefix).softmax(-1)[token].item() for tree in (0, 100)]
            total += math.log(sum(probabilities) / 2)
            prefix = (*prefix, token)
        assert answers.log_probability[row].item() == pytest.approx(total, abs=1e-4)


def sources(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(6) < torch.randint(2, 7, (count, 1), generator=generator)
    return torch.randint(4, 17, (count, 6), generator=generator) * mask, mask


@pytest.mark.parametrize("how", METHODS)
def test_networks_of_different_sizes_form_an_ensemble(small_network: Make, how: EnsembleMethod) -> None:
    small, large = small_network(seed=1), small_network(seed=2, d_model=24, num_decoder_layers=3, positions="rotary")
    ids, mask = sources(4)
    ensemble = Ensemble([small, large], how=how)
    state = ensemble.start(ensemble.encode(ids, mask))
    target = torch.tensor([[BOS, 5, 6]] * 4)
    with torch.inference_mode():
        ours, _ = ensemble.step(target, state)
        each = [network(ids, target, mask).softmax(-1) for network in (small, large)]
    mean = (each[0] + each[1]) / 2 if how == "probabilities" else (each[0] * each[1]).sqrt()
    torch.testing.assert_close(ours.softmax(-1), mean / mean.sum(-1, keepdim=True), atol=1e-6, rtol=1e-4)


def static_state(network: Transformer, start: object, rows: int, capacity: int) -> StaticCacheState:
    heads, width = network.config.num_heads, network.config.head_width
    storage = [KeysValues(*(torch.zeros(rows, heads, capacity, width) for _ in range(2))) for _ in network.decoder]
    return StaticCacheState.empty(start, storage, reorderable=True)


def test_members_may_use_static_caches(small_network: Make) -> None:
    networks = [small_network(seed=1, tie="none"), small_network(seed=2, tie="none", d_model=24)]
    for network in networks:
        with torch.no_grad():  # answers differ, and some end before the limit
            network.output.weight.mul_(3.0)
            network.output.weight[EOS].mul_(2.0)
    ensemble = Ensemble(networks)
    with torch.inference_mode():
        state = ensemble.start(ensemble.encode(*sources(4)))
        grown = search_hypotheses(ensemble, state, Beam(3), [5] * 4)
        pairs = zip(ensemble.members, state.members, strict=True)
        state = EnsembleState(tuple(static_state(network, start, 12, 7) for network, start in pairs))
        frontier = Beam(3).start(make_limits(torch.tensor([5] * 4)))
        while frontier.open.any():
            state, frontier = decode_step(ensemble, state, frontier, Beam(3), [SuppressTokens()])
    assert_same(frontier.hypotheses, grown)
    assert len({*grown.length.tolist()}) > 1
    assert grown.ended.any()


def test_networks_without_an_encoder_start_without_memory(small_network: Make) -> None:
    network = small_network(num_encoder_layers=0)
    ensemble = Ensemble([network, network])
    with torch.inference_mode():
        ours, _ = ensemble.step(torch.tensor([[BOS, 7]]), ensemble.start())
        theirs = network(None, torch.tensor([[BOS, 7]]))
    torch.testing.assert_close(ours, theirs.log_softmax(-1))


def test_another_vocabulary_is_rejected_by_the_constructor(small_network: Make) -> None:
    with pytest.raises(
        UsageError,
        check=has_code("ensemble_vocabulary_size_mismatch", quantity="tokens of the target vocabulary", sizes="17, 19"),
    ):
        Ensemble([small_network(), small_network(vocab_size=19)])
    sizes = {"vocab_size": None, "source_vocab_size": 21, "target_vocab_size": 17, "tie": "output"}
    with pytest.raises(
        UsageError,
        check=has_code("ensemble_vocabulary_size_mismatch", quantity="tokens of the source vocabulary", sizes="17, 21"),
    ):
        Ensemble([small_network(), small_network(**sizes)])


class Wider(Bigrams):
    def step(self, ids: Tensor, state: BigramState) -> tuple[Tensor, BigramState]:
        search_hypotheses, state = super().step(ids, state)
        return torch.cat((search_hypotheses, search_hypotheses[..., :1]), dim=-1), state


def test_another_logit_size_is_rejected_at_the_first_step() -> None:
    ensemble, rows = Ensemble([Bigrams(SHORT), Wider(SHORT)]), BigramState(torch.arange(1))
    sizes = f"{VOCABULARY}, {VOCABULARY + 1}"
    error = has_code("ensemble_vocabulary_size_mismatch", quantity="tokens in the logits", sizes=sizes)
    with pytest.raises(UsageError, check=error):
        ensemble.step(torch.tensor([[BOS]]), EnsembleState((rows, rows)))


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ([1.0], has_code("ensemble_weight_count_mismatch", members=2, weights=1)),
        ([1.0, 0.0], has_code("ensemble_weight_not_positive", weight=0.0)),
        ([1.0, -1.0], has_code("ensemble_weight_not_positive", weight=-1.0)),
        ([1.0, math.nan], has_code("ensemble_weight_not_positive", weight="nan")),
        ([1.0, math.inf], has_code("ensemble_weight_not_positive", weight="inf")),
    ],
)
def test_invalid_weights_are_rejected(weights: list[float], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        Ensemble([Bigrams(SHORT)] * 2, weights)


def test_an_ensemble_needs_members_with_an_encoder() -> None:
    with pytest.raises(UsageError, check=has_code("ensemble_empty")):
        Ensemble([])
    with pytest.raises(UsageError, check=has_code("ensemble_member_without_encoder", kinds="Bigrams")):
        Ensemble([Bigrams(SHORT)]).start()
