"""Statistics of heads are means over all tokens of a text, independent of the batches."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, TARGETS, tiny_model

from attendo.errors import DataError, UsageError
from attendo.explore.gold_alignment import GoldLinks
from attendo.explore.head_stats import STATISTICS, HeadReport, HeadStats, Sentence, measure_heads
from attendo.model_folder import StoredModel
from attendo.text_model import TextModel
from attendo.text_model.trace import GREEDY_OPTIONS

PAIRS = list(zip(SOURCES, TARGETS, strict=True))
SITES = [*(f"encoder.{n}.self" for n in (0, 1)), *(f"decoder.{n}.{kind}" for n in (0, 1) for kind in ("self", "cross"))]


@pytest.fixture(scope="module")
def model() -> TextModel:
    """A model whose attention is far from uniform."""
    made = tiny_model(seed=4)
    with torch.no_grad():
        for name, weight in made.network.named_parameters():
            if "project" in name:
                weight.mul_(4)
    return made


def sentences(*indices: int, gold: bool = False) -> list[Sentence]:
    links = GoldLinks(frozenset({(0, 0), (1, 2)}), frozenset({(2, 1)}))
    return [Sentence(*PAIRS[index], links if gold else None) for index in indices or range(len(PAIRS))]


def numbers(head: HeadStats) -> dict[str, float]:
    return {name: getattr(head, name) for name in (*STATISTICS, "agreement", "error_rate") if getattr(head, name, None)}


def test_every_head_of_every_site_is_reported_once(model: TextModel) -> None:
    report = measure_heads(model, sentences())
    assert [(each.site, each.head) for each in report.heads] == [(site, head) for site in SITES for head in (0, 1)]
    assert {each.attention_type for each in report.heads if each.agreement is not None} == {"cross"}
    assert (report.sentences, report.gold_links) == (4, 0)
    assert report.source_tokens == sum(len(model.source_tokenizer.encode(text)) + 1 for text in SOURCES)
    assert report.target_tokens == sum(len(model.target_tokenizer.encode(text)) + 1 for text in TARGETS)


def test_batches_equal_single_sentences(model: TextModel) -> None:
    together, alone = (measure_heads(model, sentences(gold=True), positions) for positions in (4096, 1))
    for one, other in zip(together.heads, alone.heads, strict=True):
        assert numbers(one) == pytest.approx(numbers(other), abs=1e-5)
        assert len(numbers(one)) >= 5
    tokens = [len(model.target_tokenizer.encode(text)) + 1 for text in TARGETS]
    apart = [measure_heads(model, sentences(index)).heads[5] for index in range(4)]
    mean = sum(each.entropy * count for each, count in zip(apart, tokens, strict=True)) / sum(tokens)
    assert together.heads[5].entropy == pytest.approx(mean, abs=1e-5)


def test_statistics_equal_those_of_the_trace_maps(model: TextModel) -> None:
    report = measure_heads(model, sentences(3))
    trace = model.trace(*PAIRS[3])
    maps = {**dict(enumerate(trace.encoder_self)), "self": trace.decoder_self[0], "cross": trace.cross[0]}
    for site, found in (
        ("encoder.1.self", maps[1]),
        ("decoder.0.self", maps["self"]),
        ("decoder.0.cross", maps["cross"]),
    ):
        for head in range(2):
            found_head = next(each for each in report.heads if (each.site, each.head) == (site, head))
            weights, rows = found[head].double(), len(found[head])
            entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1)
            away = (torch.arange(rows)[:, None] * weights.size(1) / rows - torch.arange(weights.size(1))).abs()
            special = weights[:, 0] if site == "decoder.0.self" else weights[:, -1]
            expected = {
                "entropy": entropy.mean(),
                "distance": (weights * away).sum(-1).mean(),
                "special": special.mean(),
                "largest": weights.amax(-1).mean(),
            }
            assert {name: getattr(found_head, name) for name in expected} == pytest.approx(
                {name: float(value) for name, value in expected.items()}, abs=1e-5
            )


def test_without_targets_the_answers_of_the_model_are_measured(model: TextModel) -> None:
    short = TextModel(
        replace(model.stored_model, generation={"max_length_factor": 0.0, "max_length_extra": 3, "beam": 3})
    )
    answers = [each.best for each in short.generate(SOURCES, **GREEDY_OPTIONS)]
    assert any(each.cut for each in answers)
    report = measure_heads(short, [Sentence(text) for text in SOURCES])
    assert report.target_tokens == sum(len(each.ids) + (not each.cut) for each in answers)
    given = measure_heads(short, [Sentence(text, each.text) for text, each in zip(SOURCES, answers, strict=True)])
    assert given.target_tokens == sum(len(each.ids) + 1 for each in answers)
    assert report.heads[0].entropy == pytest.approx(given.heads[0].entropy)
    cut = next(text for text, each in zip(SOURCES, answers, strict=True) if each.cut)
    trace = short.trace(cut)
    alone = [each for each in measure_heads(short, [Sentence(cut)]).heads if each.attention_type == "cross"]
    expected = trace.cross.sum(dim=(0, 1))[:, :-1].argmax(-1)  # every row predicts a token, none the end
    for each in alone:
        weights = trace.cross[each.layer, each.head]
        assert each.largest == pytest.approx(float(weights.amax(-1).mean()), abs=1e-5)
        assert each.agreement == pytest.approx(float((weights.argmax(-1) == expected).double().mean()))


def patch_cross_attention(
    model: TextModel, columns: dict[tuple[int, int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make the heads of cross-attention, by layer and head, attend to these columns row by row."""
    real = type(model.network).forward

    def forward(self: Any, *args: Any, tap: Any, **kwargs: Any) -> Any:
        def changed(site: str, weights: torch.Tensor) -> torch.Tensor:
            _, layer, kind = site.split(".")
            weights = weights.clone()
            if kind == "cross":
                for head in range(2):
                    weights[:, head] = 0
                    for row, column in enumerate(columns[int(layer), head]):
                        weights[:, head, row, column] = 1
            tap(site, weights)
            return weights

        return real(self, *args, tap=changed, **kwargs)

    monkeypatch.setattr(type(model.network), "forward", forward)


