"""The shift of the target in the examples of the study texts. Ids are those of the specification."""

import pytest

from attendo.data.batch import Batch, Example, collate
from attendo.text import Words


@pytest.mark.parametrize(
    ("text", "decoder_reads", "decoder_predicts"),
    [
        pytest.param("I love NLP", ["<s>", "I", "love", "NLP"], ["I", "love", "NLP", "</s>"], id="O5"),
        pytest.param("Guten Tag", ["<s>", "Guten", "Tag"], ["Guten", "Tag", "</s>"], id="O6"),
    ],
)
def test_O5_O6_decoder_input_is_shifted_by_one(
    text: str, decoder_reads: list[str], decoder_predicts: list[str]
) -> None:
    tokenizer = Words.build([text])
    batch = collate([Example(tokenizer.encode(text), tokenizer.encode(text))])
    assert tokenizer.pieces(batch.target_ids[0].tolist()) == decoder_reads
    assert tokenizer.pieces(batch.labels[0].tolist()) == decoder_predicts
    assert (
        tokenizer.pieces(batch.source_ids[0].tolist()) == decoder_predicts
    )  # the source ends with EOS and is not shifted


def test_each_row_of_a_padded_batch_is_shifted() -> None:
    tokenizer = Words.build(["I love NLP", "Guten Tag"])
    ids = [tokenizer.encode(text) for text in ("I love NLP", "Guten Tag")]
    batch = collate([Example(each, each) for each in ids])
    assert rows(tokenizer, batch) == [
        (["<s>", "I", "love", "NLP"], ["I", "love", "NLP", "</s>"]),
        (["<s>", "Guten", "Tag", "<pad>"], ["Guten", "Tag", "</s>", "<pad>"]),
    ]


def rows(tokenizer: Words, batch: Batch) -> list[tuple[list[str], list[str]]]:
    sides = zip(batch.target_ids.tolist(), batch.labels.tolist(), strict=True)
    return [(tokenizer.pieces(read), tokenizer.pieces(predicted)) for read, predicted in sides]
