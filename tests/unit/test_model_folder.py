"""A saved model loads unchanged, and a damaged model folder is never loaded."""

import hashlib
import json
import pickle
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import fragment, has_code
from full_disk import room_for
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny import SOURCES, tiny_model

from attendo.errors import AttendoError, ModelError
from attendo.model_folder import FORMAT, VERSION, load_model, save_model, write_manifest
from attendo.text import Words
from attendo.text_model import load

FILES = (
    "config.json",
    "generation.json",
    "manifest.json",
    "scores.json",
    "source.tokenizer.json",
    "target.tokenizer.json",
    "weights.safetensors",
)

Tensors = dict[str, torch.Tensor]


@pytest.mark.parametrize("changes", [{"tie": "none"}, {"tie": "output"}, {"tie": "all", "joint": True}])
def test_a_saved_model_loads_with_the_same_weights_and_answers(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = tiny_model(seed=3, **changes)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", "cpu")
    before, after = model.network.state_dict(), loaded.network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert loaded.generate(SOURCES) == model.generate(SOURCES)
    assert (loaded.generation, loaded.scores) == (model.generation, model.scores)
    assert loaded.network.config == model.network.config
    assert not loaded.network.training


def test_the_folder_contains_these_files(model_folder: Path) -> None:
    assert sorted(path.name for path in model_folder.iterdir()) == sorted(FILES)


@pytest.mark.parametrize(
    ("changes", "stored_once"),
    [
        ({"tie": "output"}, {"output.weight"}),
        ({"tie": "all", "joint": True}, {"output.weight", "target.tokens.weight"}),
    ],
)
def test_tied_weights_are_stored_once_and_still_tied_after_loading(
    tmp_path: Path, changes: dict[str, Any], stored_once: set[str]
) -> None:
    tiny_model(**changes).save(tmp_path / "model")
    with safe_open(tmp_path / "model" / "weights.safetensors", "pt") as file:
        assert not stored_once & set(file.keys())
    network = load(tmp_path / "model", "cpu").network
    assert network.output.weight is network.target.tokens.weight
    assert network.source is not None
    assert (network.source.tokens.weight is network.target.tokens.weight) == (changes["tie"] == "all")


def test_a_joint_tokenizer_loads_as_one_object(tmp_path: Path) -> None:
    tiny_model(joint=True).save(tmp_path / "model")
    loaded = load(tmp_path / "model", "cpu")
    assert loaded.source_tokenizer is loaded.target_tokenizer


def test_saving_replaces_the_earlier_folder(tmp_path: Path) -> None:
    tiny_model(seed=1, joint=True).save(tmp_path / "model")
    second = tiny_model(seed=2)
    second.save(tmp_path / "model")
    assert load(tmp_path / "model", "cpu").generate(SOURCES) == second.generate(SOURCES)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == sorted(FILES)


@pytest.mark.parametrize("existing", [False, True])
def test_leftovers_of_an_interrupted_save_are_removed(tmp_path: Path, existing: bool) -> None:
    if existing:
        tiny_model().save(tmp_path / "model")
    for leftover in (".tmp-model", ".old-model"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "half").write_text("written")
    tiny_model().save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("room", [100, 2_000])
def test_a_full_disk_leaves_only_the_earlier_folder(tmp_path: Path, existing: bool, room: int) -> None:
    if existing:
        tiny_model().save(tmp_path / "model")
    with pytest.raises((OSError, AttendoError)), room_for(room):
        tiny_model(seed=2).save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"] * existing
    if existing:
        assert load(tmp_path / "model", "cpu").generate(SOURCES) == tiny_model().generate(SOURCES)


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear reader")
    with pytest.raises(AttendoError, check=has_code("not_a_model_folder")):
        tiny_model().save(tmp_path / "letters")
    assert (tmp_path / "letters" / "dear.txt").read_text() == "Dear reader"


@pytest.mark.short(3)
@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_detected(model_folder: Path, name: str) -> None:
    content = (model_folder / name).read_bytes()
    generator = random.Random(name)
    for _ in range(300 if name == "manifest.json" else 40):
        bit = generator.randrange(len(content) * 8)
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        (model_folder / name).write_bytes(damaged)
        assert str(model_folder / name) in expect_error(model_folder), f"bit {bit}"


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_raises_an_error_with_its_path(model_folder: Path, name: str) -> None:
    (model_folder / name).unlink()
    assert str(model_folder / name) in expect_error(model_folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_a_truncated_file_raises_an_error_with_its_path(model_folder: Path, name: str, fraction: float) -> None:
    content = (model_folder / name).read_bytes()
    (model_folder / name).write_bytes(content[: int(fraction * len(content))])
    assert str(model_folder / name) in expect_error(model_folder)


@pytest.mark.parametrize("name", [name for name in FILES if name != "manifest.json"])
def test_a_file_with_extra_bytes_raises_an_error_with_its_path(model_folder: Path, name: str) -> None:
    with (model_folder / name).open("ab") as file:
        file.write(b"\n")
    assert str(model_folder / name) in expect_error(model_folder)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("source.tokenizer.json", "target.tokenizer.json"),
        ("generation.json", "scores.json"),
        ("config.json", "manifest.json"),
        ("weights.safetensors", "config.json"),
    ],
)
def test_exchanged_files_are_detected(model_folder: Path, one: str, other: str) -> None:
    first, second = (model_folder / one).read_bytes(), (model_folder / other).read_bytes()
    (model_folder / one).write_bytes(second)
    (model_folder / other).write_bytes(first)
    message = expect_error(model_folder)
    assert str(model_folder / one) in message or str(model_folder / other) in message


