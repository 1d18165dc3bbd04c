"""The base class of all settings."""

from typing import Any, ClassVar

import pytest
from error_codes import fragment, has_code, message
from pydantic import ValidationError

from attendo.decode.config import GenerationConfig
from attendo.errors import AttendoError, DataError, ModelError, UsageError
from attendo.metrics.scores import METRICS
from attendo.model.config import PRESETS, ModelConfig
from attendo.runs.config import RunConfig
from attendo.settings import RenamedSettingWarning, Settings, suggest_name
from attendo.train.config import TrainConfig


class Inner(Settings):
    warmup: int = 10
    rate: float = 0.5


class Outer(Settings):
    name: str
    inner: Inner = Inner()
    model: ModelConfig | None = None


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Inner().warmup = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"warmpu": 3}, fragment("unknown_setting", name="warmpu", suggestion=" (did you mean warmup?)")),
        ({"xyz": 3}, fragment("unknown_setting", name="xyz")),
        ({"warmup": "soon"}, "warmup: input should be a valid integer"),
        ({"rate": float("nan")}, "rate: input should be a finite number, not nan"),
    ],
)
def test_an_error_is_one_line_with_name_and_value(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Inner(**values)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_missing_value_raises_an_error_with_its_name() -> None:
    with pytest.raises(UsageError, check=has_code("setting_missing", name="name")):
        Outer()  # type: ignore[call-arg]


def test_several_errors_raise_one_usage_error() -> None:
    with pytest.raises(UsageError, check=has_code("settings_invalid")) as caught:
        Inner(warmup=1.5, rate="fast")
    assert all(f"{name}: input should be a valid " in str(caught.value) for name in ("warmup", "rate"))


def test_an_unknown_nested_name_is_reported_with_its_path() -> None:
    with pytest.raises(UsageError) as caught:
        Outer(name="a", inner={"warmpu": 3})
    assert str(caught.value) == fragment("unknown_setting", name="inner.warmpu", suggestion=" (did you mean warmup?)")


def test_a_wrong_nested_value_is_reported_with_its_path() -> None:
    with pytest.raises(UsageError, check=has_code("setting_invalid", name="inner.warmup", given="'soon'")):
        Outer(name="a", inner={"warmup": "soon"})


def test_settings_may_be_given_as_objects_or_dicts() -> None:
    model = ModelConfig(vocab_size=5)
    assert Outer(name="a", model=model) == Outer(name="a", model={"vocab_size": 5})
    assert Outer(name="a", inner=Inner(warmup=3)) == Outer(name="a", inner={"warmup": 3})


def test_replace_validates_the_values() -> None:
    assert Inner(warmup=3).replace(rate=0.1) == Inner(warmup=3, rate=0.1)
    with pytest.raises(UsageError, check=has_code("unknown_setting", name="rtae", suggestion=" (did you mean rate?)")):
        Inner().replace(rtae=0.1)
    with pytest.raises(UsageError, check=has_code("setting_invalid", name="warmup")):
        Inner().replace(warmup="soon")


def test_replace_keeps_inner_settings() -> None:
    assert Outer(name="a", inner={"warmup": 3}).replace(name="b") == Outer(name="b", inner={"warmup": 3})


def test_only_similar_names_are_suggested() -> None:
    assert suggest_name("dropuot", ["dropout", "d_model"]) == " (did you mean dropout?)"
    assert suggest_name("colour", ["dropout", "d_model"]) == ""


MODEL = list(ModelConfig.model_fields)
TRAIN = list(TrainConfig.model_fields)
GENERATION = list(GenerationConfig.model_fields)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("stpes", TRAIN, "steps"),
        ("teps", TRAIN, "steps"),
        ("tei", MODEL, "tie"),
        ("lenght_penalty", GENERATION, "length_penalty"),
        ("dmodel", MODEL, "d_model"),
        ("dModel", MODEL, "d_model"),
        ("warm_up", TRAIN, "warmup"),
        ("top-k", GENERATION, "top_k"),
        ("ROUGE-L", list(METRICS), "rougeL"),
        ("BIG", list(PRESETS), "big"),
        ("heads", MODEL, "num_heads"),
        ("n_head", MODEL, "num_heads"),
        ("enc_layers", MODEL, "num_encoder_layers"),
        ("eps", TRAIN, "epsilon"),
        ("lr", TRAIN, "peak_lr"),
        ("max_steps", TRAIN, "steps"),
        ("num_beams", GENERATION, "beam"),
        ("norm_epsilom", MODEL, "norm_epsilon"),
    ],
)
def test_mistyped_shortened_and_longer_names_get_a_suggestion(name: str, known: list[str], meant: str) -> None:
    assert suggest_name(name, known) == f" (did you mean {meant}?)"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("", MODEL),
        ("_", MODEL),
        ("batch_size", MODEL),  # vocab_size
        ("num_steps", MODEL),  # num_heads
        ("do_sample", MODEL),  # d_value
        ("beam", TRAIN),  # beta2
        ("temp", TRAIN),  # steps
        ("test", TRAIN),  # best
        ("positions", TRAIN),  # epsilon
        ("gradient_accumulation_steps", TRAIN),
        ("greedy", GENERATION),  # seed
        ("name", GENERATION),  # sample
        ("epsilon", GENERATION),  # precision
        ("wer", list(METRICS)),  # ter
        ("x" * 10_000, MODEL),
    ],
)
def test_names_with_few_common_letters_get_no_suggestion(name: str, known: list[str]) -> None:
    assert suggest_name(name, known) == ""


