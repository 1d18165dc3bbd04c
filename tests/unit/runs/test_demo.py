"""The demo, with a network trained for two steps."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from attendo.demo_task import STUDY_SENTENCES, BuiltinTask
from attendo.explore.head_stats import HeadStats
from attendo.runs.corpora import make_corpora
from attendo.runs.demo import (
    EXAMPLE_SENTENCE,
    DemoScores,
    DemoTranslation,
    demo_config,
    evaluate,
    make_attention_map,
    write_pictures,
)
from attendo.runs.run import Run
from attendo.text.factory import build_tokenizers
from attendo.text_model import TextModel


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    """Few sentences, few validation pairs, a narrow network, two steps."""
    config = demo_config().replace(
        data={"task": "builtin", "pairs": 2000},
        model={**demo_config().model, "d_model": 16, "d_ff": 16},
        train={"steps": 2, "batch_tokens": 256, "warmup": 1, "samples": 0},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attendo.runs.corpora.BUILTIN_VALID_PAIRS", 50)
        run = Run.begin(config, tmp_path_factory.mktemp("demo") / "run", torch.device("cpu"))
        for _ in run.prepare():
            pass
        run.build()
        for _ in run.train():
            pass
        run.finish()
    run.model.network.eval()
    return run.model


@pytest.mark.slow
def test_every_word_of_the_task_is_one_token() -> None:
    task = BuiltinTask(1)
    pairs = [*islice(task.train(), 2000), *task.heldout(300)]
    source, target = build_tokenizers(
        [pair.source for pair in pairs], [pair.target for pair in pairs], demo_config().tokenizer
    )
    for pair in pairs:
        assert [word.lower() for word in source.pieces(source.encode(pair.source))] == [
            word.lower() for word in pair.source_words
        ]
        assert target.pieces(target.encode(pair.target)) == list(pair.target_words)


@pytest.mark.slow
def test_the_vocabulary_covers_the_held_out_pairs() -> None:
    config = demo_config()
    (training,), valid = make_corpora(config.data, config.seed)
    assert valid is not None
    rows = list(islice(training.rows(), 10_000))  # a subset of all rows is enough
    source, target = build_tokenizers([row.source for row in rows], [row.target for row in rows], config.tokenizer)
    held_out = list(valid.rows())
    assert len(held_out) == 1000
    for row in held_out:
        assert not source.unknown(row.source)
        assert not target.unknown(row.target)


@pytest.mark.slow
def test_scores_count_exact_matches_and_list_every_head(model: TextModel) -> None:
    scores = evaluate(model, BuiltinTask(1), count=40)
    assert len(scores.translations) == 40
    assert scores.num_correct == sum(each.text == each.pair.target for each in scores.translations)
    assert scores.exact_match == scores.num_correct / 40
    assert scores.heads.gold_links == sum(len(set(pair.alignment)) for pair in BuiltinTask(1).heldout(40))
    cross = [head for head in scores.heads.heads if head.attention_type == "cross"]
    assert [(head.layer, head.head) for head in cross] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    best = min(cross, key=lambda head: head.error_rate)
    entry = {"layer": best.layer, "head": best.head, "error_rate": best.error_rate}
    assert scores.summary() == {"exact_match": scores.exact_match, "alignment_head": entry}


def test_examples_begin_with_the_study_sentences() -> None:
    pairs = [*BuiltinTask(1).heldout(50), *STUDY_SENTENCES]
    scores = DemoScores(tuple(DemoTranslation(pair, pair.target) for pair in pairs), None)
    shown = scores.select_examples(9)
    assert len(shown) == 9
    assert [each.pair.source for each in shown[:3]] == [pair.source for pair in pairs if pair in STUDY_SENTENCES][:3]
    assert len({each.pair.source for each in shown}) == 9


@pytest.mark.slow
def test_a_map_shows_the_attention_of_its_layer_and_head(model: TextModel) -> None:
    trace = model.trace(EXAMPLE_SENTENCE)
    chosen = make_attention_map(trace, HeadStats("decoder.1.cross", 0, *(0.5,) * 6))
    assert chosen.title == "decoder layer 1, head 0", "layers and heads count from 0"
    assert tuple(chosen.rows) == trace.target_pieces
    assert tuple(chosen.columns) == trace.source_pieces == ("I", "love", "natural", "language", "processing", "</s>")
    assert torch.equal(torch.tensor(chosen.weights), trace.cross[1, 0])


def test_pictures_are_written_and_named(model: TextModel, tmp_path: Path) -> None:
    head = HeadStats("decoder.0.cross", 1, *(0.5,) * 6)
    pictures = write_pictures(tmp_path, model.trace(EXAMPLE_SENTENCE), head)
    assert [path.name for path in pictures] == ["attention.svg", "attention.html"]
    assert pictures[0].read_text("utf-8").startswith("<svg")
    page = pictures[1].read_text("utf-8")
    assert "module=decoder.0.cross&amp;head=1" in page


def test_another_seed_gives_other_sentences() -> None:
    assert demo_config(2).seed == 2
    assert BuiltinTask(1).heldout(20) != BuiltinTask(2).heldout(20)
