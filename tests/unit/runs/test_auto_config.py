"""Settings chosen from the data: valid values, a reason for each, and no override of given settings."""

import importlib.util
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny import Command, settings, write_pairs

from attendo.runs.auto_config import DataStats, apply_choices, are_settings_open, choose_settings, measure_pairs
from attendo.runs.config import RunConfig

SIZES = (1_000, 30_000, 160_000, 5_000_000)  # pairs, from a phrase book to a public corpus
FILES = {"data": {"source": "a.en", "target": "a.de"}}
CHOSEN = {
    *("preset", "tokenizer.size", "tokenizer.joint", "tokenizer.dropout", "model.tie", "model.dropout"),
    *("train.batch_tokens", "train.steps", "train.warmup", "train.validate_every", "train.save_every"),
    *("train.best", "train.metrics", "train.schedule", "train.patience"),
}


def make_stats(pairs: int, overlap: float = 1.0) -> DataStats:
    """Statistics for this number of pairs with 15 target tokens each."""
    return DataStats(pairs, 15 * pairs, overlap)


def choose(pairs: int, overlap: float = 1.0, **given: Any) -> dict[str, Any]:
    return {choice.name: choice.value for choice in choose_settings({**FILES, **given}, make_stats(pairs, overlap))}


def values_by_size(name: str) -> list[Any]:
    return [choose(pairs)[name] for pairs in SIZES]


@pytest.mark.parametrize("pairs", [0, 1, 2, 40, *SIZES, 10**9])
@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_every_corpus_size_gives_a_valid_run(pairs: int, overlap: float) -> None:
    choices = choose_settings(FILES, make_stats(pairs, overlap))
    assert {choice.name for choice in choices} == CHOSEN
    assert all(choice.reason for choice in choices)
    config = RunConfig(**apply_choices(FILES, choices))
    assert config.preset in ("tiny", "small", "base")
    assert 300 <= config.train.steps <= 200_000
    assert config.train.warmup < config.train.steps
    assert config.train.validate_every == config.train.save_every <= config.train.steps


@pytest.mark.parametrize("name", ["tokenizer.size", "train.batch_tokens"])
def test_more_text_gives_larger_values(name: str) -> None:
    values = values_by_size(name)
    assert values == sorted(values)
    assert values[0] < values[-1]


@pytest.mark.parametrize("name", ["model.dropout", "tokenizer.dropout"])
def test_more_text_gives_less_dropout(name: str) -> None:
    values = values_by_size(name)
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_network_size_grows_with_the_text() -> None:
    assert values_by_size("preset") == ["tiny", "small", "small", "base"]


def test_more_text_gives_more_training_tokens() -> None:
    read = [each["train.steps"] * each["train.batch_tokens"] for _, each in choices_by_size()]
    assert read == sorted(read)
    assert read[0] < read[-1]


def test_a_small_corpus_gets_more_epochs() -> None:
    epochs = [each["train.steps"] * each["train.batch_tokens"] / (15 * pairs) for pairs, each in choices_by_size()]
    assert epochs == sorted(epochs, reverse=True)
    assert 95 < epochs[0] < 105, "the limit is 100 epochs"
    assert 3 <= epochs[-1] < 8


def choices_by_size() -> list[tuple[int, dict[str, Any]]]:
    return [(pairs, choose(pairs)) for pairs in SIZES]


def test_chosen_numbers_are_round() -> None:
    for _, each in choices_by_size():
        for name in ("train.steps", "train.warmup", "train.validate_every"):
            assert len(str(each[name]).rstrip("0")) <= 2, name
        assert each["train.batch_tokens"].bit_count() == 1


def test_overlapping_alphabets_share_one_vocabulary() -> None:
    alike, unlike = choose(30_000, 0.95), choose(30_000, 0.1)
    assert (alike["tokenizer.joint"], alike["model.tie"]) == (True, "all")
    assert (unlike["tokenizer.joint"], unlike["model.tie"]) == (False, "output")


