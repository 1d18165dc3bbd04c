"""Symbols after the EOS of a source reach every path that reads sources.

The oracle is a twin whose source embeddings are exchanged: `<end>` has that of EOS, and EOS has that of `<en>`. So the
twin reads `TEXT<end>` as the model reads `TEXT` with the suffix `<en>`.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SIZES

from attendo.data.batch import Batch, Example, collate
from attendo.decode.requests import DecodeRequest
from attendo.errors import ModelError, UsageError
from attendo.explore.exposure import measure_exposure
from attendo.explore.exposure.parallel_text import ParallelText
from attendo.explore.head_stats import Sentence, measure_heads
from attendo.interop.export import export
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.runs.corpora import with_symbols
from attendo.runs.verify import _make_requests
from attendo.text import BOS, EOS, Words
from attendo.text.tokenizer import end_source
from attendo.text_model import TextModel
from attendo.text_model.inputs import ModelSymbols
from attendo.train.minimum_risk import _split_sources

TEXTS = ["the cat sat", "a dog ran", "the dog sat a cat ran", "ran"]
TARGETS = ["a cat", "the dog ran", "sat", "dog dog"]
SUFFIX = {"source_suffix": ["<en>"]}
WORDS = Words.build(TEXTS * 2, symbols=("<en>", "<de>", "<end>"))
ENGLISH, GERMAN, END = (WORDS.encode(symbol)[0] for symbol in WORDS.symbols)


def make_model(swap: bool = False, **generation: Any) -> TextModel:
    sizes = {"source_vocab_size": WORDS.vocab_size, "target_vocab_size": WORDS.vocab_size, "tie": "none"}
    network = Transformer(ModelConfig(**{**SIZES, **sizes}), torch.Generator().manual_seed(3))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2)  # so that the outputs depend on the source
        assert network.source is not None
        table = network.source.tokens.weight
        if swap:
            table[[END, EOS]] = table[[EOS, ENGLISH]]
    return TextModel(StoredModel(network, WORDS, WORDS, {"max_length_extra": 5, **generation}))


@pytest.fixture(scope="module")
def model() -> TextModel:
    return make_model(**SUFFIX)


@pytest.fixture(scope="module")
def twin() -> TextModel:
    return make_model(swap=True)


def outputs(model: TextModel, texts: list[str], **options: Any) -> list[tuple[int, ...]]:
    return [each.ids for each in model.generate(texts, **options)]


def mark(texts: list[str]) -> list[str]:
    return [f"{text}<end>" for text in texts]


@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
@pytest.mark.parametrize(
    "options", [{}, {"beam": 3}, {"sample": True, "seed": 5}, {"mbr": "chrf", "mbr_candidates": 3}]
)
def test_all_engines_read_the_suffix(model: TextModel, twin: TextModel, engine: str, options: dict[str, Any]) -> None:
    options = {"engine": engine, "max_length": 6, **options}
    found = outputs(model, TEXTS, **options)
    if not options.get("sample") and "mbr" not in options:  # their random numbers follow from the ids of the source
        assert found == outputs(twin, mark(TEXTS), **options)
    assert found == [outputs(model, [text], **options)[0] for text in TEXTS]
    assert found != outputs(make_model(), TEXTS, **options)


def test_a_call_may_override_the_suffix(model: TextModel) -> None:
    plain, german = make_model(), make_model(source_suffix=["<de>"])
    ids = [each.ids for each in model.generate(TEXTS, source_suffix=["<de>"])]
    assert ids == [each.ids for each in german.generate(TEXTS)]
    assert [each.ids for each in model.generate(TEXTS, source_suffix=[])] == [
        each.ids for each in plain.generate(TEXTS)
    ]
    assert [each.ids for each in model.generate(TEXTS, preset="hf")] != [
        each.ids for each in plain.generate(TEXTS, preset="hf")
    ]


def test_sources_with_and_without_a_suffix_share_a_batch(model: TextModel) -> None:
    """As requests of several calls on a server."""
    engine = model.backend.engine(model.generation, constrained=False)
    calls = [model.prepare_call([text], max_length=6, source_suffix=after) for text, after in MIXED]
    prepared = [call.prepare_search() for call in calls]
    requests = [request for own, _, _ in prepared for request in own]
    _, strategy, rules = prepared[0]
    found: dict[int, list[int]] = {}
    for part in engine.generate(requests, strategy, rules):
        rows = part.hypotheses.ids.tolist()
        found |= {request.request_id: row for request, row in zip(part.requests, rows, strict=True)}
    for request, call in zip(requests, calls, strict=True):
        alone = next(iter(engine.generate([request], strategy, rules)))
        (expected,) = alone.hypotheses.ids.tolist()
        assert [each for each in found[request.request_id] if each] == [each for each in expected if each]
        assert call.source_tokens == [len(WORDS.encode(call.texts[0])) + len(call.config.source_suffix)]


MIXED = [(TEXTS[0], ["<en>"]), (TEXTS[1], []), (TEXTS[2], ["<en>", "<de>"]), (TEXTS[3], ["<de>"]), ("ran the cat", [])]


def test_scores_and_traces_include_the_suffix(model: TextModel, twin: TextModel) -> None:
    assert model.score(TEXTS, TARGETS) == pytest.approx(twin.score(mark(TEXTS), TARGETS), abs=1e-5)
    trace, expected = model.trace(TEXTS[0], TARGETS[0]), twin.trace(mark(TEXTS)[0], TARGETS[0])
    assert trace.source_pieces == ("the", "cat", "sat", "</s>", "<en>")
    assert trace.source_ids == (*WORDS.encode(TEXTS[0]), EOS, ENGLISH)
    torch.testing.assert_close(trace.probabilities, expected.probabilities, atol=1e-5, rtol=0)


def test_alignments_end_at_eos(model: TextModel, twin: TextModel) -> None:
    (found,), (expected,) = (
        each.generate(texts, alignments=True, max_length=5)
        for each, texts in ((model, TEXTS[:1]), (twin, mark(TEXTS[:1])))
    )
    assert found.best.alignment is not None
    assert expected.best.alignment is not None
    weights = found.best.alignment.weights
    assert weights.shape[1] == len(WORDS.encode(TEXTS[0])) + 1
    torch.testing.assert_close(weights, expected.best.alignment.weights[:, :-1], atol=1e-5, rtol=0)
    assert found.best.alignment.source_words == (0, 1, 2)
    assert found.best.alignment.source_pieces == ("the", "cat", "sat")


def test_reports_on_heads_and_exposure_read_the_suffix(model: TextModel, twin: TextModel) -> None:
    pairs = list(zip(TEXTS, TARGETS, strict=True))
    found = measure_heads(model, [Sentence(*pair) for pair in pairs])
    expected = measure_heads(twin, [Sentence(f"{source}<end>", target) for source, target in pairs])
    assert found.source_tokens == sum(len(WORDS.encode(text)) + 2 for text in TEXTS)
    for one, other in zip(found.heads, expected.heads, strict=True):
        assert one.entropy == pytest.approx(other.entropy, abs=1e-5)
    ours = measure_exposure(model, ParallelText(tuple(TEXTS), tuple(TARGETS), "a", "b"))
    theirs = measure_exposure(twin, ParallelText(tuple(mark(TEXTS)), tuple(TARGETS), "a", "b"))
    assert ours.nll == pytest.approx(theirs.nll, abs=1e-5)
    assert ours.accuracy.as_json() == theirs.accuracy.as_json()


def test_alternatives_read_the_suffix(model: TextModel, twin: TextModel) -> None:
    found, expected = model.alternatives(TEXTS[0], count=3), twin.alternatives(mark(TEXTS)[0], count=3)
    assert [each.word for each in found] == [each.word for each in expected]


def test_streams_read_the_suffix(model: TextModel) -> None:
    assert "".join(model.stream(TEXTS[0], max_length=6)) == model.generate(TEXTS[:1], max_length=6)[0].text


def test_engines_are_verified_with_the_suffix(model: TextModel) -> None:
    requests = _make_requests(model, TEXTS)
    assert [request.source for request in requests] == [(*WORDS.encode(text), EOS, ENGLISH) for text in TEXTS]
    assert [request.source_length for request in requests] == [len(WORDS.encode(text)) + 2 for text in TEXTS]


def test_symbols_count_towards_the_limit() -> None:
    model = make_model(**SUFFIX, source_prefix=["<de>"], max_source=4)
    with pytest.raises(UsageError, check=has_code("text_exceeds_model_limit", tokens=5, limit=4)):
        model.generate(TEXTS[:1])
    model = make_model(**SUFFIX, max_source=4, long_source="truncate")
    assert model.generate(TEXTS[2:3], max_length=4)[0].source_left_out == 3


def test_unknown_symbols_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("unknown_prefix_symbol", option="source_suffix", symbol="<fr>")):
        make_model(source_suffix=["<fr>"]).generate(TEXTS)


SYMBOLS = ModelSymbols(before=(GERMAN,), after=(ENGLISH, GERMAN), begin=(END,))


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1], TEXTS[:2]])
def test_training_batches_get_the_symbols(texts: list[str]) -> None:
    sources = [WORDS.encode(text) for text in texts]
    made = with_symbols(collate([Example(ids, [7]) for ids in sources]), SYMBOLS)
    expected = collate([Example(SYMBOLS.wrap_source(ids), [END, 7]) for ids in sources])
    assert_equal_batches(made, expected)
    for row, ids in enumerate(sources):
        read = [GERMAN, *ids, EOS, ENGLISH, GERMAN]
        assert made.source_ids[row].tolist() == [*read, *[0] * (made.source_ids.size(1) - len(read))]
        assert made.source_mask is None or int(made.source_mask[row].sum()) == len(read)
    assert [end_source(each) for each in _split_sources(made)] == [
        [GERMAN, *ids, EOS, ENGLISH, GERMAN] for ids in sources
    ]


def assert_equal_batches(made: Batch, expected: Batch) -> None:
    for name in ("source_ids", "target_ids", "labels"):
        assert torch.equal(getattr(made, name), getattr(expected, name))
    assert (made.source_mask is None) == (expected.source_mask is None)
    assert made.source_mask is None or torch.equal(made.source_mask, expected.source_mask)  # type: ignore[arg-type]
    assert (made.tokens, made.source_tokens) == (expected.tokens, expected.source_tokens)


def test_a_source_has_one_end() -> None:
    """A complete source is as long as it is; another one gets EOS. Both may share a batch, in which rows are empty."""
    batch = collate([Example([5, EOS, 6], [7]), Example([5, 6], [7]), Example([], [7]), Example([EOS, 8], [7])])
    assert batch.source_ids.tolist() == [[5, EOS, 6], [5, 6, EOS], [EOS, 0, 0], [EOS, 8, 0]]
    assert batch.source_mask is not None
    assert batch.source_mask.sum(1).tolist() == [3, 3, 1, 2]
    assert batch.source_tokens == 9
    assert collate([Example([5, EOS, 6], [7]), Example([5, 6], [7])]).source_mask is None
    assert DecodeRequest(0, (5, EOS, 6), 3).num_positions == DecodeRequest(0, (5, 6), 3).num_positions == 3
    assert BOS not in batch.source_ids


def test_onnx_holds_the_suffix_and_others_refuse_it(model: TextModel, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("ctranslate2")
    from attendo import load

    assert export(model, tmp_path / "onnx", "onnx", "float32").passed
    assert [each.ids for each in load(tmp_path / "onnx").generate(TEXTS)] == [
        each.ids for each in model.generate(TEXTS)
    ]
    with pytest.raises(ModelError) as found:
        export(model, tmp_path / "ct2", "ctranslate2", "float32")
    assert "source_suffix" in str(found.value)


def test_transformers_refuses_the_suffix(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ModelError, check=has_code("transformers_network_unsupported")) as found:
        export(make_model(**SUFFIX), tmp_path / "hf", "hf", "float32")
    assert "<en> after every source" in str(found.value)
