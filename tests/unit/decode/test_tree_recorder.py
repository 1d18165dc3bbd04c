"""Recorded searches give the same answers, and every decision can be derived from the record."""

import json
import math
from collections import Counter, deque
from collections.abc import Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import get_args

import pytest
import torch
from search_rows import make_limits
from torch import Tensor
from toy_networks import ENDLESS, SHORT, VOCABULARY, A, B, Bigrams, BigramState, BigramTable, Trees, TreeState, logits

from attendo.decode.beam import Beam
from attendo.decode.constrained_beam import ConstrainedBeam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
from attendo.decode.ranking import Ranking
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import Rule, Strategy, search
from attendo.decode.search_tree import Fate, SearchNode, SearchTree
from attendo.decode.strategies import Greedy, Sampling
from attendo.decode.tree_recorder import TreeRecorder
from attendo.serve.explorer.decoding_routes import REASONS
from attendo.text import BOS, EOS, PAD, UNK

BEAMS = {
    "settled": Beam(3),
    "first": Beam(4, Ranking("gnmt", 0.6), "first", patience=1.5),
    "exhaustive": Beam(2, Ranking("none"), "exhaustive"),
    "impatient": Beam(4, Ranking(counts_eos=False), "first", patience=0.5),
    "one": Beam(1),
}
STRATEGIES: dict[str, Strategy] = {
    **BEAMS,
    "first come": Beam(4, stop="first_come"),
    "leader": Beam(4, Ranking("none"), "leader", num_hypotheses=2, free_end=True),
    "shrinking": Beam(4, Ranking("none"), "shrinking", free_end=True),
    "free": Beam(3, Ranking(counts_eos=False), free_end=True),
    "greedy": Greedy(),
    "free greedy": Greedy(free_end=True),
    "free samples": Sampling(2, seed=4, free_end=True),
    "samples": Sampling(3, seed=5),
    "diverse": DiverseBeam(6, 3, 0.7),
    "constrained": ConstrainedBeam(3, constraints={0: [[A]], 2: [[B, A]], 4: [[A], [UNK, B]]}),
}
LIMITS = tuple(n % 6 for n in range(12))


def search_hypotheses(
    strategy: Strategy, limits: Sequence[int] = LIMITS, rules: Sequence[Rule] = (SuppressTokens(),)
) -> Frontier:
    state, row_limits = TreeState.start(*range(len(limits))), make_limits(torch.tensor(limits))
    return deque(search(Trees(), state, row_limits, strategy, rules), maxlen=1).pop().hypotheses


@cache
def record_trees(strategy: Strategy, limits: tuple[int, ...] = LIMITS) -> list[SearchTree]:
    recorder = TreeRecorder(strategy)
    search_hypotheses(recorder, limits)
    return recorder.trees


def record_table(table: BigramTable, strategy: Strategy, limit: int, *rules: Rule) -> SearchTree:
    recorder = TreeRecorder(strategy)
    deque(
        search(
            Bigrams(table),
            BigramState(torch.arange(1)),
            make_limits(torch.tensor([limit])),
            recorder,
            [SuppressTokens(), *rules],
        )
    )
    return recorder.trees[0]


def steps_ids_fates(tree: SearchTree) -> list[tuple[int, list[int], str]]:
    return [(node.step, tree.ids(node), node.fate) for node in tree.nodes]


def steps(tree: SearchTree) -> list[list[SearchNode]]:
    return [list(nodes) for _, nodes in groupby(tree.nodes, lambda node: node.step)]


def strip_padding(ids: Sequence[int]) -> list[int]:
    return [token for token in ids[1:] if token != PAD]


@pytest.mark.short(5)
@pytest.mark.parametrize("name", STRATEGIES)
def test_recording_does_not_change_the_answers(name: str) -> None:
    recorder = TreeRecorder(STRATEGIES[name])
    ours, theirs = search_hypotheses(recorder), search_hypotheses(STRATEGIES[name])
    assert isinstance(recorder, Strategy)
    assert recorder.width == STRATEGIES[name].width
    for field in ("ids", "length", "log_probability", "penalty", "ended", "cut"):
        assert torch.equal(getattr(ours, field), getattr(theirs, field))


