"""A model trained with preceding sentences translates a pronoun by the noun before it. Without them it only guesses."""

import itertools
from pathlib import Path

import pytest
import torch

from attendo.runs.config import RunConfig
from attendo.runs.run import Run
from attendo.text_model import TextModel

NOUNS = {
    "dog": ("der Hund", "er"),
    "tree": ("der Baum", "er"),
    "lamp": ("die Lampe", "sie"),
    "cat": ("die Katze", "sie"),
    "book": ("das Buch", "es"),
    "horse": ("das Pferd", "es"),
}
FIRST = {"is old": "ist alt", "is there": "ist da", "is gone": "ist weg", "sleeps": "schläft"}
SECOND = {"is small": "ist klein", "is big": "ist groß", "is nice": "ist schön", "falls": "fällt", "is new": "ist neu"}


def make_documents() -> list[tuple[list[str], list[str]]]:
    found = []
    for (noun, (german, pronoun)), (one, eins), (two, zwei) in itertools.product(
        NOUNS.items(), FIRST.items(), SECOND.items()
    ):
        found.append(([f"The {noun} {one}.", f"It {two}."], [f"{german} {eins}.", f"{pronoun} {zwei}."]))
    return found


def train(folder: Path) -> TextModel:
    documents = [each for number, each in enumerate(make_documents()) if number % 4]
    for side, name in enumerate(("source", "target")):
        text = "\n\n".join("\n".join(document[side]) for document in documents)
        (folder / f"{name}.txt").write_text(f"{text}\n", "utf-8")
    config = RunConfig(
        data={
            "source": str(folder / "source.txt"),
            "target": str(folder / "target.txt"),
            "context_sentences": 1,
        },
        tokenizer={"kind": "words"},
        model={"d_model": 32, "num_heads": 2, "d_ff": 64, "num_encoder_layers": 2, "num_decoder_layers": 1}
        | {"dropout": 0.0},
        train={"steps": 250, "peak_lr": 1e-2, "warmup": 20, "batch_tokens": 512, "validate_every": 250}
        | {"save_every": 250},
    )
    run = Run.begin(config, folder / "run", torch.device("cpu"))
    for _ in run.prepare():
        pass
    run.build()
    for _ in run.train():
        pass
    from attendo.text_model import load

    return load(run.finish(), "cpu")


@pytest.mark.slow
def test_pronouns_follow_the_noun_of_the_sentence_before(tmp_path: Path) -> None:
    model = train(tmp_path)
    documents = [each for number, each in enumerate(make_documents()) if number % 4 == 0]
    texts, targets = [" ".join(source) for source, _ in documents], [target for _, target in documents]
    assert model.generation.context_sentences == 1
    right = {}
    for count in (1, 0):
        results = model.generate(texts, context_sentences=count)
        assert all(len(each.sentences) == 2 for each in results)
        outputs = [each.sentences[1].text.split() for each in results]
        right[count] = sum(
            output[:1] == target[1].split()[:1] for output, target in zip(outputs, targets, strict=True)
        ) / len(targets)
    assert right[1] >= 0.95
    assert right[0] <= 0.6  # three pronouns
