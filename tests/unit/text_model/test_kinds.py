"""Text models that predict all tokens at once: options by kind, searches of a graph, scores, storage."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SIZES, SOURCES, TARGETS
from tiny import parallel_model as make_model

from attendo.errors import UsageError
from attendo.explore.describe import describe
from attendo.explore.head_stats import Sentence, measure_heads
from attendo.interop.export import export
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.serve.scheduling.batches import BatchFactory
from attendo.text import BOS, EOS, UNK
from attendo.text_model import TextModel, TooLongError, load

KINDS = ("masked", "ctc", "graph")


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_model_gives_the_same_answers(tmp_path: Path, kind: str) -> None:
    model = make_model(kind)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", "cpu")
    assert [each.best for each in again.generate(SOURCES)] == [each.best for each in model.generate(SOURCES)]
    assert f"encoder-decoder ({kind})" in repr(again)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
def test_engines_agree(kind: str, engine: str) -> None:
    model = make_model(kind)
    expected = [each.ids for each in model.generate(SOURCES)]
    assert [each.ids for each in model.generate(SOURCES, engine=engine)] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_has_the_text_of_the_answer(kind: str) -> None:
    model = make_model(kind)
    for text in SOURCES:
        assert "".join(model.stream(text)) == model.generate([text])[0].text


@pytest.mark.parametrize("options", [{"beam": 3}, {"sample": True}, {"prefix": "我"}, {"min_length": 6}])
def test_a_graph_streams_token_searches(options: dict[str, Any]) -> None:
    model = make_model("graph")
    for text in SOURCES:
        assert "".join(model.stream(text, **options)) == model.generate([text], **options)[0].text


def test_token_options_of_a_graph_hold() -> None:
    model = make_model("graph")
    assert all(each.text.startswith("我") for each in model.generate(SOURCES, prefix="我"))
    assert all(len(each.ids) >= 6 for each in model.generate(SOURCES, min_length=6))
    for result in model.generate(SOURCES, no_repeat_ngram_size=1, max_length=6):
        assert len({*result.ids}) == len(result.ids)
    for result in model.generate(SOURCES, beam=4, constraints=["猫"]):
        assert "猫" in result.text
    assert all(len(each.hypotheses) == 3 for each in model.generate(SOURCES, beam=3, n_best=3))


def test_a_prefix_of_one_text_does_not_change_another() -> None:
    model = make_model("graph")
    alone = model.generate([SOURCES[1]])[0]
    assert model.generate(SOURCES[:2], prefix=["我", ""])[1].best == alone.best


def test_a_beam_of_a_graph_is_at_least_as_probable_as_its_greedy_search() -> None:
    model = make_model("graph", upsample=3)
    greedy, beam = (model.generate(SOURCES, graph_search="tokens", normalise="none", beam=each) for each in (1, 8))
    for one, other in zip(greedy, beam, strict=True):
        assert other.best.log_probability >= one.best.log_probability - 1e-5


@pytest.mark.parametrize("search", ["lookahead", "greedy", "viterbi"])
def test_the_score_of_a_path_is_a_lower_bound(search: str) -> None:
    """log P(target | source) sums over all paths."""
    model = make_model("graph")
    for text, result in zip(SOURCES, model.generate(SOURCES, graph_search=search), strict=True):
        if result.best.has_end:
            assert result.best.log_probability <= model.score([text], [result.text])[0] + 1e-5


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_next_token_probabilities_sum_to_1(kind: str) -> None:
    """After a prefix, the probabilities of all next tokens and of the end sum to 1."""
    model = make_model(kind)
    tokens = range(1, model.target_tokenizer.vocab_size)
    words = [model.target_tokenizer.decode([token]) for token in tokens if token not in (BOS, EOS)]
    (prefix,) = (word for word in words if word == "我")
    targets = [prefix, *(f"{prefix} {word}".strip() for word in words if word)]
    scored = model.score_tokens([SOURCES[0]] * len(targets), targets)
    ends, nexts = scored[0].log_probabilities[1], {each.pieces[1]: each.log_probabilities[1] for each in scored[1:]}
    known = math.exp(ends) + sum(math.exp(each) for each in nexts.values())
    assert known == pytest.approx(1, abs=0.2)  # all but the tokens that no text has, such as the unknown one
    assert known <= 1 + 1e-5
    assert len({each.log_probabilities[0] for each in scored}) == 1


def test_a_target_that_does_not_fit_has_probability_0() -> None:
    model = make_model("ctc", upsample=1)
    scored = model.score_tokens([SOURCES[0]] * 2, ["猫 " * 20, "猫"])
    assert scored[0].log_probability == -math.inf
    assert math.isfinite(scored[1].log_probability)


@pytest.mark.parametrize("kind", KINDS)
def test_at_limit_is_honoured(kind: str) -> None:
    model, options = make_model(kind), {"graph_search": "greedy"} if kind == "graph" else {}
    results = model.generate(SOURCES, **options)
    long = next(each for each in results if len(each.ids) > 3)
    text = SOURCES[results.index(long)]
    found = {
        at_limit: model.generate([text], max_length=3, at_limit=at_limit, **options)[0].best
        for at_limit in ("truncate", "force_eos", "any")
    }
    assert all(each.ids == long.ids[:3] for each in found.values())
    assert all(each.cut for each in found.values())
    assert [each.end_forced for each in found.values()] == [False, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_a_forbidden_unknown_token_keeps_the_probabilities(kind: str) -> None:
    """The reported log-probability is the model's, although another token is chosen."""
    model = make_model(kind)
    with torch.no_grad():
        model.network.output.weight[UNK] = model.network.output.weight[4:].mean(0)
    allowed, forbidden = (model.generate(SOURCES, allow_unk=each, passes=None) for each in (True, False))
    for one, other in zip(allowed, forbidden, strict=True):
        assert UNK not in other.ids
        if UNK not in one.ids and one.ids == other.ids:
            assert other.best.log_probability == pytest.approx(one.best.log_probability, abs=1e-4)


