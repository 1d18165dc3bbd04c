"""Traces of models that predict all tokens at once: their numbers are those of `generate`, and those of brute force."""

import itertools
import json
import math
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, parallel_model, tiny_model

from attendo.errors import UsageError
from attendo.model.parallel import LENGTH_CLASSES, ParallelTransformer, Prediction
from attendo.text import BOS, EOS, PAD
from attendo.text_model import ParallelTrace, TextModel
from attendo.text_model.parallel_trace import MIN_LINK, CtcTrace, GraphTrace, MaskPredictTrace

TEXT = SOURCES[1]
SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("graph", {}),
    ("graph", {"graph_search": "greedy"}),
    ("graph", {"graph_search": "viterbi", "path_length_penalty": 0.8}),
    ("masked", {}),
    ("masked", {"passes": 1, "length_candidates": 1}),
    ("masked", {"passes": 4, "length_candidates": 3, "allow_unk": True}),
    ("ctc", {}),
]


def predict(model: TextModel, text: str = TEXT) -> Prediction:
    network = model.network
    assert isinstance(network, ParallelTransformer)
    ids = torch.tensor([[*model.source_tokenizer.encode(text), EOS]])
    with torch.no_grad():
        return network.eval()(ids, network.empty_canvas(ids, None))


def graph(trace: ParallelTrace) -> GraphTrace:
    assert isinstance(trace.details, GraphTrace)
    return trace.details


def enumerate_paths(links: torch.Tensor) -> list[tuple[float, tuple[int, ...]]]:
    """Every path from the first to the last vertex with its log-probability, hop by hop."""
    rows, last = links.tolist(), len(links) - 1
    found = []
    for count in range(last):
        for inner in itertools.combinations(range(1, last), count):
            path = (0, *inner, last)
            found.append((sum(rows[a][b] for a, b in itertools.pairwise(path)), path))
    return found


@pytest.mark.parametrize("kind", ["masked", "graph"])
def test_a_trace_with_merged_repeats_says_so_and_shows_all_positions(kind: str) -> None:
    model, text = parallel_model(kind), "a dog ran home"
    answer = model.generate([text], merge_repeats=True)[0].best
    trace, plain = (model.trace_parallel(text, merge_repeats=each) for each in (True, False))
    assert trace.target_ids == answer.ids == tuple(token for token, _ in itertools.groupby(plain.target_ids))
    assert len(answer.ids) < len(plain.target_ids)
    assert (trace.options["merge_repeats"], plain.options["merge_repeats"]) == (True, False)
    if isinstance(trace.details, MaskPredictTrace) and isinstance(plain.details, MaskPredictTrace):
        assert trace.details.passes == plain.details.passes
        assert [each.text for each in trace.details.lengths if each.chosen] == [answer.text]
    else:
        assert trace.details == plain.details
        assert not model.trace_parallel(text, merge_repeats=True, graph_search="tokens").options["merge_repeats"]


@pytest.mark.parametrize(("kind", "options"), SEARCHES)
def test_the_trace_has_the_answer_of_generate(kind: str, options: dict[str, Any]) -> None:
    model = parallel_model(kind)
    for text in SOURCES[::3]:
        trace, answer = model.trace_parallel(text, **options), model.generate([text], **options)[0].best
        assert (trace.text, trace.target_ids, trace.cut) == (answer.text, answer.ids, answer.cut)
        assert trace.log_probability == pytest.approx(answer.log_probability, abs=1e-5)
        assert trace.source_pieces == (*text.split(), "</s>")


@pytest.mark.parametrize("options", [{"graph_search": "tokens"}, {"beam": 3}, {"prefix": "我"}])
def test_the_path_of_a_token_search_says_its_answer(options: dict[str, Any]) -> None:
    model = parallel_model("graph")
    for text in SOURCES[::3]:
        trace, answer = model.trace_parallel(text, **options), model.generate([text], **options)[0].best
        assert trace.text == answer.text
        assert tuple(each.piece for each in graph(trace).vertices[1:-1] if each.chosen) == answer.pieces
        assert trace.log_probability <= answer.log_probability + 1e-4  # one path of all