@pytest.mark.short(5)
@pytest.mark.parametrize("name", STRATEGIES)
def test_final_nodes_of_the_tree_are_the_answers(name: str) -> None:
    answers, trees = search_hypotheses(STRATEGIES[name]), record_trees(STRATEGIES[name])
    ranking = getattr(STRATEGIES[name], "ranking", None)
    scores = [None] * answers.length.size(0) if ranking is None else ranking.score(answers).tolist()
    for sentence in range(len(LIMITS)):
        first = sentence * answers.width
        rows = [row for row in range(first, first + answers.width) if answers.log_probability[row] != NEG_INF]
        expected = [(strip_padding(answers.ids[row].tolist()), bool(answers.cut[row]), scores[row]) for row in rows]
        final = [(tree, node) for tree in trees if tree.sentence == sentence for node in tree.final_nodes]
        ours = [(tree.ids(node), node.fate == "cut", node.score) for tree, node in final]
        assert sorted(ours, key=str) == sorted(expected, key=str)
        values = [node.value for _, node in final]
        assert sorted(values) == pytest.approx(sorted(answers.value[rows].tolist()), abs=1e-6)


@pytest.mark.parametrize("name", BEAMS)
def test_replaying_the_record_gives_the_same_decisions(name: str) -> None:
    beam, fates = BEAMS[name], set()
    for tree in record_trees(beam):
        finished: list[SearchNode] = []
        for nodes in steps(tree):
            candidates = [node for node in nodes if node.fate != "forbidden" and node.id is not None]
            last = all(node.fate != "goes on" for node in nodes)
            assert len(candidates) <= 2 * beam.width
            assert all(one.value >= other.value - 1e-6 for one, other in pairwise(candidates))
            ends = [node for node in candidates[: beam.width] if node.id == EOS]
            continuing = [node for node in candidates if node.id != EOS][: beam.width]
            cut = [node for node in nodes if node.id is None]
            ranked = sorted([*finished, *ends, *cut], key=lambda node: (node.id is None, -node.score))
            kept, pushed = ranked[: beam.max_finished], ranked[beam.max_finished :]
            assert all(node.fate == "pushed out by better finished ones" for node in pushed)
            assert all(node.pushed_out_at == nodes[0].step for node in pushed)
            assert all(node.fate == "goes on" or last for node in continuing)
            for node in candidates:
                if node not in (*ends, *continuing):
                    ended = "ends, but not among the best W"
                    other = (
                        "beyond the limit" if len(tree.ids(node)) > LIMITS[tree.sentence] else "not among the best W"
                    )
                    assert node.fate == (ended if node.id == EOS else other)
            finished = kept
            fates |= {node.fate for node in nodes}
        assert {node.number for node in finished} == {node.number for node in tree.final_nodes}
    assert fates >= {"goes on", "finished", "not among the best W", "ends, but not among the best W"}
    assert fates >= {"cut", "pushed out by better finished ones"} or beam.width == 1 or name == "exhaustive"


@pytest.mark.parametrize("name", [*BEAMS, "diverse"])
def test_all_relevant_continuations_are_recorded(name: str) -> None:
    """Computed from the logits: the best continuations of all rows of a step."""
    compared = 0
    for tree in record_trees(STRATEGIES[name]):
        if tree.group > 0:  # penalties from earlier groups are not in the logits
            continue
        rows: list[tuple[float, list[int]]] = [(0.0, [])]
        for nodes in steps(tree):
            continuations = [
                (value + log_probability, [*ids, token])
                for value, ids in rows
                for token, log_probability in enumerate(logits(tree.sentence, (BOS, *ids)).log_softmax(-1).tolist())
                if token not in (PAD, BOS)
            ]
            best = sorted(continuations, reverse=True)[: 2 * tree.width]
            candidates = [node for node in nodes if node.fate != "forbidden" and node.id is not None]
            assert [tree.ids(node) for node in candidates] == [ids for _, ids in best]
            assert [node.value for node in candidates] == pytest.approx([value for value, _ in best], abs=1e-5)
            rows = [(node.value, tree.ids(node)) for node in nodes if node.fate == "goes on"]
            compared += len(best)
    assert compared > 40


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_value_is_the_sum_along_the_path(name: str) -> None:
    penalised = 0
    for tree in record_trees(STRATEGIES[name]):
        for node in tree.nodes:
            before = 0.0 if node.parent is None else tree.nodes[node.parent].value
            penalty = before + node.log_probability - node.value
            assert penalty == pytest.approx(0.0, abs=1e-5) or tree.group > 0
            penalised += penalty > 0.5
    assert (penalised > 0) == (name == "diverse")


