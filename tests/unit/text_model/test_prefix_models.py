"""Text models with a prefix LM: answers, scores, alignments, storage, and what needs an encoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, TARGETS, prefix_model, tiny_model
from varied_models import scale_logits

from attendo.errors import AttendoError, UsageError
from attendo.explore.formulas.catalogue import evaluate_facts
from attendo.explore.head_stats import Sentence, measure_heads
from attendo.explore.heatmaps import MapSelection
from attendo.explore.trace_terminal import TraceView, render_trace
from attendo.explore.trace_text import token_labels
from attendo.interop.export import export
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.prefix import PrefixTransformer
from attendo.serve.scheduling.batches import BatchFactory
from attendo.text import BOS, EOS, Words
from attendo.text_model import TextModel, load


@pytest.fixture(scope="module")
def model() -> TextModel:
    return scale_logits(prefix_model(seed=2, tie="none"))


def test_a_prefix_lm_reads_pairs_with_one_table(model: TextModel) -> None:
    assert isinstance(model.network, PrefixTransformer)
    assert model.decoder_only
    assert not model.continues_text
    assert model.network.source is None
    assert "prefix LM" in repr(model)


@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 3, "n_best": 2},
        {"sample": True, "seed": 4},
        {"prefix": "我", "beam": 2},
        {"no_repeat_ngram_size": 2},
    ],
    ids=["greedy", "beam", "samples", "prefix", "rule"],
)
def test_engines_agree(model: TextModel, engine: str, options: dict[str, Any]) -> None:
    expected = model.generate(SOURCES, **options)
    found = model.generate(SOURCES, engine=engine, **options)
    assert [each.ids for each in found] == [each.ids for each in expected]
    assert len({each.score for each in expected}) > 1
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
    if "prefix" in options:
        assert all(each.text.startswith("我") for each in found)


def test_the_answer_depends_on_the_source(model: TextModel) -> None:
    memories = [model.network.encode(torch.tensor([[*model.source_tokenizer.encode(text), EOS]])) for text in SOURCES]
    first = [model.network.step(torch.tensor([[BOS]]), model.network.start(each))[0] for each in memories]
    assert not torch.allclose(first[0], first[1], atol=1e-2)


def test_constraints_streams_trees_and_alternatives_work(model: TextModel) -> None:
    for text in SOURCES:
        assert "".join(model.stream(text)) == model.generate([text])[0].text
    forced = model.generate(SOURCES, beam=3, constraints=["小"])
    assert all("小" in each.text for each in forced)
    assert model.search_tree(SOURCES[0], beam=2)
    assert len(model.alternatives(SOURCES[0], count=3)) == 3
    assert model.generate(SOURCES, mbr="chrf", sample=True, seed=1, n_best=1)


@torch.no_grad()
def test_scores_are_the_log_probabilities_of_the_target(model: TextModel) -> None:
    found = model.score(SOURCES, TARGETS)
    for score, source, target in zip(found, SOURCES, TARGETS, strict=True):
        ids = model.target_tokenizer.encode(target)
        expected = 0.0
        for end in range(len(ids) + 1):  # one pass for each token
            row = torch.tensor([[*model.source_tokenizer.encode(source), EOS]])
            logits = model.network(row, torch.tensor([[BOS, *ids[:end]]]))[0, -1]
            expected += float(logits.log_softmax(-1)[[*ids, EOS][end]])
        assert score == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def test_alignments_are_the_attention_to_the_source(model: TextModel) -> None:
    text = SOURCES[3]
    (result,) = model.generate([text], alignments=True)
    alignment = result.hypotheses[0].alignment
    assert alignment is not None
    source = [*model.source_tokenizer.encode(text), EOS]
    maps: list[torch.Tensor] = []
    target = torch.tensor([[BOS, *result.ids]])
    model.network(torch.tensor([source]), target, tap=lambda site, weights: maps.append(weights))
    over_source = maps[-1][0, :, :, : len(source)]
    expected = (over_source / over_source.sum(-1, keepdim=True)).mean(0)[: len(result.ids)]
    torch.testing.assert_close(alignment.weights, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alignment.weights.sum(-1), torch.ones(len(result.ids)))


def test_a_scaled_head_changes_source_and_target(model: TextModel) -> None:
    other = model.with_heads({"decoder.0.self": {0: 0.0}})
    assert other.score(SOURCES, TARGETS) != pytest.approx(model.score(SOURCES, TARGETS), abs=1e-3)
    same = model.with_heads({"decoder.0.self": {0: 1.0}})
    assert same.score(SOURCES, TARGETS) == pytest.approx(model.score(SOURCES, TARGETS), abs=1e-4)


def test_a_stored_model_gives_the_same_answers(tmp_path: Path, model: TextModel) -> None:
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", "cpu")
    assert isinstance(again.network, PrefixTransformer)
    assert [each.best for each in again.generate(SOURCES)] == [each.best for each in model.generate(SOURCES)]


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_a_network_that_is_mostly_its_table_can_be_loaded(tmp_path: Path, tie: str) -> None:
    words = Words.build([" ".join(f"w{n}" for n in range(400))])
    config = ModelConfig(
        prefix_lm=True, vocab_size=words.vocab_size, d_model=4, num_heads=1, d_ff=4, num_decoder_layers=1, tie=tie
    )
    model = TextModel(make_network(config), words)
    model.save(tmp_path / "model")
    assert torch.equal(load(tmp_path / "model", "cpu").network.output.weight, model.network.output.weight)


def test_the_server_batches_requests(model: TextModel) -> None:
    factory, call = BatchFactory(model, max_batch_size=3), model.prepare_call(SOURCES, beam=2)
    (key,) = {key for key, _ in factory.split_by_key(call)}
    requests, *_ = call.prepare_search()
    found = {
        each.request_id: frontier for batch in factory.make(key).generate(requests) for each, frontier in batch.split()
    }
    results = call.collect_results([call.to_result(found[each.request_id]) for each in requests])
    assert [each.ids for each in results] == [each.ids for each in model.generate(SOURCES, beam=2)]


@pytest.mark.parametrize(
    ("use", "feature"),
    [(lambda model: measure_heads(model, [Sentence(SOURCES[0], None)]), "a report on heads")],
    ids=["heads"],
)
def test_what_needs_an_encoder_is_refused(model: TextModel, use: Callable[[TextModel], Any], feature: str) -> None:
    with pytest.raises(UsageError, check=has_code("prefix_lm_feature_unsupported", feature=feature)):
        use(model)


def test_a_trace_has_a_row_for_every_token_of_both_sides(model: TextModel) -> None:
    trace = model.trace(SOURCES[0])
    source, best = [*model.source_tokenizer.encode(SOURCES[0]), EOS], model.generate([SOURCES[0]])[0].best
    assert trace.source_ids == tuple(source)
    assert trace.target_ids[: len(best.ids)] == best.ids
    assert trace.first_row == len(source)
    assert trace.read_pieces == (*model.source_tokenizer.pieces(source), "<s>", *trace.target_pieces[:-1])
    assert trace.row_pieces == (*trace.source_pieces, *trace.target_pieces)
    rows = len(trace.read_pieces)
    assert trace.decoder_self.shape[2:] == (rows, rows)
    assert trace.cross.shape[:1] == trace.encoder_self.shape[:1] == (0,)
    assert float(trace.log_probabilities.sum()) == pytest.approx(best.log_probability, abs=1e-4)


def test_a_trace_is_printed_with_all_facts(model: TextModel) -> None:
    trace = model.trace(SOURCES[0])
    source, rows, target = len(trace.source_pieces), len(trace.read_pieces), len(trace.target_pieces)
    facts = {formula.name: numbers for formula, numbers in evaluate_facts(trace)}
    visible = rows * source + target * (target + 1) // 2
    assert facts["masks_together"] == f"{visible} / {rows * rows}"
    assert facts["boolean_mask"] == f"{rows * rows - visible} / {rows * rows}"
    assert facts["batch"] == f"B = 1: [1, {source}] → [1, {target}]"
    for view in (TraceView(), TraceView(layer=0), TraceView(step=1, head=0)):
        assert list(render_trace(trace, view, 100))
    labels, columns = token_labels(trace, "decoder.0.self.weights")
    assert (labels, columns) == (trace.row_pieces, trace.read_pieces)
    assert token_labels(trace, "output.logits")[0] == trace.target_pieces
    bare = model.trace(SOURCES[0], masked=False)
    assert {formula.name: numbers for formula, numbers in evaluate_facts(bare)}["boolean_mask"].startswith("0 /")


def test_a_map_is_that_of_the_whole_row(model: TextModel) -> None:
    selection = MapSelection.from_options(model, None, None, None, False)
    ((found,), _) = selection.compute_maps(model, SOURCES[0], None)
    trace = model.trace(SOURCES[0])
    assert (tuple(found.rows), tuple(found.columns)) == (trace.row_pieces, trace.read_pieces)
    assert found.weights == pytest.approx(trace.decoder_self[-1].mean(0).numpy())


@pytest.mark.parametrize("form", ["onnx", "ctranslate2", "hf"])
def test_exports_are_refused(tmp_path: Path, model: TextModel, form: Any) -> None:
    with pytest.raises(AttendoError, match="no encoder"):
        export(model, tmp_path / "out", form)


def test_two_tokenizers_are_refused(model: TextModel) -> None:
    words = Words.build([f"w{n}" for n in range(model.target_tokenizer.vocab_size - 5)])
    assert words.vocab_size == model.target_tokenizer.vocab_size
    with pytest.raises(UsageError, check=has_code("prefix_lm_tokenizers_differ")):
        TextModel(model.network, (words, model.target_tokenizer))


def test_two_prefix_lms_form_an_ensemble(model: TextModel) -> None:
    other = scale_logits(prefix_model(seed=5, tie="none"))
    found = model.ensemble([other], how="logarithms").generate(SOURCES)
    assert all(each.ids for each in found)
    with pytest.raises(UsageError):
        model.ensemble([scale_logits(tiny_model())])  # it has two vocabularies


@pytest.mark.parametrize("engine", ["cached", "fast"])
def test_drafted_answers_equal_greedy_ones(model: TextModel, engine: str) -> None:
    expected = [each.ids for each in model.generate(SOURCES)]
    for draft in (model, scale_logits(prefix_model(seed=5, tie="none"))):
        assert [each.ids for each in model.with_draft(draft).generate(SOURCES, engine=engine)] == expected


def test_an_encoder_decoder_is_no_prefix_lm() -> None:
    model = tiny_model()
    assert not model.decoder_only
    assert not model.continues_text
    model.require_encoder("a trace")
