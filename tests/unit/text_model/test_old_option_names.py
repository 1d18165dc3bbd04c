"""Option names and values of version 0.1.0 still work: with a warning in a call, silently in stored files."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from tiny import tiny_model

from attendo.decode.config import GenerationConfig
from attendo.decode.options import RENAMED_OPTIONS, RENAMED_SETTINGS, CallFields, list_options
from attendo.decode.presets import PRESETS
from attendo.errors import UsageError
from attendo.settings import RenamedSettingWarning
from attendo.text_model import GenerateOptions, TextModel, load
from attendo.text_model.backends import TorchBackend

TEXTS = ["the cat saw a dog", "I love NLP"]
CALLS: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"like": "hf"}, {"preset": "hf"}, 1),
    ({"ban": ["猫"]}, {"banned_phrases": ["猫"]}, 1),
    (
        {"beam": 4, "groups": 2, "diversity": 0.7},
        {"beam": 4, "beam_groups": 2, "diversity_penalty": 0.7},
        2,
    ),
    ({"sample": True, "typical": 0.8}, {"sample": True, "typical_p": 0.8}, 1),
    ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}, 1),
    ({"at_limit": "cut"}, {"at_limit": "truncate"}, 1),
    ({"at_limit": "end"}, {"at_limit": "force_eos"}, 1),
    ({"at_limit": "free"}, {"at_limit": "any"}, 1),
    ({"long_source": "refuse"}, {"long_source": "error"}, 1),
    ({"long_source": "cut", "max_source": 2}, {"long_source": "truncate", "max_source": 2}, 1),
]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model()


@pytest.mark.parametrize(("old", "new", "warned"), CALLS, ids=str)
def test_old_names_give_the_same_output_and_one_warning_each(
    model: TextModel, old: dict[str, Any], new: dict[str, Any], warned: int
) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = model.generate(TEXTS, max_length=6, **old)
    assert [each.category for each in seen] == [RenamedSettingWarning] * warned
    assert found == model.generate(TEXTS, max_length=6, **new)
    with pytest.warns(RenamedSettingWarning):
        assert model.settings(**old) == model.settings(**new)


def test_streams_and_alternatives_warn_once_for_an_old_name(model: TextModel) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        list(model.stream("the cat. the dog.", split=True, no_repeat_ngram=2, max_length=6))
    assert len(seen) == 1
    with pytest.warns(RenamedSettingWarning):
        model.alternatives("the cat", no_repeat_ngram=2, max_length=6)


@pytest.mark.parametrize(("old", "new"), RENAMED_OPTIONS.items())
def test_both_names_together_are_an_error(model: TextModel, old: str, new: str) -> None:
    with pytest.raises(UsageError, check=has_code("setting_given_by_both_names", old=old, new=new)):
        model.generate(TEXTS, **{old: 2, new: 2})


def test_new_names_are_declared_and_old_ones_are_not() -> None:
    declared = {each.name for each in list_options(CallFields)} | GenerationConfig.model_fields.keys()
    assert set(RENAMED_OPTIONS.values()) <= declared
    assert not RENAMED_OPTIONS.keys() & declared
    assert set(RENAMED_SETTINGS.values()) <= GenerationConfig.model_fields.keys()


def test_every_preset_is_declared() -> None:
    (preset,) = [each for each in list_options(GenerateOptions) if each.name == "preset"]
    assert all(f"'{name}'" in str(preset.type) for name in PRESETS)


def test_a_folder_with_old_names_loads_silently_and_is_saved_with_new_ones(model: TextModel, tmp_path: Path) -> None:
    old = {"beam": 4, "groups": 2, "diversity": 0.7, "no_repeat_ngram": 3, "at_limit": "end", "long_source": "cut"}
    new = {
        "beam": 4,
        "beam_groups": 2,
        "diversity_penalty": 0.7,
        "no_repeat_ngram_size": 3,
        "at_limit": "force_eos",
        "long_source": "truncate",
    }
    from attendo.model_folder import save_model

    save_model(tmp_path / "old", replace(model.stored_model, generation=old))
    assert json.loads((tmp_path / "old" / "generation.json").read_text()) == old
    loaded = load(tmp_path / "old", "cpu")  # a warning is an error in tests
    assert loaded.generation == GenerationConfig(**new)
    loaded.save(tmp_path / "new")
    assert json.loads((tmp_path / "new" / "generation.json").read_text()) == new
    assert load(tmp_path / "new", "cpu").generate(TEXTS) == loaded.generate(TEXTS)


def test_the_backend_is_available_under_its_old_name(model: TextModel) -> None:
    with pytest.warns(RenamedSettingWarning, match="runtime is now called backend"):
        assert model.runtime is model.backend
    backend = TorchBackend(model.network)
    with pytest.warns(RenamedSettingWarning):
        assert TextModel(model.stored_model, runtime=backend).backend is backend
