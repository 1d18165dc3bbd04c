"""The segments of a result cover its source and its text exactly, and each holds one sentence and its output."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from varied_models import varied_model

from attendo.text_model.segment_map import map_segments
from attendo.text_model.sentence_splitting import join_segments, split_segments

BITS = [
    "a",
    "Hi.",
    "Yes!",
    "3",
    "…",
    "。",
    "你好。",
    " ",
    "\n",
    "\r\n",
    "\t",
    "「好」",
    "...",
    "z.B.",
    "\u2028",
    "\x1c",
    " . ",
]
OUTPUTS = ["", "x y", " q ", "好。", "A. B!"]


def squeeze(text: str) -> str:
    return "".join(text.split())


@settings(deadline=None)
@given(st.lists(st.sampled_from(BITS), max_size=14), st.lists(st.sampled_from(OUTPUTS), min_size=14, max_size=14))
def test_segments_cover_both_texts(bits: list[str], outputs: list[str]) -> None:
    source = "".join(bits)
    sentences = split_segments(source)
    outputs = outputs[: len(sentences)]
    target = join_segments(outputs, [each.line_breaks for each in sentences]) if sentences else ""
    segments = map_segments(source, [each.text for each in sentences], target, outputs)
    assert "".join(source[slice(*each.source_span)] for each in segments) == source
    assert "".join(target[slice(*each.target_span)] for each in segments) == target
    if sentences:
        for segment, sentence, output in zip(segments, sentences, outputs, strict=True):
            assert squeeze(source[slice(*segment.source_span)]) == squeeze(sentence.text)
            assert squeeze(target[slice(*segment.target_span)]) == squeeze(output)


@pytest.mark.parametrize("options", [{}, {"beam": 2, "n_best": 2}, {"do_not_translate": ["NLP"]}], ids=str)
def test_a_result_has_the_segments_of_its_text(options: dict[str, object]) -> None:
    text = "  I love NLP. The cat sat!\r\n\r\nA dog ran home? \n"
    (split,) = varied_model().generate([text], split=True, **options)  # type: ignore[arg-type]
    assert [text[slice(*each.source_span)] for each in split.segments] == [
        "  I love NLP. ",
        "The cat sat!\r\n\r\n",
        "A dog ran home? \n",
    ]
    parts = [split.text[slice(*each.target_span)] for each in split.segments]
    assert "".join(parts) == split.text
    assert [squeeze(each) for each in parts] == [squeeze(each.text) for each in split.sentences]


def test_a_text_that_is_not_split_is_one_segment() -> None:
    (whole, blank, empty) = varied_model().generate(["The cat. A dog.", " ", ""], split=False)
    assert [(each.source_span, each.target_span) for each in whole.segments] == [((0, 15), (0, len(whole.text)))]
    assert [(each.source_span, each.target_span) for each in blank.segments] == [((0, 1), (0, 0))]
    assert empty.segments == ()