def test_a_link_to_a_file_elsewhere_is_not_followed(model_folder: Path, tmp_path: Path) -> None:
    shutil.move(model_folder / "scores.json", tmp_path / "scores.json")
    (model_folder / "scores.json").symlink_to(tmp_path / "scores.json")
    assert str(model_folder / "scores.json") in expect_error(model_folder)


def test_weights_of_another_size_are_rejected(model_folder: Path, tmp_path: Path) -> None:
    tiny_model(d_model=32).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "weights.safetensors", model_folder)
    rewrite_manifest(model_folder)
    assert "the network needs" in expect_error(model_folder, "weights.safetensors")


def without_one(weights: Tensors) -> Tensors:
    return {name: weight for name, weight in weights.items() if name != "decoder_norm.weight"}


def with_one_more(weights: Tensors) -> Tensors:
    return {**weights, "surplus": torch.zeros(1)}


@pytest.mark.parametrize(
    ("change", "problem"),
    [(without_one, "decoder_norm.weight is missing"), (with_one_more, "surplus is not part of the network")],
)
def test_missing_and_extra_weights_raise_an_error_with_their_name(
    model_folder: Path, change: Callable[[Tensors], Tensors], problem: str
) -> None:
    rewrite_weights(model_folder, change)
    assert problem in expect_error(model_folder, "weights.safetensors")


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_kept_on_request_and_read_as_float32(
    model_folder: Path, tmp_path: Path, kind: torch.dtype
) -> None:
    stored = load_model(model_folder)
    stored.network.to(kind)
    save_model(tmp_path / "half", stored, None)
    save_model(tmp_path / "full", stored)
    sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]
    for name in ("half", "full"):
        found = load_model(tmp_path / name).network
        for weight, expected in zip(found.parameters(), stored.network.parameters(), strict=True):
            assert weight.dtype == torch.float32
            assert torch.equal(weight, expected.float())


@pytest.mark.parametrize("kind", [torch.float64, torch.int64, torch.bool])
def test_weights_of_another_dtype_are_rejected(model_folder: Path, kind: torch.dtype) -> None:
    rewrite_weights(model_folder, lambda weights: {name: weight.to(kind) for name, weight in weights.items()})
    assert str(kind).removeprefix("torch.") in expect_error(model_folder, "weights.safetensors")


class Sentinel:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("write", [pickle.dump, torch.save])
def test_a_pickle_instead_of_weights_is_rejected_and_never_executed(
    model_folder: Path, tmp_path: Path, write: Callable[..., None]
) -> None:
    with (model_folder / "weights.safetensors").open("wb") as file:
        write(Sentinel(tmp_path / "sentinel"), file)
    rewrite_manifest(model_folder)
    expect_error(model_folder, "weights.safetensors")
    assert not (tmp_path / "sentinel").exists()


@pytest.mark.parametrize(("kind", "version"), [("other.model", VERSION), (FORMAT, VERSION + 1), (FORMAT, str(VERSION))])
def test_another_format_or_version_is_rejected(model_folder: Path, kind: str, version: Any) -> None:
    (model_folder / "manifest.json").unlink()
    write_manifest(model_folder, kind, version)
    assert f"{kind} version {version}" in expect_error(model_folder, "manifest.json")


def test_a_file_or_missing_path_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for name in ("file", "nothing"):
        assert str(tmp_path / name) in expect_error(tmp_path / name)


def test_errors_distinguish_missing_and_damaged_models(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert fragment("model_manifest_missing", reason="it is empty") in expect_error(tmp_path / "empty")
    assert fragment("model_manifest_missing") in expect_error(tmp_path)
    (model_folder / "manifest.json").unlink()
    assert fragment("model_file_unreadable", path="manifest.json") in expect_error(model_folder)


def test_a_tokenizer_of_another_size_is_rejected(model_folder: Path) -> None:
    Words.build(["quite other words stand here and there are many more of them"]).save(model_folder, "target")
    rewrite_manifest(model_folder)
    assert "target tokenizer has" in expect_error(model_folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "config.json", "source.tokenizer.json", "scores.json"])
def test_a_required_file_missing_in_the_manifest_is_an_error(model_folder: Path, name: str) -> None:
    (model_folder / name).unlink()
    rewrite_manifest(model_folder)
    expect_error(model_folder, name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "[]"),
        ("config.json", "[" * 100_000),
        ("config.json", '{"vocab_size": 5, "d_modle": 8}'),
        ("config.json", '{"vocab_size": 5, "self": 8}'),
        ("generation.json", '{"max_lenght": 8}'),
        ("generation.json", '{"self": 8}'),
        ("scores.json", "nothing"),
    ],
)
def test_invalid_content_raises_model_error(model_folder: Path, name: str, content: str) -> None:
    (model_folder / name).write_text(content)
    rewrite_manifest(model_folder)
    expect_error(model_folder, name)