@pytest.mark.parametrize("pairs", SIZES)
@pytest.mark.parametrize("name", sorted(CHOSEN))
def test_given_settings_are_never_changed(name: str, pairs: int) -> None:
    given: dict[str, Any] = {
        "preset": "base",
        "tokenizer.size": 123,
        "tokenizer.joint": False,
        "tokenizer.dropout": 0.05,
        "model.tie": "none",
        "model.dropout": 0.25,
        "train.batch_tokens": 777,
        "train.steps": 12_345,
        "train.warmup": 0,
        "train.validate_every": 7,
        "train.save_every": 9,
        "train.best": "loss",
        "train.schedule": "constant",
        "train.metrics": (),
        "train.patience": 0,
    }
    section, _, short = name.rpartition(".")
    values = {**FILES, **({section: {short: given[name]}} if section else {name: given[name]})}
    choices = choose_settings(values, make_stats(pairs))
    assert {choice.name for choice in choices} == CHOSEN - {name}
    config = RunConfig(**apply_choices(values, choices)).model_dump()
    assert (config[section][short] if section else config[name]) == given[name]


def test_the_given_dictionary_is_not_modified() -> None:
    values = {**FILES, "train": {"steps": 50}}
    apply_choices(values, choose_settings(values, make_stats(1000)))
    assert values == {**FILES, "train": {"steps": 50}}


def test_preset_auto_is_chosen() -> None:
    assert choose(5_000_000, preset="auto")["preset"] == "base"


def test_settings_of_a_preset_count_as_given() -> None:
    assert "model.dropout" not in choose(8_000, preset="big")
    paper = choose(8_000, 0.1, preset="paper")
    assert (paper["tokenizer.joint"], "model.tie" in paper) == (True, False)


def test_choices_depend_on_given_settings() -> None:
    few = choose(30_000, train={"steps": 600})
    assert (few["train.warmup"], few["train.validate_every"]) == (60, 25)
    halved = choose(30_000, train={"batch_tokens": 4096, "accumulate": 2})
    full_batch = choose(30_000, train={"batch_tokens": 8192})
    assert halved["train.steps"] == full_batch["train.steps"]


@pytest.mark.parametrize("steps", [1, 3, 40, 100, 800, 10**6])
def test_warm_up_is_at_most_40_percent_of_the_steps(steps: int) -> None:
    for given, window in ((FILES, None), (RUNNING, 256)):
        choices = choose_settings({**given, "train": {"steps": steps}}, DataStats(8_000, 10**5, 1.0, window=window))
        (warmup,) = (choice.value for choice in choices if choice.name == "train.warmup")
        assert 1 <= warmup <= max(1, 0.4 * steps)


@pytest.mark.parametrize(("given", "validations"), [({}, 10), ({"validate_every": 10}, 134), ({"steps": 50}, 5)])
def test_patience_is_a_third_of_the_run(given: dict[str, int], validations: int) -> None:
    choices = choose(8_000, train={"steps": 4_000, "validate_every": 135, **given})
    assert choices["train.patience"] == validations


def test_8000_pairs_get_at_most_100_epochs() -> None:
    found = choose(8_000)
    assert found["train.steps"] * found["train.batch_tokens"] <= 105 * 15 * 8_000


def test_summarization_uses_rouge() -> None:
    found = choose(8_000, about={"task": "summarization"})
    assert (found["train.best"], found["train.metrics"]) == ("rougeL", ("rouge1", "rouge2", "rougeL"))


def test_the_first_given_metric_selects_the_best_model() -> None:
    assert choose(8_000, train={"metrics": ("exact_match", "bleu")})["train.best"] == "exact_match"


def test_only_a_preset_in_the_run_file_fixes_all_settings() -> None:
    assert are_settings_open({}, {})
    assert are_settings_open({}, {"preset": "tiny"}), "--set preset=tiny"
    assert are_settings_open({"preset": "auto"}, {"preset": "tiny"})
    assert are_settings_open({"preset": "tiny"}, {"preset": "auto"})
    assert not are_settings_open({"preset": "tiny"}, {"preset": "small"})


def test_embeddings_are_tied_only_with_a_joint_vocabulary() -> None:
    assert choose(30_000, 1.0, tokenizer={"joint": False})["model.tie"] == "output"
    assert choose(30_000, 0.0, tokenizer={"joint": True})["model.tie"] == "all"
    assert choose(30_000, 0.0, model={"tie": "all"})["tokenizer.joint"] is True


@pytest.mark.parametrize("kind", ["unigram", "words", "characters", "bytes"])
def test_dropout_needs_bpe_and_size_needs_subwords(kind: str) -> None:
    values = {**FILES, "tokenizer": {"kind": kind}}
    choices = choose_settings(values, make_stats(1000))
    names = {choice.name for choice in choices}
    assert "tokenizer.dropout" not in names
    assert ("tokenizer.size" in names) == (kind == "unigram")
    assert RunConfig(**apply_choices(values, choices)).tokenizer.kind == kind


