"""Recorded searches: the answers of the unrecorded, and a record from which every decision can be made again."""

import json
import math
from collections import Counter, deque
from collections.abc import Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import get_args

import pytest
import torch
from tables import ENDLESS, SHORT, VOCABULARY, A, B, Bigrams, Chances, Rows, Said, Trees, logits
from torch import Tensor

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


def found(strategy: Strategy, limits: Sequence[int] = LIMITS, rules: Sequence[Rule] = (SuppressTokens(),)) -> Frontier:
    state, asked = Said.nothing(*range(len(limits))), RowLimits.make(torch.tensor(limits))
    return deque(search(Trees(), state, asked, strategy, rules), maxlen=1).pop().hypotheses


@cache
def recorded(strategy: Strategy, limits: tuple[int, ...] = LIMITS) -> list[SearchTree]:
    recorder = TreeRecorder(strategy)
    found(recorder, limits)
    return recorder.trees


def by_hand(table: Chances, strategy: Strategy, limit: int, *rules: Rule) -> SearchTree:
    recorder = TreeRecorder(strategy)
    deque(
        search(
            Bigrams(table),
            Rows(torch.arange(1)),
            RowLimits.make(torch.tensor([limit])),
            recorder,
            [SuppressTokens(), *rules],
        )
    )
    return recorder.trees[0]


def told(tree: SearchTree) -> list[tuple[int, list[int], str]]:
    return [(node.step, tree.ids(node), node.fate) for node in tree.nodes]


def steps(tree: SearchTree) -> list[list[SearchNode]]:
    return [list(nodes) for _, nodes in groupby(tree.nodes, lambda node: node.step)]


def said(ids: Sequence[int]) -> list[int]:
    return [token for token in ids[1:] if token != PAD]


@pytest.mark.short(5)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_recorded_search_gives_the_answers_of_the_unrecorded(name: str) -> None:
    recorder = TreeRecorder(STRATEGIES[name])
    ours, theirs = found(recorder), found(STRATEGIES[name])
    assert isinstance(recorder, Strategy)
    assert recorder.width == STRATEGIES[name].width
    for field in ("ids", "length", "log_probability", "penalty", "ended", "cut"):
        assert torch.equal(getattr(ours, field), getattr(theirs, field))


@pytest.mark.short(5)
@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_left_in_the_tree_are_the_answers(name: str) -> None:
    answers, trees = found(STRATEGIES[name]), recorded(STRATEGIES[name])
    ranking = getattr(STRATEGIES[name], "ranking", None)
    scores = [None] * answers.length.size(0) if ranking is None else ranking.score(answers).tolist()
    for sentence in range(len(LIMITS)):
        first = sentence * answers.width
        rows = [row for row in range(first, first + answers.width) if answers.log_probability[row] != NEG_INF]
        expected = [(said(answers.ids[row].tolist()), bool(answers.cut[row]), scores[row]) for row in rows]
        left = [(tree, node) for tree in trees if tree.sentence == sentence for node in tree.final_nodes]
        ours = [(tree.ids(node), node.fate == "cut", node.score) for tree, node in left]
        assert sorted(ours, key=str) == sorted(expected, key=str)
        values = [node.value for _, node in left]
        assert sorted(values) == pytest.approx(sorted(answers.value[rows].tolist()), abs=1e-6)