@pytest.mark.parametrize("name", STRATEGIES)
def test_only_nodes_that_go_on_have_children(name: str) -> None:
    for tree in record_trees(STRATEGIES[name]):
        continued = {node.parent for node in tree.nodes}
        assert continued - {None} <= {node.number for node in tree.nodes if node.fate == "goes on"}
        assert all((node.parent is None) == (node.step == 1) for node in tree.nodes)


@pytest.mark.short(5)
@pytest.mark.parametrize("name", STRATEGIES)
def test_D1_a_sentence_has_the_same_tree_alone_and_among_others(name: str) -> None:
    among = record_trees(STRATEGIES[name], (4, 1, 5, 3))
    numbers = torch.tensor([2])
    recorder = TreeRecorder(STRATEGIES[name])
    row_limits = RowLimits(torch.tensor([5]), torch.tensor([0]), torch.zeros(1, 0, dtype=torch.long), numbers)
    deque(search(Trees(), TreeState(numbers), row_limits, recorder, [SuppressTokens()]))
    alone = recorder.trees
    assert alone == [tree for tree in among if tree.sentence == 2]
    assert len(alone[0].nodes) > 3


def test_the_fates_of_a_beam_equal_those_computed_by_hand() -> None:
    """Step 1: a .6, b .3 (eos .1 is third). Step 2: ab .42, b eos .15 finishes, ba .12. Step 3: ab eos .21 finishes."""
    tree = record_table(SHORT, Beam(2, stop="first"), 9)
    assert steps_ids_fates(tree) == [
        (1, [A], "goes on"),
        (1, [B], "goes on"),
        (1, [EOS], "ends, but not among the best W"),
        (1, [UNK], "not among the best W"),
        (2, [A, B], "goes on"),
        (2, [B, EOS], "finished"),
        (2, [A, EOS], "ends, but not among the best W"),
        (2, [B, A], "goes on"),
        (3, [A, B, EOS], "finished"),
        (3, [A, B, A], "left, as enough have finished"),
        (3, [B, A, B], "left, as enough have finished"),
        (3, [A, B, B], "not among the best W"),
    ]
    values = [math.exp(node.value) for node in tree.nodes if node.step == 2]
    assert values == pytest.approx([0.42, 0.15, 0.12, 0.12])
    ended = next(node for node in tree.nodes if tree.ids(node) == [B, EOS])
    assert math.exp(ended.log_probability) == pytest.approx(0.5)
    assert ended.score == pytest.approx(math.log(0.15) / 2)
    assert ended.row == 1


def test_better_hypotheses_push_out_earlier_finished_ones() -> None:
    """eos .06 and a eos .054 fill a beam of two before a b eos, .729, ends."""
    table: BigramTable = {
        BOS: {A: 0.9, EOS: 0.06, B: 0.04},
        A: {B: 0.9, EOS: 0.06, A: 0.04},
        B: {EOS: 0.9, A: 0.06, B: 0.04},
    }
    tree = record_table(table, Beam(2, Ranking("none")), 9)
    by_ids = {tuple(tree.ids(node)): node for node in tree.nodes}
    assert by_ids[A, EOS].fate == "pushed out by better finished ones"
    assert by_ids[A, EOS].pushed_out_at == 3
    assert by_ids[EOS,].fate == by_ids[A, B, EOS].fate == "finished"
    assert by_ids[EOS,].pushed_out_at is None