@pytest.mark.parametrize(
    "content",
    [
        {"format": FORMAT, "version": VERSION},
        {"format": FORMAT, "version": VERSION, "files": ["config.json"]},
        {"format": FORMAT, "version": VERSION, "files": {"config.json": 7}},
        {"format": FORMAT, "version": VERSION, "files": {"config.json": {}}},
        {"format": FORMAT, "version": VERSION, "files": {"../secret": {"bytes": 6, "sha256": ""}}},
        {"format": FORMAT, "version": VERSION, "files": {"..": {"bytes": 6, "sha256": ""}}},
    ],
)
def test_an_invalid_manifest_raises_model_error(model_folder: Path, content: dict[str, Any]) -> None:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    (model_folder / "manifest.json").write_text(json.dumps({**content, "sha256": digest}))
    expect_error(model_folder)


def test_an_unpaired_surrogate_in_the_manifest_raises_model_error(model_folder: Path) -> None:
    (model_folder / "manifest.json").write_text('{"format": "\\ud800"}')
    expect_error(model_folder, "manifest.json")


def expect_error(folder: Path, name: str = "") -> str:
    """Loads the folder and returns the one-line error, which names the file."""
    with pytest.raises(ModelError) as caught:
        load(folder, "cpu") if name == "generation.json" else load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    assert name in message
    return message


def rewrite_manifest(folder: Path) -> None:
    """Writes a new manifest for the current files."""
    (folder / "manifest.json").unlink()
    write_manifest(folder, FORMAT, VERSION)


def rewrite_weights(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    weights = load_file(folder / "weights.safetensors")
    save_file(change(weights), folder / "weights.safetensors")
    rewrite_manifest(folder)


def test_a_save_killed_between_its_two_renames_is_recovered(model_folder: Path) -> None:
    model_folder.rename(model_folder.with_name(f".old-{model_folder.name}"))
    load_model(model_folder)
    assert [path.name for path in model_folder.parent.iterdir() if path.name.endswith(model_folder.name)] == [
        model_folder.name
    ]


def test_loading_does_not_change_the_random_state(model_folder: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_model(model_folder)
    assert torch.equal(torch.rand(3), expected)


LONG_VALUES: dict[str, Any] = {"text": "x" * 100_000, "number": 10**4000, "list": ["x"] * 9_000, "null": None}


def write_with_manifest(folder: Path, name: str, content: object) -> None:
    """Writes a file and a manifest that contains it."""
    (folder / name).write_text(json.dumps(content), "utf-8")
    (folder / "manifest.json").unlink()
    write_manifest(folder, FORMAT, VERSION)


@pytest.mark.parametrize("value", LONG_VALUES)
@pytest.mark.parametrize("name", ["config.json", "generation.json", "source.tokenizer.json", "about.json"])
def test_long_values_give_short_messages(model_folder: Path, name: str, value: str) -> None:
    path = model_folder / name
    before = json.loads(path.read_text("utf-8")) if path.is_file() else {"task": "translation"}
    messages = []
    for key in (*before, "k" * 50_000):
        write_with_manifest(model_folder, name, {**before, key: LONG_VALUES[value]})
        try:
            load(model_folder, "cpu")
        except ModelError as error:
            messages.append(str(error))
    assert messages
    assert all(name in each and "\n" not in each and len(each) < 400 + len(str(path)) for each in messages)


@pytest.mark.parametrize(
    ("setting", "value", "bound"),
    [
        ("max_length_extra", 140_000, "20000"),
        ("min_length_extra", 140_000, "20000"),
        ("max_length_factor", 14_000.0, "100"),
        ("mbr_candidates", 100_000, "1000"),
        ("max_source", 10**9, "1000000"),
        ("batch_tokens", 10**12, "10000000"),
        ("top_k", 10**30, "10000000"),
        ("no_repeat_ngram_size", 10**30, "10000000"),
        ("seed", 10**30, "9223372036854775807"),
        ("beam_groups", 10**9, "1000"),
        ("patience", 1e300, "10000"),
        ("source_prefix", ["a"] * 101, "100"),
    ],
)
def test_a_stored_setting_out_of_bounds_is_rejected(
    model_folder: Path, setting: str, value: object, bound: str
) -> None:
    write_with_manifest(model_folder, "generation.json", {setting: value})
    with pytest.raises(ModelError, match=rf"generation\.json: {setting} must .*{bound}"):
        load(model_folder, "cpu")


@pytest.mark.parametrize("name", ["generation.json", "target.tokenizer.json", "weights.safetensors"])
def test_a_file_not_in_the_manifest_is_rejected(model_folder: Path, name: str) -> None:
    content = (model_folder / name).read_bytes()
    (model_folder / name).unlink()
    (model_folder / "manifest.json").unlink()
    write_manifest(model_folder, FORMAT, VERSION)
    (model_folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(fragment("file_not_in_manifest", path=name))):
        load_model(model_folder)