@pytest.mark.parametrize("name", BEAMS)
def test_replaying_the_record_makes_every_decision_again(name: str) -> None:
    beam, fates = BEAMS[name], set()
    for tree in recorded(beam):
        finished: list[SearchNode] = []
        for nodes in steps(tree):
            looked_at = [node for node in nodes if node.fate != "forbidden" and node.id is not None]
            last = all(node.fate != "goes on" for node in nodes)
            assert len(looked_at) <= 2 * beam.width
            assert all(one.value >= other.value - 1e-6 for one, other in pairwise(looked_at))
            ends = [node for node in looked_at[: beam.width] if node.id == EOS]
            going = [node for node in looked_at if node.id != EOS][: beam.width]
            cut = [node for node in nodes if node.id is None]
            ranked = sorted([*finished, *ends, *cut], key=lambda node: (node.id is None, -node.score))
            kept, pushed = ranked[: beam.max_finished], ranked[beam.max_finished :]
            assert all(node.fate == "pushed out by better finished ones" for node in pushed)
            assert all(node.pushed_out_at == nodes[0].step for node in pushed)
            assert all(node.fate == "goes on" or last for node in going)
            for node in looked_at:
                if node not in (*ends, *going):
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
def test_all_continuations_that_count_are_in_the_record(name: str) -> None:
    """Worked out from the tree of logits alone: the best of all that the rows of a step could be continued by."""
    compared = 0
    for tree in recorded(STRATEGIES[name]):
        if tree.group > 0:  # what it loses to earlier groups is no matter of the logits
            continue
        rows: list[tuple[float, list[int]]] = [(0.0, [])]
        for nodes in steps(tree):
            every = [
                (value + log_probability, [*ids, token])
                for value, ids in rows
                for token, log_probability in enumerate(logits(tree.sentence, (BOS, *ids)).log_softmax(-1).tolist())
                if token not in (PAD, BOS)
            ]
            best = sorted(every, reverse=True)[: 2 * tree.width]
            looked_at = [node for node in nodes if node.fate != "forbidden" and node.id is not None]
            assert [tree.ids(node) for node in looked_at] == [ids for _, ids in best]
            assert [node.value for node in looked_at] == pytest.approx([value for value, _ in best], abs=1e-5)
            rows = [(node.value, tree.ids(node)) for node in nodes if node.fate == "goes on"]
            compared += len(best)
    assert compared > 40


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_value_is_the_sum_along_the_path(name: str) -> None:
    penalised = 0
    for tree in recorded(STRATEGIES[name]):
        for node in tree.nodes:
            before = 0.0 if node.parent is None else tree.nodes[node.parent].value
            lost = before + node.log_probability - node.value
            assert lost == pytest.approx(0.0, abs=1e-5) or tree.group > 0
            penalised += lost > 0.5
    assert (penalised > 0) == (name == "diverse")


@pytest.mark.parametrize("name", STRATEGIES)
def test_only_what_goes_on_is_continued(name: str) -> None:
    for tree in recorded(STRATEGIES[name]):
        continued = {node.parent for node in tree.nodes}
        assert continued - {None} <= {node.number for node in tree.nodes if node.fate == "goes on"}
        assert all((node.parent is None) == (node.step == 1) for node in tree.nodes)


@pytest.mark.short(5)
@pytest.mark.parametrize("name", STRATEGIES)
def test_D1_a_sentence_has_the_same_tree_alone_and_among_others(name: str) -> None:
    among = recorded(STRATEGIES[name], (4, 1, 5, 3))
    numbers = torch.tensor([2])
    recorder = TreeRecorder(STRATEGIES[name])
    asked = RowLimits(torch.tensor([5]), torch.tensor([0]), torch.zeros(1, 0, dtype=torch.long), numbers)
    deque(search(Trees(), Said(numbers), asked, recorder, [SuppressTokens()]))
    alone = recorder.trees
    assert alone == [tree for tree in among if tree.sentence == 2]
    assert len(alone[0].nodes) > 3


def test_the_fates_of_a_beam_worked_out_by_hand() -> None:
    """Two rows: a .6 b .3 (eos .1 comes third) · ab .42, b-eos .15 finishes, ba .12 goes on · ab-eos .21 finishes."""
    tree = by_hand(SHORT, Beam(2, stop="first"), 9)
    assert told(tree) == [
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


def test_what_finished_first_is_pushed_out_by_what_is_better() -> None:
    """eos .06 and a-eos .054 fill a beam of two before a b eos, .729, has ended."""
    table: Chances = {
        BOS: {A: 0.9, EOS: 0.06, B: 0.04},
        A: {B: 0.9, EOS: 0.06, A: 0.04},
        B: {EOS: 0.9, A: 0.06, B: 0.04},
    }
    tree = by_hand(table, Beam(2, Ranking("none")), 9)
    by_ids = {tuple(tree.ids(node)): node for node in tree.nodes}
    assert by_ids[A, EOS].fate == "pushed out by better finished ones"
    assert by_ids[A, EOS].pushed_out_at == 3
    assert by_ids[EOS,].fate == by_ids[A, B, EOS].fate == "finished"
    assert by_ids[EOS,].pushed_out_at is None


def test_rows_at_the_limit_are_cut_and_their_continuations_beyond_it() -> None:
    tree = by_hand({BOS: {A: 0.6, B: 0.4}, A: {A: 0.7, B: 0.3}, B: {A: 0.6, B: 0.4}}, Beam(2), 1)
    assert [each for each in told(tree) if each[0] == 2] == [
        (2, [A, A], "beyond the limit"),
        (2, [B, A], "beyond the limit"),
        (2, [A, B], "beyond the limit"),
        (2, [B, B], "beyond the limit"),
        (2, [A], "cut"),
        (2, [B], "cut"),
    ]
    assert [node.id for node in tree.final_nodes] == [None, None]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(1)])