COLUMNS = {
    (0, 0): [3, 3, 3, 3],  # always at </s>
    (0, 1): [0, 1, 2, 3],
    (1, 0): [0, 2, 2, 3],
    (1, 1): [3, 3, 3, 3],
}


def test_the_best_head_has_the_lowest_error_rate(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_cross_attention(model, COLUMNS, monkeypatch)
    gold = GoldLinks(frozenset({(0, 0), (2, 2)}), frozenset({(2, 1)}))
    report = measure_heads(model, [Sentence("I love NLP", "我 爱 NLP", gold)])
    rates = {(each.layer, each.head): each.error_rate for each in report.heads if each.attention_type == "cross"}
    # Found 0-0 1-1 2-2: 1 - (2 + 2) / (3 + 2). Found 0-0 2-1 2-2: 1 - (2 + 3) / (3 + 2). Found none: 1.
    assert rates == pytest.approx({(0, 0): 1, (0, 1): 0.2, (1, 0): 0, (1, 1): 1})
    assert (report.alignment_metric, report.gold_links) == ("error_rate", 2)
    # The last layer attends half to 0 2 2 and half to the end. Of equal weights the first counts.
    assert report.last_layer_error_rate == pytest.approx(0)
    assert (report.best.layer, report.best.head) == (1, 0)


def test_a_head_that_attends_to_the_end_has_no_agreement(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_cross_attention(model, COLUMNS, monkeypatch)
    report = measure_heads(model, [Sentence("I love NLP", "我 爱 NLP")])
    agreement = {(each.layer, each.head): each.agreement for each in report.heads if each.attention_type == "cross"}
    assert agreement[0, 0] == agreement[1, 1] == 0
    assert agreement[0, 1] == 1
    assert (report.alignment_metric, report.best.site, report.best.head) == ("agreement", "decoder.0.cross", 1)


def test_word_links_count_tokens_by_their_words(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_cross_attention(model, COLUMNS, monkeypatch)
    joined = GoldLinks(frozenset({(0, 0), (1, 1)}), frozenset(), ("I", "loveNLP"), ("我", "爱NLP"))
    report = measure_heads(model, [Sentence("I love NLP", "我 爱 NLP", joined)])
    assert [each.error_rate for each in report.heads if each.site == "decoder.0.cross"] == [1, 0]


def test_source_prefix_tokens_belong_to_no_word(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    from attendo.text import Words

    patch_cross_attention(model, {key: [1, 2, 3, 4] for key in COLUMNS}, monkeypatch)
    words = Words.build([*SOURCES, *TARGETS], symbols=["<2zh>"])
    sizes = model.network.config.replace(source_vocab_size=words.vocab_size, target_vocab_size=words.vocab_size)
    tagged = TextModel(
        StoredModel(type(model.network)(sizes), words, words, {"source_prefix": ["<2zh>"], "max_length_extra": 5})
    )
    gold = GoldLinks(frozenset({(0, 0), (1, 1), (2, 2)}), frozenset(), ("I", "love", "NLP"), ("我", "爱", "NLP"))
    report = measure_heads(tagged, [Sentence("I love NLP", "我 爱 NLP", gold)])
    assert {each.error_rate for each in report.heads if each.attention_type == "cross"} == {0}


def test_heads_are_ranked_by_any_statistic() -> None:
    def head(site: str, number: int, value: float, agreement: float | None) -> HeadStats:
        return HeadStats(site, number, value, value, value, value, value, value, agreement)

    heads = (
        head("encoder.0.self", 0, 0.2, None),
        head("decoder.0.cross", 0, 0.1, 0.5),
        head("decoder.0.cross", 1, 0.3, 0.9),
    )
    report = HeadReport(heads, 1, 1, 1, 0)
    order = {name: [heads.index(each) for each in report.rank(name)] for name in ("entropy", "distance", "special")}
    assert order == {"entropy": [1, 0, 2], "distance": [1, 0, 2], "special": [2, 0, 1]}
    assert [heads.index(each) for each in report.rank("diagonality")] == [2, 0, 1]
    assert [heads.index(each) for each in report.rank("alignment")] == [2, 1, 0]
    content = report.as_json("alignment")
    assert content["best_alignment_head"] == {"layer": 0, "head": 1, "agreement": 0.9}
    assert (content["sorted_by"], content["heads"][0]["site"]) == ("agreement", "decoder.0.cross")
    with pytest.raises(UsageError, check=has_code("unknown_head_order", order="beauty")):
        report.rank("beauty")  # type: ignore[arg-type]


def test_invalid_sentences_are_rejected(model: TextModel) -> None:
    with pytest.raises(DataError, check=has_code("no_sentences_for_heads")):
        measure_heads(model, [])
    with pytest.raises(UsageError, check=has_code("gold_without_target_sentence")):
        measure_heads(model, [Sentence("I love NLP", None, GoldLinks(frozenset({(0, 0)})))])
    with pytest.raises(
        DataError, check=has_code("gold_link_outside_sentence", source=9, target=0, sources=3, targets=3, unit="tokens")
    ):
        measure_heads(model, [Sentence("I love NLP", "我 爱 NLP", GoldLinks(frozenset({(9, 0)})))])
    learned = tiny_model(positions="learned", max_length=5)
    with pytest.raises(
        DataError, check=has_code("sentence_exceeds_model_length", place="dev line 2", tokens=5, limit=4)
    ):
        measure_heads(learned, [Sentence("I love NLP"), Sentence("I saw the small cat", location="dev line 2")])
    with pytest.raises(
        DataError, check=has_code("sentence_exceeds_model_length", place="dev line 2", tokens=5, limit=4)
    ):
        measure_heads(learned, [Sentence("I love NLP", TARGETS[3], location="dev line 2")])


def test_an_answer_without_tokens_has_no_best_head() -> None:
    silent = tiny_model()
    with torch.no_grad():
        silent.network.output.weight.zero_()
        silent.network.target.tokens.weight.zero_()
    report = measure_heads(silent, [Sentence("the cat", "")])
    assert report.target_tokens == 1
    assert all(each.agreement is None for each in report.heads)
    with pytest.raises(DataError, check=has_code("no_alignable_target_token")):
        assert report.best