@pytest.mark.parametrize("search", ["lookahead", "greedy", "viterbi"])
def test_the_chosen_path_says_the_answer_and_has_its_probability(search: str) -> None:
    trace = parallel_model("graph").trace_parallel(TEXT, graph_search=search)
    path = [each for each in graph(trace).vertices if each.chosen]
    assert tuple(each.piece for each in path[1:-1]) == trace.target_pieces
    hops = [each for each in graph(trace).links if each.chosen]
    assert [(each.start, each.end) for each in hops] == list(itertools.pairwise(each.position for each in path))
    tokens = sum(math.log(each.probability) for each in path[1:-1])
    assert trace.log_probability == pytest.approx(tokens + sum(math.log(each.probability) for each in hops), abs=1e-4)


def test_pass_probabilities_equal_the_sum_over_all_paths() -> None:
    model = parallel_model("graph", upsample=2)
    links = predict(model).links
    assert links is not None
    expected = torch.zeros(links.size(1), dtype=torch.float64)
    for score, path in enumerate_paths(links[0].double()):
        expected[list(path)] += math.exp(score)
    found = graph(model.trace_parallel(TEXT))
    assert [each.pass_probability for each in found.vertices] == pytest.approx(expected.tolist(), abs=1e-6)
    assert found.vertices[-1].pass_probability == pytest.approx(1)


def test_listed_links_are_those_above_the_threshold_and_on_the_path() -> None:
    model = parallel_model("graph")
    links = predict(model).links
    assert links is not None
    hops = links[0].exp()
    torch.testing.assert_close(hops[:-1].sum(-1), torch.ones(len(hops) - 1))
    listed = {(each.start, each.end): each for each in graph(model.trace_parallel(TEXT)).links}
    for start, end in itertools.product(range(len(hops)), repeat=2):
        probability, each = float(hops[start, end]), listed.get((start, end))
        assert (each is not None) == (probability >= MIN_LINK or bool(each and each.chosen))
        if each is not None:
            assert each.probability == pytest.approx(probability)


@pytest.mark.parametrize(("kind", "impossible"), [("graph", (PAD, BOS, EOS)), ("ctc", (BOS, EOS))])
def test_the_probabilities_of_all_tokens_sum_to_1(kind: str, impossible: tuple[int, ...]) -> None:
    model = parallel_model(kind)
    trace = model.trace_parallel(TEXT, count=10**6)
    places = graph(trace).vertices[1:-1] if kind == "graph" else trace.details.positions  # type: ignore[union-attr]
    for each in places:
        assert {one.id for one in each.top} == set(range(model.target_tokenizer.vocab_size)) - {*impossible}
        assert sum(one.probability for one in each.top) == pytest.approx(1, abs=1e-5)
        assert each.probability == pytest.approx(next(one.probability for one in each.top if one.id == each.id))