def test_a_greedy_row_is_cut_where_it_would_go_on(strategy: Strategy) -> None:
    tree = by_hand(ENDLESS, strategy, 1)
    assert tree.nodes[0].fate == "goes on"
    assert [each for each in told(tree) if each[2] == "cut"] == [(2, [B], "cut")]
    assert (2, [B, B], "beyond the limit") in told(tree)


class OneToken(Rule):
    """After it nothing may be said, not even the end."""

    def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
        return log_probs.masked_fill(frontier.length[:, None] > 0, NEG_INF)


@pytest.mark.parametrize(("strategy", "left"), [(Greedy(), [[A]]), (Beam(2), [[A], [B]])])
def test_rows_that_may_say_nothing_more_are_cut(strategy: Strategy, left: list[list[int]]) -> None:
    tree = by_hand(SHORT, strategy, 9, OneToken())
    assert [ids for step, ids, fate in told(tree) if (step, fate) == (2, "cut")] == left
    assert {fate for step, _, fate in told(tree) if step == 2} == {"cut", "forbidden"}


class NothingAfterB(Rule):
    def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
        return log_probs.masked_fill(frontier.last == B, NEG_INF)


def test_a_row_is_cut_once_while_others_go_on() -> None:
    recorder, asked = TreeRecorder(Sampling(6, seed=4)), RowLimits.make(torch.tensor([9]))
    *_, last = search(Bigrams(SHORT), Rows(torch.arange(1)), asked, recorder, [SuppressTokens(), NothingAfterB()])
    cut = [node for node in recorder.trees[0].nodes if node.id is None]
    assert sorted(node.row for node in cut) == last.cut.nonzero()[:, 0].tolist()
    assert len({node.step for node in cut}) > 1


def test_of_a_greedy_row_the_few_best_are_told() -> None:
    recorder = TreeRecorder(Greedy(), num_candidates=2)
    deque(
        search(Bigrams(SHORT), Rows(torch.arange(1)), RowLimits.make(torch.tensor([9])), recorder, [SuppressTokens()])
    )
    assert told(recorder.trees[0]) == [
        (1, [A], "goes on"),
        (1, [B], "not chosen"),
        (2, [A, B], "goes on"),
        (2, [A, EOS], "not chosen"),
        (3, [A, B, EOS], "finished"),
        (3, [A, B, A], "not chosen"),
    ]


def test_a_sample_is_told_though_it_is_not_among_the_few_best() -> None:
    recorder = TreeRecorder(Sampling(8, seed=3), num_candidates=1)
    answers = found(recorder, [4])
    tree = recorder.trees[0]
    chosen = [node for node in tree.nodes if node.fate in ("goes on", "finished")]
    unlikely = [node for node in chosen if node.log_probability < math.log(1 / VOCABULARY)]
    assert unlikely
    assert sorted(map(tree.ids, tree.final_nodes)) == sorted(said(ids) for ids in answers.ids.tolist())


def test_of_samples_that_say_the_same_each_row_has_its_own_fate() -> None:
    recorder, asked = TreeRecorder(Sampling(12, seed=1)), RowLimits.make(torch.tensor([4]))
    *_, last = search(Bigrams(SHORT), Rows(torch.arange(1)), asked, recorder, [SuppressTokens()])
    tree, rows = recorder.trees[0], [said(ids) for ids in last.ids.tolist()]
    assert sorted((node.row, tree.ids(node)) for node in tree.final_nodes) == list(enumerate(rows))
    ended = [ids for ids in rows if ids[-1] == EOS]
    assert len({*map(tuple, ended)}) < len(ended)


