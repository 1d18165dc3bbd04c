"""Decoder-only models continue a text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from running import ALPHABET, continuer

from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD, SentencePiece, Words
from attendo.text.newlines import NEWLINE_SYMBOL
from attendo.text_model import TextModel, TooLongError, load

TEXTS = ["abc", "", "hi. mp", "d\n\ne"]
ENGINES = ("textbook", "cached", "fast")


def continue_greedily(model: TextModel, text: str, length: int) -> list[int]:
    """Greedy continuation without a cache: the complete text is read again at every step."""
    ids = model.target_tokenizer.encode(text)
    while len(ids) < length:
        logits = model.network(None, torch.tensor([[BOS, *ids]]))[0, -1]
        logits[[PAD, BOS]] = float("-inf")
        if (best := int(logits.argmax())) == EOS:
            break
        ids.append(best)
    return ids


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "learned", "none"])
def test_an_answer_is_the_text_and_its_greedy_continuation(positions: str) -> None:
    model = continuer(positions=positions)
    for text, result in zip(TEXTS, model.generate(TEXTS, max_length=15), strict=True):
        assert list(result.ids) == continue_greedily(model, text, 15)
        assert result.text.startswith(text)
        assert result.text == model.target_tokenizer.decode(result.ids)
        assert result.cut == (len(result.ids) == 15)
        assert result.source_tokens == len(text)


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 4},
        {"beam": 4, "n_best": 4, "stop": "first"},
        {"beam": 4, "beam_groups": 2},
        {"sample": True, "n_best": 3, "temperature": 1.5},
        {"beam": 9, "no_repeat_ngram_size": 2},
        {"at_limit": "force_eos"},
        {"at_limit": "any", "beam": 2},
        {"repetition_penalty": 1.5, "min_length": 9},
        {"banned_phrases": ["g"]},
        {"mbr": "chrf", "mbr_candidates": 4},
    ],
)
def test_all_engines_give_the_same_continuation(options: dict[str, Any]) -> None:
    model = continuer(positions="learned" if options.get("beam") == 2 else "rotary")
    expected, *others = (model.generate(TEXTS, engine=engine, max_length=14, **options) for engine in ENGINES)
    assert any(len(result.ids) > len(text) for text, result in zip(TEXTS, expected, strict=True))
    for found in others:
        assert [each.ids for each in found] == [each.ids for each in expected]
        for one, other in zip(found, expected, strict=True):
            assert [each.ids for each in one.hypotheses] == [each.ids for each in other.hypotheses]
            assert one.score == pytest.approx(other.score, abs=1e-4)


def test_neighbours_do_not_change_a_continuation() -> None:
    model = continuer()
    for engine in ENGINES:
        together = model.generate(TEXTS, engine=engine, beam=3)
        alone = [model.generate([text], engine=engine, beam=3)[0] for text in TEXTS]
        assert [each.ids for each in together] == [each.ids for each in alone]


def test_the_score_of_a_continuation_covers_the_complete_text() -> None:
    model = continuer()
    for result in model.generate(TEXTS):
        tokens = model.score_tokens([""], [result.text])[0].log_probabilities
        end = 0.0
        if not result.cut:
            end = float(model.network(None, torch.tensor([[BOS, *result.ids]]))[0, -1].log_softmax(-1)[EOS])
        assert sum(tokens) + end == pytest.approx(result.log_probability, abs=1e-4)


def test_score_covers_only_the_continuation_and_no_eos() -> None:
    model = continuer()
    ids = model.target_tokenizer.encode("abcde")
    log_probs = model.network(None, torch.tensor([[BOS, *ids]]))[0].log_softmax(-1)
    expected = [float(log_probs[position, ids[position]]) for position in range(2, 5)]
    (scored,) = model.score_tokens(["ab"], ["cde"])
    assert scored.pieces == ("c", "d", "e")
    assert scored.log_probabilities == pytest.approx(expected, abs=1e-5)
    pairs = (["", "a", "ab"], ["abc", "bc", "c"])
    three, two, one = model.score(*pairs)
    assert three < two < one
    assert model.score(["ab"], [""]) == [0.0]


def test_score_tokenizes_the_joined_text_not_its_halves() -> None:
    pieces = SentencePiece.train(["the cat sat", "a cat", "the mat"] * 5, 300, "bpe", (NEWLINE_SYMBOL,))
    model = continuer(tokenizer=pieces)
    (inside,) = model.score_tokens(["the c"], ["at"])
    assert inside.pieces == tuple(pieces.pieces(pieces.encode("the cat")[1:]))
    (separate,) = model.score_tokens(["the "], ["cat"])
    assert separate == inside


def test_a_stream_joined_is_the_complete_answer() -> None:
    model = continuer()
    for options in ({}, {"beam": 3}, {"sample": True}, {"banned_phrases": ["q"]}):
        stream, parts = model.stream("ab", max_length=12, **options), []
        try:
            while True:
                parts.append(next(stream))
        except StopIteration as end:
            result = end.value
        assert "".join(parts) == result.text == model.generate(["ab"], max_length=12, **options)[0].text


def test_an_ensemble_continues_with_the_mean_of_its_members() -> None:
    one, other = continuer(0), continuer(1, d_model=8)
    both = one.ensemble([other])
    assert both.decoder_only
    assert both.generate(TEXTS)[0].text != one.generate(TEXTS)[0].text
    expected = both.generate(TEXTS, beam=3)
    assert [each.ids for each in both.generate(TEXTS, beam=3, engine="fast")] == [each.ids for each in expected]
    twice = one.ensemble([one]).score(["ab"], ["cd"])
    assert twice == pytest.approx(one.score(["ab"], ["cd"]), abs=1e-5)


def test_alternatives_and_trees_start_with_the_prompt() -> None:
    model = continuer()
    words = model.alternatives("ab", count=2)
    assert all(each.result.text.startswith("ab") for each in words)
    assert words[0].log_probability >= words[1].log_probability
    assert model.alternatives("", count=1)
    (tree,) = model.search_tree("ab", beam=2)
    assert {tuple(tree.ids(node)[:2]) for node in tree.final_nodes} == {tuple(model.target_tokenizer.encode("ab"))}


def test_a_trace_predicts_what_follows_the_prompt() -> None:
    model = continuer()
    trace, result = model.trace("ab"), model.generate(["ab"], beam=1)[0]
    assert trace.source_pieces == result.pieces[:2]
    assert trace.target_pieces == (result.pieces[2:] if result.cut else (*result.pieces[2:], "</s>"))
    assert trace.text == result.text.removeprefix("ab")
    assert trace.cross.shape == (0, 2, 2 + len(trace.target_pieces), 2)
    given = model.trace("ab", "cd")
    assert (given.text, given.given, given.first_row) == ("cd", True, 2)
    assert float(given.log_probabilities.sum()) == pytest.approx(model.score(["ab"], ["cd"])[0], abs=1e-4)
    expected = model.network(None, torch.tensor([[BOS, *model.target_tokenizer.encode("abc")]]))[0]
    assert torch.allclose(given.logits, expected[2:], atol=1e-4)


def test_a_trace_without_a_continuation_predicts_the_whole_text() -> None:
    model = continuer()
    for trace in (model.trace("abc", ""), model.trace("", "abc")):
        assert (trace.source_pieces, trace.text, trace.first_row) == ((), "abc", 0)
        assert float(trace.log_probabilities.sum()) == pytest.approx(model.score([""], ["abc"])[0], abs=1e-4)


def test_the_prompt_of_a_trace_ends_where_generation_begins() -> None:
    """The tokenizer adds a space to the next word, so the last space of the text is no token of the prompt."""
    words = SentencePiece.train(["the cat sat on the mat"] * 20, 300)
    model = continuer(tokenizer=words)
    assert model.target_tokenizer.encode("the cat ") != model.target_tokenizer.encode("the cat")
    assert model.trace("the cat ").source_ids == model.trace("the cat").source_ids
    assert model.trace("the cat ").target_ids == model.trace("the cat").target_ids


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prefix": "a"}, has_code("prefix_with_decoder_only_model")),
        ({"prefix": ["a"]}, has_code("prefix_with_decoder_only_model")),
        ({"split": True}, has_code("source_option_without_encoder", option="split")),
        ({"alignments": True}, has_code("source_option_without_encoder", option="alignments")),
        ({"coverage_penalty": 0.5}, has_code("source_option_without_encoder", option="coverage_penalty")),
        ({"max_length_factor": 1.5}, has_code("source_option_without_encoder", option="max_length_factor")),
        ({"min_length_factor": 0.5}, has_code("source_option_without_encoder", option="min_length_factor")),
        ({"long_source": "truncate"}, has_code("source_option_without_encoder", option="long_source")),
        (
            {"max_length": 1},
            has_code(
                "prompt_longer_than_max_length", text=has_code("text_position", position=1, total=1), tokens=2, limit=1
            ),
        ),
        ({"banned_phrases": ["ab"]}, has_code("prompt_contains_banned_phrase", text="ab", banned="ab")),
    ],
)
def test_options_about_a_source_are_rejected(options: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        continuer().generate(["ab"], **options)


def test_neutral_source_options_are_accepted() -> None:
    """`trace` passes these neutral values for every model."""
    model = continuer()
    neutral = {"max_length_factor": 0.0, "min_length_factor": 0.0, "coverage_penalty": 0.0, "long_source": "error"}
    assert model.generate(["ab"], source_prefix=[], **neutral) == model.generate(["ab"])


def test_stored_settings_about_a_source_are_rejected() -> None:
    model = continuer(generation={"coverage_penalty": 0.5})
    with pytest.raises(UsageError, check=has_code("source_option_without_encoder", option="coverage_penalty")):
        model.generate(["ab"])


def test_crlf_line_breaks_equal_lf() -> None:
    pieces = SentencePiece.train(["the cat sat", "a cat", "the mat"] * 5, 300, "bpe", (NEWLINE_SYMBOL,))
    for model, text in ((continuer(), "ab\ncd\n"), (continuer(tokenizer=pieces), "the cat\na\n")):
        given = text.replace("\n", "\r\n")
        one, other = model.generate([text, given])
        assert replace(one, segments=()) == replace(other, segments=())
        assert [each.source_span for each in other.segments] == [(0, len(given))]  # of the text as it was given
        assert other.unknown == ()
        assert one.text.startswith(text)
        assert model.score_tokens([given], [given]) == model.score_tokens([text], [text])
        assert model.trace(given, "").target_ids == model.trace(text, "").target_ids


def test_spaces_after_a_line_break_are_ignored() -> None:
    model = continuer(tokenizer=Words.build(["a b c"], symbols=(NEWLINE_SYMBOL,)))
    assert model.generate(["a b\n"])[0].pieces[:3] == ("a", "b", NEWLINE_SYMBOL)
    assert model.generate(["a b\n "])[0].pieces[:3] == ("a", "b", NEWLINE_SYMBOL)
    assert model.generate(["a b "])[0].source_tokens == 2


@pytest.mark.parametrize("kind", ["characters", "pieces", "words"])
def test_scores_equal_those_of_the_network_computed_by_hand(kind: str) -> None:
    """Scores pairs of different lengths in one call, so most of them are padded."""
    lines = ["the cat sat", "a cat", "the mat", "a mat sat"] * 5
    tokenizers: dict[str, Any] = {
        "characters": None,
        "pieces": SentencePiece.train(lines, 300, "bpe", (NEWLINE_SYMBOL,)),
        "words": Words.build(lines, symbols=(NEWLINE_SYMBOL,)),
    }
    model = continuer(tokenizer=tokenizers[kind], positions="learned", max_length=64)
    pairs = [("the cat", " sat\na"), ("a", " mat"), ("", "the cat"), ("the mat sat\n", "a cat sat on it"), ("a", "")]
    encode = model.target_tokenizer.encode
    for (prompt, rest), found in zip(pairs, model.score_tokens(*zip(*pairs, strict=True)), strict=True):
        ids, given = encode(prompt + rest), len(encode(prompt))
        assert ids[:given] == encode(prompt)
        log_probs = model.network(None, torch.tensor([[BOS, *ids]]))[0].log_softmax(-1)
        expected = [float(log_probs[position, ids[position]]) for position in range(given, len(ids))]
        assert found.log_probabilities == pytest.approx(expected, abs=1e-4)
        assert model.target_tokenizer.pieces(ids[given:]) == list(found.pieces)


def test_a_source_prefix_is_rejected() -> None:
    model = continuer(tokenizer=Words.build(["a b"], symbols=("<2de>",)))
    with pytest.raises(UsageError, check=has_code("source_option_without_encoder", option="source_prefix")):
        model.generate(["a"], source_prefix=["<2de>"])
    assert model.generate(["a"], target_prefix=["<2de>"])[0].pieces[:2] == ("<2de>", "a")


def test_constraints_are_met() -> None:
    result = continuer(extra=20).generate(["ab"], beam=4, constraints=["ff"])[0]
    assert result.text.startswith("ab")
    assert "ff" in result.text
    assert result.constraints == (True,)


def test_learned_positions_limit_continuations_and_prompts() -> None:
    model = continuer(positions="learned", max_length=12, extra=100)
    for engine in ENGINES:
        (result,) = model.generate(["abcde"], engine=engine, min_length=11)
        assert (len(result.ids), result.cut) == (11, True)
        assert model.generate(["abcdefghijk"], engine=engine)[0].text == "abcdefghijk"
        with pytest.raises(
            TooLongError,
            check=has_code(
                "prompt_exceeds_model_limit", text=has_code("text_position", position=2, total=2), tokens=12, limit=11
            ),
        ):
            model.generate(["a", "abcdefghijkl"], engine=engine)


def test_unknown_characters_are_reported() -> None:
    (result,) = continuer().generate(["aXb"])
    assert result.unknown == ("X",)
    assert result.text.startswith("a⁇b")


def test_a_trailing_space_is_ignored() -> None:
    model = continuer(tokenizer=Words.build(["a b c"]))
    assert model.generate(["a b "])[0].ids == model.generate(["a b"])[0].ids


def test_line_breaks_survive_a_subword_tokenizer() -> None:
    pieces = SentencePiece.train(["the cat sat", "a cat", "the mat"] * 5, 300, "bpe", (NEWLINE_SYMBOL,))
    model = continuer(tokenizer=pieces)
    result = model.generate(["the cat\na mat\n\nthe"], max_length=30)[0]
    assert result.text.startswith("the cat\na mat\n\nthe")
    assert result.pieces.count(NEWLINE_SYMBOL) == 3 + result.text.count("\n", 18)


def test_a_saved_model_gives_the_same_answers(tmp_path: Path) -> None:
    model = continuer(tokenizer=Words.build([ALPHABET], symbols=(NEWLINE_SYMBOL,)))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.decoder_only
    assert loaded.generate(["a\nb"])[0] == model.generate(["a\nb"])[0]


def test_heads_can_be_disabled() -> None:
    model = continuer()
    without = model.with_heads({"decoder.0.self": {0: 0.0}, "decoder.1.self": {0: 0.0, 1: 0.0}})
    assert without.decoder_only
    assert without.score([""], ["abc"]) != model.score([""], ["abc"])
    expected = without.generate(TEXTS, engine="fast")
    assert [each.ids for each in without.generate(TEXTS)] == [each.ids for each in expected]