def test_each_pass_predicts_the_least_confident_tokens_again() -> None:
    passes = 5
    trace = parallel_model("masked").trace_parallel(SOURCES[3], passes=passes)
    assert isinstance(trace.details, MaskPredictTrace)
    found, size = trace.details.passes, len(trace.details.passes[0])
    assert len(found) == passes
    assert tuple(each.piece for each in found[-1]) == trace.target_pieces
    assert all(each.predicted for each in found[0])
    for number, (before, now) in enumerate(itertools.pairwise(found), start=1):
        again = [n for n, each in enumerate(now) if each.predicted]
        assert len(again) == max(1, size * (passes - number) // passes)
        assert max(before[n].probability for n in again) <= min(
            (each.probability for n, each in enumerate(before) if n not in again), default=1
        )
        for n, each in enumerate(now):
            if n not in again:
                assert (each.id, each.probability) == (before[n].id, before[n].probability)


def test_length_candidates_are_those_of_the_length_head() -> None:
    model = parallel_model("masked")
    trace = model.trace_parallel(TEXT, length_candidates=4)
    assert isinstance(trace.details, MaskPredictTrace)
    network, ids = model.network.eval(), torch.tensor([[*trace.source_ids]])
    assert isinstance(network, ParallelTransformer)
    with torch.no_grad():
        expected = network.predict_lengths(network.encode(ids, None))[0].softmax(-1)
    for each in trace.details.lengths:
        number = each.length - len(trace.source_ids) + LENGTH_CLASSES // 2
        assert each.probability == pytest.approx(float(expected[number]))
    assert [each.probability for each in trace.details.lengths] == pytest.approx(expected.topk(4).values.tolist())
    (chosen,) = (each for each in trace.details.lengths if each.chosen)
    assert chosen.mean_log_probability == max(each.mean_log_probability for each in trace.details.lengths)
    assert (chosen.text, chosen.length) == (trace.text, len(trace.target_ids))


def test_merged_runs_of_the_ctc_row_are_the_answer() -> None:
    model = parallel_model("ctc")
    for text in SOURCES[::3]:
        trace = model.trace_parallel(text)
        assert isinstance(trace.details, CtcTrace)
        runs = [token for token, _ in itertools.groupby(each.id for each in trace.details.positions)]
        assert tuple(token for token in runs if token != PAD) == trace.target_ids
        assert tuple(each.id for each in trace.details.positions if each.chosen) == trace.target_ids
        assert all(each.blank == (each.piece == "") for each in trace.details.positions)


def test_a_given_target_takes_the_most_probable_path_of_all() -> None:
    model = parallel_model("graph", upsample=2)
    prediction = predict(model)
    assert prediction.links is not None
    tokens = model.target_tokenizer.encode("猫 坐")
    prediction.logits[..., [PAD, BOS, EOS]] = -math.inf
    said = prediction.logits[0].double().log_softmax(-1)
    paths = [each for each in enumerate_paths(prediction.links[0].double()) if len(each[1]) == 4]
    scored = [(score + float(said[path[1], tokens[0]] + said[path[2], tokens[1]]), path) for score, path in paths]
    best, path = max(scored)
    trace = model.trace_parallel(TEXT, "猫 坐")
    assert trace.log_probability == pytest.approx(best, abs=1e-4)
    assert tuple(each.position for each in graph(trace).vertices if each.chosen) == path
    assert (trace.text, trace.given) == ("猫 坐", True)


def test_a_given_target_takes_the_most_probable_ctc_row_of_all() -> None:
    model = parallel_model("ctc")
    logits = predict(model).logits[0].double()
    logits[:, [BOS, EOS]] = -math.inf
    said, (token,) = logits.log_softmax(-1), model.target_tokenizer.encode("猫")
    size = len(said)
    rows = [
        (sum(float(said[n, token if start <= n < end else PAD]) for n in range(size)), (start, end))
        for start, end in itertools.combinations(range(size + 1), 2)
    ]
    best, (start, end) = max(rows)
    trace = model.trace_parallel(TEXT, "猫")
    assert isinstance(trace.details, CtcTrace)
    assert trace.log_probability == pytest.approx(best, abs=1e-3)
    assert [each.position for each in trace.details.positions if not each.blank] == list(range(start, end))


@pytest.mark.parametrize("kind", ["graph", "ctc"])
def test_a_target_that_does_not_fit_is_rejected(kind: str) -> None:
    with pytest.raises(UsageError, check=has_code("target_exceeds_canvas")) as raised:
        parallel_model(kind, upsample=1).trace_parallel(TEXT, " ".join(["猫"] * 20))
    assert raised.value.values == {"tokens": 20, "limit": 14 if kind == "graph" else 16}


def test_what_a_kind_does_not_have_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("masked_target_not_traceable")):
        parallel_model("masked").trace_parallel(TEXT, "猫")
    with pytest.raises(UsageError, check=has_code("parallel_trace_needs_kind", kind="autoregressive")):
        tiny_model().trace_parallel(TEXT)
    with pytest.raises(UsageError, check=has_code("trace_needs_autoregressive", kind="ctc")):
        parallel_model("ctc").trace(TEXT)
    with pytest.raises(UsageError, check=has_code("trace_text_empty")):
        parallel_model("ctc").trace_parallel(" ")


@pytest.mark.parametrize("kind", ["graph", "ctc", "masked"])
def test_the_json_of_a_trace_has_its_values(kind: str) -> None:
    trace = parallel_model(kind).trace_parallel(f"{TEXT} zebra")
    report = json.loads(json.dumps(trace.as_json(), allow_nan=False))
    assert (report["kind"], report["text"], report["unknown"]) == (kind, trace.text, ["zebra"])
    assert report["predicted"]["ids"] == list(trace.target_ids)
    names = {"graph": ["links", "min_link", "vertices"], "ctc": ["positions"], "masked": ["lengths", "passes"]}[kind]
    assert set(names) <= set(report)
    assert set(report["options"]) == {
        "graph": {"graph_search", "path_length_penalty", "merge_repeats"},
        "ctc": set(),
        "masked": {"passes", "length_candidates", "merge_repeats"},
    }[kind]  # fmt: skip