@pytest.mark.parametrize(("kind", "dropout"), [("bpe", True), ("words", False), (None, False)])
def test_prepared_data_fixes_the_vocabulary(kind: str | None, dropout: bool) -> None:
    values = {"data": {"prepared": "data"}}
    choices = choose_settings(values, DataStats(1000, 15_000, 1.0, kind))
    names = {choice.name for choice in choices}
    assert not names & {"tokenizer.size", "tokenizer.joint"}
    assert ("tokenizer.dropout" in names) == dropout
    assert RunConfig(**apply_choices(values, choices)).model["tie"] == "all"


@pytest.mark.parametrize("pairs", SIZES)
def test_fine_tuning_keeps_the_network_and_needs_fewer_epochs(pairs: int) -> None:
    values = {**FILES, "start_from": "old"}
    choices = choose_settings(values, make_stats(pairs))
    names = {choice.name for choice in choices}
    assert names == {name for name in CHOSEN if name.startswith("train.")}
    config = RunConfig(**apply_choices(values, choices))
    assert config.model == {}
    epochs = config.train.steps * config.train.batch_tokens / (15 * pairs)
    assert 2.5 < epochs < 11


def test_without_sacrebleu_the_loss_selects_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    choices = {choice.name: choice for choice in choose_settings(FILES, make_stats(1000))}
    assert choices["train.best"].value == "loss"
    assert "attendo[eval]" in choices["train.best"].reason
    assert "train.metrics" not in choices


ENGLISH = ("The white Horse stands quietly in deep Snow", "For years nobody went so far over the old Bridge")
GERMAN = ("Das weiße Pferd steht ruhig im tiefen Schnee", "So weit ging seit Jahren niemand über die alte Brücke vor")
CHINESE = ("白马静静地站在深雪里", "多年来没有人走过那座老桥这么远")


@pytest.mark.parametrize(
    ("targets", "joint"), [(GERMAN, True), (CHINESE, False), ([text.upper() for text in ENGLISH], False)]
)
def test_alphabets_are_compared_by_shared_text(targets: Sequence[str], joint: bool) -> None:
    pairs = list(zip(ENGLISH, targets, strict=True)) * 50
    for both in (pairs, [(target, source) for source, target in pairs]):
        found = measure_pairs(both)
        assert found.pairs == 100
        assert {choice.name: choice.value for choice in choose_settings(FILES, found)}["tokenizer.joint"] is joint


def test_a_subset_alphabet_does_not_overlap_fully() -> None:
    few, many = "abc abc", "abc defghijklmnop"
    assert (
        measure_pairs([(few, many)]).alphabets_overlap
        == measure_pairs([(many, few)]).alphabets_overlap
        == pytest.approx(3 / 16)
    )


def test_digits_and_punctuation_are_not_letters() -> None:
    assert measure_pairs([("1, 2! 3?", "1, 2! 3?")]).alphabets_overlap == 0.0
    assert measure_pairs([("abc 123", "123 猫")]).alphabets_overlap == 0.0


def test_target_tokens_are_estimated_from_letters_and_ideographs() -> None:
    (letters,), (ideographs,) = ([measure_pairs([("a", text)] * 100).tokens] for text in ("abcd" * 10, "猫" * 15))
    assert letters == ideographs == 1100  # 10 tokens and EOS


def test_all_pairs_are_counted_beyond_the_alphabet_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.runs.auto_config._ALPHABET_LINES", 3)
    found = measure_pairs(iter([("a", "aaaa")] * 7))
    assert (found.pairs, found.tokens, found.alphabets_overlap) == (7, 14, 1.0)


def test_show_prints_chosen_values_and_reasons(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=300)
    shown = attendo("train", "--source", source, "--target", target, "--show", *settings("train.steps=900"))
    assert shown.code == 0
    config = RunConfig(**tomllib.loads(shown.output))
    assert (config.preset, config.tokenizer.size, config.tokenizer.joint) == ("tiny", 1000, False)
    assert (config.train.steps, config.train.warmup, config.train.validate_every) == (900, 90, 30)
    assert 'preset = "tiny"  # 1,200 pairs\n' in shown.errors
    assert "train.steps" not in shown.errors
    choices = tomllib.loads(shown.errors)  # each choice is valid TOML for a run file
    assert choices["train"]["warmup"] == 90
    assert choices["tokenizer"]["joint"] is False