def test_rows_at_the_limit_are_cut_and_continuations_marked() -> None:
    tree = record_table({BOS: {A: 0.6, B: 0.4}, A: {A: 0.7, B: 0.3}, B: {A: 0.6, B: 0.4}}, Beam(2), 1)
    assert [each for each in steps_ids_fates(tree) if each[0] == 2] == [
        (2, [A, A], "beyond the limit"),
        (2, [B, A], "beyond the limit"),
        (2, [A, B], "beyond the limit"),
        (2, [B, B], "beyond the limit"),
        (2, [A], "cut"),
        (2, [B], "cut"),
    ]
    assert [node.id for node in tree.final_nodes] == [None, None]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(1)])
def test_a_greedy_row_is_cut_at_the_limit(strategy: Strategy) -> None:
    tree = record_table(ENDLESS, strategy, 1)
    assert tree.nodes[0].fate == "goes on"
    assert [each for each in steps_ids_fates(tree) if each[2] == "cut"] == [(2, [B], "cut")]
    assert (2, [B, B], "beyond the limit") in steps_ids_fates(tree)


class OneToken(Rule):
    """Forbids every token after the first, EOS included."""

    def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
        return log_probs.masked_fill(frontier.length[:, None] > 0, NEG_INF)


@pytest.mark.parametrize(("strategy", "final"), [(Greedy(), [[A]]), (Beam(2), [[A], [B]])])
def test_rows_without_allowed_tokens_are_cut(strategy: Strategy, final: list[list[int]]) -> None:
    tree = record_table(SHORT, strategy, 9, OneToken())
    assert [ids for step, ids, fate in steps_ids_fates(tree) if (step, fate) == (2, "cut")] == final
    assert {fate for step, _, fate in steps_ids_fates(tree) if step == 2} == {"cut", "forbidden"}


class NothingAfterB(Rule):
    def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
        return log_probs.masked_fill(frontier.last == B, NEG_INF)


def test_a_row_is_cut_only_once() -> None:
    recorder, row_limits = TreeRecorder(Sampling(6, seed=4)), make_limits(torch.tensor([9]))
    *_, last = search(
        Bigrams(SHORT), BigramState(torch.arange(1)), row_limits, recorder, [SuppressTokens(), NothingAfterB()]
    )
    cut = [node for node in recorder.trees[0].nodes if node.id is None]
    assert sorted(node.row for node in cut) == last.cut.nonzero()[:, 0].tolist()
    assert len({node.step for node in cut}) > 1


def test_a_greedy_record_has_the_best_candidates() -> None:
    recorder = TreeRecorder(Greedy(), num_candidates=2)
    deque(
        search(
            Bigrams(SHORT),
            BigramState(torch.arange(1)),
            make_limits(torch.tensor([9])),
            recorder,
            [SuppressTokens()],
        )
    )
    assert steps_ids_fates(recorder.trees[0]) == [
        (1, [A], "goes on"),
        (1, [B], "not chosen"),
        (2, [A, B], "goes on"),
        (2, [A, EOS], "not chosen"),
        (3, [A, B, EOS], "finished"),
        (3, [A, B, A], "not chosen"),
    ]


def test_a_sample_outside_the_best_candidates_is_recorded() -> None:
    recorder = TreeRecorder(Sampling(8, seed=3), num_candidates=1)
    answers = search_hypotheses(recorder, [4])
    tree = recorder.trees[0]
    chosen = [node for node in tree.nodes if node.fate in ("goes on", "finished")]
    unlikely = [node for node in chosen if node.log_probability < math.log(1 / VOCABULARY)]
    assert unlikely
    assert sorted(map(tree.ids, tree.final_nodes)) == sorted(strip_padding(ids) for ids in answers.ids.tolist())


def test_equal_samples_have_one_node_per_row() -> None:
    recorder, row_limits = TreeRecorder(Sampling(12, seed=1)), make_limits(torch.tensor([4]))
    *_, last = search(Bigrams(SHORT), BigramState(torch.arange(1)), row_limits, recorder, [SuppressTokens()])
    tree, rows = recorder.trees[0], [strip_padding(ids) for ids in last.ids.tolist()]
    assert sorted((node.row, tree.ids(node)) for node in tree.final_nodes) == list(enumerate(rows))
    ended = [ids for ids in rows if ids[-1] == EOS]
    assert len({*map(tuple, ended)}) < len(ended)