def test_what_a_rule_forbade_is_told_where_it_would_have_been_among_the_best() -> None:
    tree = by_hand(SHORT, Beam(2, stop="first"), 9, SuppressTokens((A,)))
    forbidden = [(step, ids) for step, ids, fate in told(tree) if fate == "forbidden"]
    assert forbidden == [(1, [A]), (2, [B, A])]
    assert math.exp(tree.nodes[0].value) == pytest.approx(0.3)
    first = next(node for node in tree.nodes if node.fate == "forbidden")
    assert math.exp(first.log_probability) == pytest.approx(0.6)
    assert not any(node.parent == first.number for node in tree.nodes)


def test_the_groups_of_a_diverse_beam_have_trees_of_their_own() -> None:
    """The first loses nothing to others and is a beam. The second finds a .6 at the price of 2 and takes b .3."""
    trees = recorded(STRATEGIES["diverse"], (4, 5))
    assert [(tree.sentence, tree.group, tree.width) for tree in trees] == [
        (sentence, group, 2) for sentence in (0, 1) for group in (0, 1, 2)
    ]
    assert [tree for tree in trees if tree.group == 0] == recorded(Beam(2), (4, 5))
    recorder = TreeRecorder(DiverseBeam(2, 2, strength=2.0))
    deque(
        search(Bigrams(SHORT), Rows(torch.arange(1)), RowLimits.make(torch.tensor([9])), recorder, [SuppressTokens()])
    )
    second = recorder.trees[1]
    assert told(second)[:2] == [(1, [B], "goes on"), (1, [EOS], "ends, but not among the best W")]
    first, chosen = recorder.trees[0].nodes[0], second.nodes[0]
    assert (first.id, chosen.id) == (A, B)


def test_the_last_search_of_a_number_is_the_one_that_is_told() -> None:
    recorder = TreeRecorder(Beam(2))
    found(recorder, [5, 5, 5])
    found(recorder, [1, 1])
    long, short = recorded(Beam(2), (5, 5, 5)), recorded(Beam(2), (1, 1))
    assert recorder.trees == [*short, long[2]]
    assert short != long[:2]


def test_a_tree_becomes_json_and_lines_of_text() -> None:
    tree = by_hand(SHORT, Beam(2, stop="first"), 9)
    plain = json.loads(json.dumps(tree.as_dict(), allow_nan=False))
    assert SearchTree(**{**plain, "nodes": tuple(SearchNode(**node) for node in plain["nodes"])}) == tree
    lines = tree.text({A: "a", B: "b", EOS: "end", UNK: "?"}.__getitem__).splitlines()
    assert len(lines) == 1 + 3 + len(tree.nodes)
    assert lines[1] == "step 1"
    assert lines[2].split() == ["0", "a", "-0.511", "-0.511", "goes", "on"]
    assert lines[8].split() == ["5", "←", "1", "end", "-0.693", "-1.897", "finished"]
    assert all(line == line.rstrip() for line in lines)


def test_of_a_constrained_beam_what_got_no_place_is_told_with_the_reason() -> None:
    strategy = ConstrainedBeam(2, constraints={0: [[B, A]]})
    tree = recorded(strategy, (3,))[0]
    fates = Counter(node.fate for node in tree.nodes)
    for reason in ("ends, but phrases are missing", "its bank is full", "no room left for the phrases"):
        assert fates[reason] > 0
    said = {tuple(tree.ids(node)) for node in tree.nodes}
    assert len(said) == len([node for node in tree.nodes if node.id is not None])  # each is told once
    for node in tree.nodes:
        if node.fate == "ends, but phrases are missing":
            assert (B, A) not in zip(tree.ids(node), tree.ids(node)[1:], strict=False)


def test_every_fate_has_a_word_on_the_page() -> None:
    assert {*REASONS} == {*get_args(Fate)}