def test_a_tie_gives_the_same_suggestion_in_any_order() -> None:
    assert suggest_name("rouge", ["rouge2", "rouge1"]) == suggest_name("rouge", ["rouge1", "rouge2"])


def test_each_kind_of_error_has_its_exit_code() -> None:
    codes = {kind: kind.exit_code for kind in (AttendoError, UsageError, DataError, ModelError)}
    assert codes == {AttendoError: 1, UsageError: 2, DataError: 3, ModelError: 4}
    assert issubclass(UsageError, ValueError)


@pytest.mark.parametrize(
    ("values", "meant"),
    [
        ({"steps": 1}, fragment("unknown_setting", name="steps", suggestion=" (did you mean train.steps?)")),
        ({"stpes": 1}, fragment("unknown_setting", name="stpes", suggestion=" (did you mean train.steps?)")),
        (
            {"num_heads": 4},
            fragment("unknown_setting", name="num_heads", suggestion=" (did you mean model.num_heads?)"),
        ),
        (
            {"tran": {"steps": 1}},
            fragment("unknown_setting", name="tran.steps", suggestion=" (did you mean train.steps?)"),
        ),
        ({"train": {"setps": 1}}, fragment("unknown_setting", name="train.setps", suggestion=" (did you mean steps?)")),
        ({"xyzzy": 1}, fragment("unknown_setting", name="xyzzy")),
    ],
)
def test_a_setting_in_the_wrong_section_gets_a_suggestion(values: dict[str, Any], meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        RunConfig(data={"task": "builtin"}, **values)  # type: ignore[arg-type]
    assert str(caught.value) == meant


def test_an_unneeded_section_is_removed_from_the_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        ModelConfig.preset("base", vocab_size=8, model={"num_heads": 16})
    assert str(caught.value) == fragment(
        "unknown_setting", name="model.num_heads", suggestion=" (did you mean num_heads?)"
    )


class Renamed(Settings):
    renamed: ClassVar[dict[str, str]] = {"waiting": "max_queued"}
    max_queued: int = 128


def test_old_name_of_setting_is_accepted_with_warning() -> None:
    with pytest.warns(RenamedSettingWarning, match=message("setting_renamed", old="waiting", new="max_queued")):
        assert Renamed(waiting=3).max_queued == 3  # type: ignore[call-arg]


def test_setting_given_by_both_names_raises_usage_error() -> None:
    both = {"waiting": 3, "max_queued": 4}
    with pytest.raises(UsageError, check=has_code("setting_given_by_both_names", old="waiting", new="max_queued")):
        Renamed(**both)