def test_forbidden_candidates_among_the_best_are_recorded() -> None:
    tree = record_table(SHORT, Beam(2, stop="first"), 9, SuppressTokens((A,)))
    forbidden = [(step, ids) for step, ids, fate in steps_ids_fates(tree) if fate == "forbidden"]
    assert forbidden == [(1, [A]), (2, [B, A])]
    assert math.exp(tree.nodes[0].value) == pytest.approx(0.3)
    first = next(node for node in tree.nodes if node.fate == "forbidden")
    assert math.exp(first.log_probability) == pytest.approx(0.6)
    assert not any(node.parent == first.number for node in tree.nodes)


def test_each_group_of_a_diverse_beam_has_its_own_tree() -> None:
    """The first group has no penalty and equals a beam. The second pays 2 for a .6 and takes b .3."""
    trees = record_trees(STRATEGIES["diverse"], (4, 5))
    assert [(tree.sentence, tree.group, tree.width) for tree in trees] == [
        (sentence, group, 2) for sentence in (0, 1) for group in (0, 1, 2)
    ]
    assert [tree for tree in trees if tree.group == 0] == record_trees(Beam(2), (4, 5))
    recorder = TreeRecorder(DiverseBeam(2, 2, strength=2.0))
    deque(
        search(
            Bigrams(SHORT),
            BigramState(torch.arange(1)),
            make_limits(torch.tensor([9])),
            recorder,
            [SuppressTokens()],
        )
    )
    second = recorder.trees[1]
    assert steps_ids_fates(second)[:2] == [(1, [B], "goes on"), (1, [EOS], "ends, but not among the best W")]
    first, chosen = recorder.trees[0].nodes[0], second.nodes[0]
    assert (first.id, chosen.id) == (A, B)


def test_a_later_search_replaces_the_tree_of_its_sentence() -> None:
    recorder = TreeRecorder(Beam(2))
    search_hypotheses(recorder, [5, 5, 5])
    search_hypotheses(recorder, [1, 1])
    long, short = record_trees(Beam(2), (5, 5, 5)), record_trees(Beam(2), (1, 1))
    assert recorder.trees == [*short, long[2]]
    assert short != long[:2]


def test_a_tree_converts_to_json_and_to_text() -> None:
    tree = record_table(SHORT, Beam(2, stop="first"), 9)
    plain = json.loads(json.dumps(tree.as_dict(), allow_nan=False))
    assert SearchTree(**{**plain, "nodes": tuple(SearchNode(**node) for node in plain["nodes"])}) == tree
    lines = tree.text({A: "a", B: "b", EOS: "end", UNK: "?"}.__getitem__).splitlines()
    assert len(lines) == 1 + 3 + len(tree.nodes)
    assert lines[1] == "step 1"
    assert lines[2].split() == ["0", "a", "-0.511", "-0.511", "goes", "on"]
    assert lines[8].split() == ["5", "←", "1", "end", "-0.693", "-1.897", "finished"]
    assert all(line == line.rstrip() for line in lines)


def test_a_constrained_beam_records_the_reason_of_each_rejection() -> None:
    strategy = ConstrainedBeam(2, constraints={0: [[B, A]]})
    tree = record_trees(strategy, (3,))[0]
    fates = Counter(node.fate for node in tree.nodes)
    for reason in ("ends, but phrases are missing", "its bank is full", "no room left for the phrases"):
        assert fates[reason] > 0
    sequences = {tuple(tree.ids(node)) for node in tree.nodes}
    assert len(sequences) == len([node for node in tree.nodes if node.id is not None])  # each is recorded once
    for node in tree.nodes:
        if node.fate == "ends, but phrases are missing":
            assert (B, A) not in zip(tree.ids(node), tree.ids(node)[1:], strict=False)


def test_every_fate_has_a_reason_on_the_page() -> None:
    assert {*REASONS} == {*get_args(Fate)}
