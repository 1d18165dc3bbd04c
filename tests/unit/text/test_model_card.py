"""The model card inferred from file names."""

from pathlib import Path

import pytest

from attendo.errors import UsageError
from attendo.text.languages import ISO_639_1
from attendo.text.model_card import ModelCard, infer_model_card


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("train.en", "train.de", ("en", "de")),
        ("train.en.gz", "news.2024.ZH.xz", ("en", "zh")),
        ("a.b/corpus.fr", "corpus.pt", ("fr", "pt")),
        ("train.en", "train.en", None),
        ("train.source", "train.target", None),
        ("train.en", "train.txt", None),
        ("en", "de", None),
        ("train.en.txt", "train.de.txt", None),
    ],
)
def test_file_suffixes_with_languages_mean_translation(
    source: str, target: str, expected: tuple[str, str] | None
) -> None:
    card = infer_model_card(Path(source), Path(target))
    if expected is None:
        assert card == ModelCard()
        assert card.to_dict() == {}
    else:
        assert card.to_dict() == {
            "task": "translation",
            "source_language": expected[0],
            "target_language": expected[1],
        }


def test_languages_are_those_of_ISO_639_1() -> None:
    assert {"en", "zh", "de", "ja", "sw"} <= ISO_639_1
    assert len(ISO_639_1) == 183
    assert all(len(each) == 2 for each in ISO_639_1)


@pytest.mark.parametrize(
    "values", [{"task": "chess"}, {"source_language": "English"}, {"target_language": "e"}, {"language": "en"}]
)
def test_invalid_model_card_values_are_rejected(values: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(values))):
        ModelCard(**values)
