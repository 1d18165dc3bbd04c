"""The base class of all settings."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from error_codes import fragment, has_code, message
from pydantic import Field, ValidationError

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
        ({"warmup": "soon"}, "warmup must be an integer, not 'soon'"),
        ({"rate": float("nan")}, "rate must be a finite number, not nan"),
    ],
)
def test_an_error_is_one_line_with_name_and_value(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Inner(**values)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


class AllKinds(Settings):
    text: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    switch: bool = True
    count: Annotated[int, Field(ge=1, lt=9)] = 1
    rate: Annotated[float, Field(gt=0, le=1)] = 1
    choice: Literal["a", "b", "c"] = "a"
    file: Path = Path()
    values: Annotated[tuple[int, ...], Field(max_length=2)] = ()
    table: dict[str, int] | None = None
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("values", "code", "chinese"),
    [
        ({"text": 3}, "field_string_type", "text 必须是字符串（给出的是 3）"),
        ({"text": "A"}, "field_string_pattern_mismatch", "text 必须符合 ^[a-z]+$（给出的是 'A'）"),
        ({"switch": "x"}, "field_bool_parsing", "switch 必须是 true 或 false（给出的是 'x'）"),
        ({"switch": []}, "field_bool_type", "switch 必须是 true 或 false（给出的是 []）"),
        ({"count": "x"}, "field_int_parsing", "count 必须是整数（给出的是 'x'）"),
        ({"count": 1.5}, "field_int_from_float", "count 必须是整数（给出的是 1.5）"),
        ({"count": None}, "field_int_type", "count 必须是整数（给出的是 None）"),
        ({"count": 0}, "field_greater_than_equal", "count 不能小于 1（给出的是 0）"),
        ({"count": 9}, "field_less_than", "count 必须小于 9（给出的是 9）"),
        ({"rate": "x"}, "field_float_parsing", "rate 必须是数（给出的是 'x'）"),
        ({"rate": []}, "field_float_type", "rate 必须是数（给出的是 []）"),
        ({"rate": 0}, "field_greater_than", "rate 必须大于 0（给出的是 0）"),
        ({"rate": 2}, "field_less_than_equal", "rate 不能大于 1（给出的是 2）"),
        ({"rate": float("inf")}, "field_finite_number", "rate 必须是有限的数（给出的是 inf）"),
        ({"choice": "d"}, "field_literal_error", "choice 必须是以下之一：'a'、'b'、'c'（给出的是 'd'）"),
        ({"file": 3}, "field_path_type", "file 必须是路径（给出的是 3）"),
        ({"values": (1, 2, 3)}, "field_too_long", "values 最多只能有 2 项（给出的是 (1, 2, 3)）"),
        ({"table": 3}, "field_dict_type", "table 必须是对象（给出的是 3）"),
        ({"inner": 3}, "field_model_type", "inner 必须是对象（给出的是 3）"),
    ],
)
def test_every_kind_of_fault_has_a_text_in_both_languages(values: dict[str, Any], code: str, chinese: str) -> None:
    with pytest.raises(UsageError, check=has_code("setting_invalid", fault=has_code(code))) as caught:
        AllKinds(**values)
    assert caught.value.text("zh") == chinese


def test_a_missing_value_raises_an_error_with_its_name() -> None:
    with pytest.raises(UsageError, check=has_code("setting_missing", name="name")):
        Outer()  # type: ignore[call-arg]


def test_several_errors_raise_one_usage_error() -> None:
    with pytest.raises(UsageError, check=has_code("settings_invalid")) as caught:
        Inner(warmup=1.5, rate="fast")
    assert str(caught.value) == "warmup must be an integer, not 1.5; rate must be a number, not 'fast'"


def test_an_unknown_nested_name_is_reported_with_its_path() -> None:
    with pytest.raises(UsageError) as caught:
        Outer(name="a", inner={"warmpu": 3})
    assert str(caught.value) == fragment("unknown_setting", name="inner.warmpu", suggestion=" (did you mean warmup?)")


def test_a_wrong_nested_value_is_reported_with_its_path() -> None:
    with pytest.raises(
        UsageError,
        check=has_code("setting_invalid", fault=has_code("field_int_parsing", name="inner.warmup"), given="'soon'"),
    ):
        Outer(name="a", inner={"warmup": "soon"})


def test_settings_may_be_given_as_objects_or_dicts() -> None:
    model = ModelConfig(vocab_size=5)
    assert Outer(name="a", model=model) == Outer(name="a", model={"vocab_size": 5})
    assert Outer(name="a", inner=Inner(warmup=3)) == Outer(name="a", inner={"warmup": 3})


def test_replace_validates_the_values() -> None:
    assert Inner(warmup=3).replace(rate=0.1) == Inner(warmup=3, rate=0.1)
    with pytest.raises(UsageError, check=has_code("unknown_setting", name="rtae", suggestion=" (did you mean rate?)")):
        Inner().replace(rtae=0.1)
    with pytest.raises(
        UsageError, check=has_code("setting_invalid", fault=has_code("field_int_parsing", name="warmup"))
    ):
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