def test_a_masked_model_has_no_score() -> None:
    with pytest.raises(UsageError, check=has_code("masked_model_has_no_likelihood")):
        make_model("masked").score(SOURCES[:1], TARGETS[:1])


@pytest.mark.parametrize(
    ("kind", "options", "code"),
    [
        ("masked", {"beam": 2}, "option_unsupported_by_kind"),
        ("ctc", {"sample": True}, "option_unsupported_by_kind"),
        ("masked", {"prefix": "我"}, "option_unsupported_by_kind"),
        ("ctc", {"constraints": ["猫"], "beam": 1}, "option_unsupported_by_kind"),
        ("ctc", {"banned_phrases": ["猫"]}, "option_unsupported_by_kind"),
        ("masked", {"min_length": 3}, "option_unsupported_by_kind"),
        ("ctc", {"mbr": "chrf"}, "option_unsupported_by_kind"),
        ("graph", {"alignments": True}, "option_unsupported_by_kind"),
        ("graph", {"coverage_penalty": 0.3}, "option_unsupported_by_kind"),
        ("graph", {"passes": 3}, "option_needs_kind"),
        ("ctc", {"graph_search": "greedy"}, "option_needs_kind"),
        ("autoregressive", {"length_candidates": 2}, "option_needs_kind"),
        ("graph", {"graph_search": "viterbi", "beam": 2}, "graph_search_conflict"),
        ("graph", {"graph_search": "greedy", "prefix": "我"}, "graph_search_conflict"),
        ("ctc", {"compile": True, "engine": "fast"}, "option_unsupported_by_kind"),
    ],
)
def test_options_that_a_kind_does_not_have_are_rejected(kind: str, options: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError, check=has_code(code)) as raised:
        make_model(kind).generate(SOURCES, **options)
    assert raised.value.values.get("kind", kind) == kind
    assert raised.value.values["option"] in options


FEATURES: dict[str, Callable[[TextModel], Any]] = {
    "an ensemble": lambda model: model.ensemble([model]),
    "scaling heads": lambda model: model.with_heads({"decoder.0.cross": {0: 0.0}}),
    "an export": lambda model: export(model, "nowhere", "onnx"),
    "a report on heads": lambda model: measure_heads(model, [Sentence(SOURCES[0], TARGETS[0])]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feature", FEATURES)
def test_features_of_autoregressive_models_are_refused(kind: str, feature: str) -> None:
    with pytest.raises(UsageError, check=has_code("parallel_feature_unsupported", feature=feature, kind=kind)):
        FEATURES[feature](make_model(kind))


@pytest.mark.parametrize("settings", [{"kind": "masked"}, {"kind": "ctc"}, {"kind": "graph", "canvas": "copy"}])
def test_a_description_counts_all_parameters(settings: dict[str, Any]) -> None:
    config = ModelConfig(**SIZES, vocab_size=11, tie="all", **settings)
    expected = sum(each.numel() for each in make_network(config).parameters())
    assert describe(config).parameters == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_batches_requests(kind: str) -> None:
    model = make_model(kind)
    factory, call = BatchFactory(model, max_batch_size=3), model.prepare_call(SOURCES)
    (key,) = {key for key, _ in factory.split_by_key(call)}
    assert key.network_key.at_once == call.config
    requests, *_ = call.prepare_search()
    found = {
        each.request_id: frontier for batch in factory.make(key).generate(requests) for each, frontier in batch.split()
    }
    results = call.collect_results([call.to_result(found[each.request_id]) for each in requests])
    expected = model.generate(SOURCES)
    assert [each.ids for each in results] == [each.ids for each in expected]
    scores = [[each.best.log_probability for each in group] for group in (results, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)  # the batches have other sizes


def test_the_server_runs_token_searches_of_a_graph_in_steps() -> None:
    model = make_model("graph")
    factory, call = BatchFactory(model), model.prepare_call(SOURCES, beam=2)
    (key,) = {key for key, _ in factory.split_by_key(call)}
    assert key.network_key.at_once is None
    requests, *_ = call.prepare_search()
    found = {
        each.request_id: frontier for batch in factory.make(key).generate(requests) for each, frontier in batch.split()
    }
    results = call.collect_results([call.to_result(found[each.request_id]) for each in requests])
    assert [each.ids for each in results] == [each.ids for each in model.generate(SOURCES, beam=2)]


def test_a_graph_limits_the_source_by_the_memory_of_its_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.text_model.backends._MAX_LINKS", 2 * (8 * 6) ** 2)  # 2 heads, 6 x 8 vertices
    model = make_model("graph")
    assert model.backend.max_sequence_length == 5
    with pytest.raises(TooLongError):
        model.generate(["the cat sat the cat sat"])
    assert model.generate(["the cat sat"])[0].text