def test_set_preset_fixes_only_the_preset(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=300)
    start = ["train", "--source", source, "--target", target, "--show"]
    shown = attendo(*start, *settings("preset=small", "train.steps=800", "model.tie=all"))
    config = RunConfig(**tomllib.loads(shown.output))
    assert (config.preset, config.train.steps, config.train.warmup) == ("small", 800, 80)
    assert (config.tokenizer.size, config.tokenizer.joint) == (1000, True)
    assert config.train.patience > 0
    assert config.train.best != "loss"
    failed = attendo(*start, *settings("preset=smal"))
    assert (failed.code, "did you mean small?" in failed.error) == (2, True)


def test_a_run_file_with_a_preset_uses_the_defaults(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    run_file = tmp_path / "run.toml"
    run_file.write_text('preset = "tiny"\n[train]\nsteps = 800\n')
    shown = attendo("train", run_file, "--source", source, "--target", target, "--show")
    config = RunConfig(**tomllib.loads(shown.output))
    assert (config.train.warmup, config.tokenizer.size, config.train.patience) == (1000, 8000, 0)
    assert "warmup" not in shown.errors


def test_running_text_uses_a_given_preset(attendo: Command, tmp_path: Path) -> None:
    source, _ = write_pairs(tmp_path, times=300)
    shown = attendo("train", "--text", source, "--show", *settings("preset=base"))
    config = RunConfig(**tomllib.loads(shown.output))
    assert (config.preset, config.model["num_encoder_layers"]) == ("base", 0)


def test_numbers_written_as_text_are_parsed(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    run_file = tmp_path / "run.toml"
    run_file.write_text('[train]\nsteps = "900"\naccumulate = "2"\n[tokenizer]\njoint = "false"\n')
    shown = attendo("train", run_file, "--source", source, "--target", target, "--show")
    assert shown.code == 0
    read = tomllib.loads(shown.output)
    assert (read["train"]["warmup"], read["model"]["tie"]) == (90, "output")


def test_only_the_main_process_prints_choices(
    attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = write_pairs(tmp_path)
    options = ["train", "--source", source, "--target", target, "--show"]
    first = attendo(*options)
    monkeypatch.setenv("RANK", "1")
    second = attendo(*options)
    assert first.output == second.output != ""
    assert first.errors != second.errors == ""


RUNNING = {"data": {"text": "a.txt"}}


@pytest.mark.parametrize("characters", [0, 100, 60_000, 1_000_000, 10_000_000, 10**9])
def test_every_amount_of_running_text_gives_a_valid_run(characters: int) -> None:
    choices = choose_settings(RUNNING, DataStats(characters // 64, characters, 1.0, window=256))
    config = RunConfig(**apply_choices(RUNNING, choices))
    assert all(choice.reason for choice in choices)
    assert config.make_model_config(8, 8).decoder_only
    assert config.train.label_smoothing == 0.0
    assert config.train.best == "loss"
    assert config.train.batch_tokens >= config.data.window
    assert config.train.warmup < config.train.steps
    assert characters * config.data.valid_share < 3_000_000
    assert config.tokenizer.kind == ("characters" if characters < 5_000_000 else "bpe")
    assert config.tokenizer.dropout == 0.0


def test_given_running_text_settings_are_kept() -> None:
    given = {"data": {"text": "a.txt", "window": 100}, "tokenizer": {"kind": "bpe"}, "train": {"steps": 7}}
    values = {choice.name: choice.value for choice in choose_settings(given, DataStats(10, 1000, 1.0, window=100))}
    assert not {"data.window", "tokenizer.kind", "train.steps"} & values.keys()
    assert values["tokenizer.size"] == 1000
    fine_tuning = choose_settings({**RUNNING, "start_from": "model"}, DataStats(10, 1000, 1.0, window=256))
    assert {choice.name.split(".")[0] for choice in fine_tuning} <= {"train", "data"}


def test_fine_tuning_on_running_text_needs_fewer_epochs() -> None:
    for characters in (20_000, 1_000_000, 50_000_000):
        base = {**RUNNING, "train": {"batch_tokens": 1024}}
        new, more = (
            {
                choice.name: choice
                for choice in choose_settings(given, DataStats(characters // 64, characters, 1.0, window=256))
            }
            for given in (base, {**base, "start_from": "model"})
        )
        assert more["train.steps"].value < new["train.steps"].value or more["train.steps"].reason.startswith("3 epochs")
        assert int(more["train.steps"].reason.split()[0]) <= 10
