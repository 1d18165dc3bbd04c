"""Recipes: lookup, planned runs and required files."""

import gzip
import hashlib
from pathlib import Path

import pytest
import torch
from error_codes import ErrorCheck, fragment, has_code

from attendo.data.config import CorpusConfig, DataConfig
from attendo.errors import DataError, UsageError
from attendo.model.factory import make_network
from attendo.recipes.files import compute_checksums, list_test_files, list_training_files
from attendo.recipes.recipe import find_recipe, list_recipes, read_recipe
from attendo.runs.config import RunConfig
from attendo.runs.recipe_config import Expectation, make_test_corpus

PLAIN = """
[data]
source = "train.en"
target = "train.de"
tag = "<2de>"
[reproduce]
about = "pairs"
dataset = "pairs"
seeds = [1, 2]
[[reproduce.test]]
name = "test"
source = "test.en"
target = "test.de"
metric = "bleu"
"""

VARIED = """
[data]
file = "{variant}.train.tsv"
source_field = "2"
target_field = "1"
[reproduce]
about = "words"
seeds = [1, 2]
variants = ["bul", "dut"]
[[reproduce.test]]
name = "test"
file = "{variant}.test.tsv"
metric = "error_rate"
"""


def write_recipe(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, "utf-8")
    return path


def test_every_built_in_recipe_is_valid() -> None:
    """It has a valid run config, known metrics and a description."""
    names = list(list_recipes())
    assert len(names) >= 20
    assert "multi30k_en_de" in names
    for name in names:
        recipe = find_recipe(name)
        assert recipe.criteria.about, name
        assert [recipe.config(variant) for variant in recipe.variants or (None,)], name


@pytest.mark.parametrize(("base", "vocab_size"), [("multi30k_en_de", 8000), ("tatoeba_en_de", 16_000)])
def test_the_kinds_of_generation_are_compared_on_equal_terms(base: str, vocab_size: int) -> None:
    """The rivals see the same target tokens and have as many parameters. Those that start from the base see no more.

    All are scored on the same tests.
    """
    first = find_recipe(base)
    expected = _count_parameters(first.config(None), vocab_size)
    for suffix in ("masked", "ctc", "graph", "decoder_only", "deep_encoder"):
        recipe = find_recipe(f"{base}_{suffix}")
        assert recipe.seeds == first.seeds, recipe.name
        texts = {(test.name, test.source, test.target) for test in recipe.criteria.test}
        assert texts == {(test.name, test.source, test.target) for test in first.criteria.test}, recipe.name
        if (start := recipe.find_start()) is not None:
            assert start.name == base
            assert _update_budget(recipe.config(None)) <= _update_budget(first.config(None)), recipe.name
            assert recipe.config(None).train.patience == 0, "without a preset it would be chosen from the data"
        else:
            assert _update_budget(recipe.config(None)) == _update_budget(first.config(None)), recipe.name
            found = _count_parameters(recipe.config(None), vocab_size)
            assert found == pytest.approx(expected, rel=0.02), recipe.name


def _update_budget(config: RunConfig) -> int:
    return config.train.steps * config.train.batch_tokens * config.train.accumulate


def _count_parameters(config: RunConfig, vocab_size: int) -> int:
    network = make_network(config.make_model_config(vocab_size, vocab_size), torch.Generator().manual_seed(1))
    return sum(weight.numel() for weight in network.parameters())


def test_a_recipe_is_found_by_path_or_name(tmp_path: Path) -> None:
    assert find_recipe(str(write_recipe(tmp_path, PLAIN))).name == "mine"
    assert find_recipe("scan_simple").path.name == "scan_simple.toml"
    with pytest.raises(
        UsageError, check=has_code("unknown_recipe", name="scan_simpel", suggestion=" (did you mean scan_simple?)")
    ):
        find_recipe("scan_simpel")
    with pytest.raises(UsageError, check=has_code("run_file_not_readable")):
        find_recipe(str(tmp_path / "missing.toml"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[data]\nsource = 'a'\ntarget = 'b'\n", has_code("reproduce_table_missing")),
        (VARIED.replace("{variant}.train", "train"), has_code("run_file_invalid")),
        (PLAIN.replace("bleu", "blue"), has_code("run_file_invalid")),
        (PLAIN.replace("seeds", "sedes"), has_code("run_file_invalid")),
        (
            PLAIN.replace('source = "test.en"\ntarget = "test.de"', 'file = "test.txt"'),
            has_code("run_file_invalid"),
        ),
        (VARIED.replace('["bul", "dut"]', "3"), has_code("run_file_invalid")),
        (
            PLAIN.replace("[[reproduce.test]]", "[reproduce.test]"),
            has_code("run_file_invalid"),
        ),
        (PLAIN.replace("[1, 2]", "1"), has_code("run_file_invalid")),
        (PLAIN.replace("seeds", "ensemble = true\nseeds"), has_code("run_file_invalid")),
        (
            PLAIN.replace('source = "test.en"\ntarget = "test.de"\nmetric = "bleu"', 'metric = "loss"')
            + "[train]\nfinal = 'average'\n",
            has_code("run_file_invalid"),
        ),
        (
            VARIED[: VARIED.index("[[")] + "[[reproduce.test]]\nname = 'test'\nmetric = 'loss'\n"
            "[variants.dut.train]\nfinal = 'average'\n",
            has_code("run_file_invalid"),
        ),
    ],
)
def test_an_invalid_recipe_is_a_usage_error(tmp_path: Path, text: str, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        read_recipe(write_recipe(tmp_path, text))


def test_there_is_a_run_for_each_variant_and_seed(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, VARIED))
    runs = recipe.plan(Path("out"))
    assert [(run.variant, run.seed) for run in runs] == [("bul", 1), ("bul", 2), ("dut", 1), ("dut", 2)]
    assert (runs[1].folder, runs[1].name) == (Path("out/bul/seed-2"), "bul, seed 2")
    assert runs[1].changes == ["seed=2", 'variant="bul"']
    (alone,) = read_recipe(write_recipe(tmp_path, PLAIN)).select(seeds=[7]).plan(Path("out"))
    assert (alone.folder, alone.name, alone.changes) == (Path("out/seed-7"), "seed 7", ["seed=7"])


def test_seeds_and_variants_can_be_selected(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, VARIED))
    some = recipe.select(seeds=[2], variants=["dut"])
    assert [(run.variant, run.seed) for run in some.plan(Path("out"))] == [("dut", 2)]
    assert (recipe.full_scope, some.full_scope) == (None, "the mean of 2 variants")
    assert recipe.select(variants=["dut", "bul"]).full_scope is None
    with pytest.raises(UsageError, check=has_code("unknown_variant", name="fre", known="bul, dut")):
        recipe.select(variants=["fre"])
    with pytest.raises(UsageError, check=has_code("no_variants", name="fre", owner="mine")):
        read_recipe(write_recipe(tmp_path, PLAIN)).select(variants=["fre"])


def test_test_files_use_the_data_settings(tmp_path: Path) -> None:
    config = read_recipe(write_recipe(tmp_path, VARIED)).config("dut", Path("texts"))
    assert config.reproduce is not None
    corpus = make_test_corpus(config.reproduce.test[0], config.data)
    assert corpus is not None
    assert (corpus.file, corpus.source_field, corpus.target_field) == (Path("texts/dut.test.tsv"), "2", "1")
    plain = read_recipe(write_recipe(tmp_path, PLAIN)).config(None)
    assert plain.reproduce is not None
    test = plain.reproduce.test[0]
    for tag, expected in ((None, "<2de>"), ("<2fr>", "<2fr>")):
        found = make_test_corpus(test.replace(tag=tag), plain.data)
        assert found is not None
        assert found.tag == expected


def test_missing_files_are_named(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, VARIED))
    (tmp_path / "bul.train.tsv").touch()
    with pytest.raises(DataError) as failed:
        recipe.check_files(tmp_path)
    missing = [str(tmp_path / name) for name in ("bul.test.tsv", "dut.train.tsv", "dut.test.tsv")]
    assert fragment("recipe_files_missing", recipe="mine", files=", ".join(missing), more="") in str(failed.value)
    for name in missing:
        Path(name).write_text("a\tb\n", "utf-8")
    recipe.check_files(tmp_path)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", has_code("file_is_empty")),
        (b"a\tb\n\n", has_code("test_row_invalid", row=2, fault="empty")),
        (b"a\tb\n\tb\n", has_code("test_row_invalid", row=2, fault="empty")),
        (b"a\n", has_code("test_row_invalid", row=1, fault="no such column")),
    ],
)
def test_test_files_are_checked_before_training(tmp_path: Path, content: bytes, error: ErrorCheck) -> None:
    recipe = read_recipe(write_recipe(tmp_path, VARIED))
    for name in ("bul.train", "bul.test", "dut.train", "dut.test"):
        (tmp_path / f"{name}.tsv").write_bytes(content if name == "dut.test" else b"a\tb\n")
    with pytest.raises(DataError, check=error):
        recipe.check_files(tmp_path)
    recipe.select(variants=["bul"]).check_files(tmp_path)


def test_test_files_need_equal_line_counts_and_valid_gzip(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, PLAIN))
    for name in ("train.en", "train.de", "test.en", "test.de"):
        (tmp_path / name).write_text("one\ntwo\n" if name == "test.en" else "one\n", "utf-8")
    with pytest.raises(DataError, check=has_code("file_line_counts_differ", short_lines=1, long_lines=2)):
        recipe.check_files(tmp_path)
    recipe = read_recipe(write_recipe(tmp_path, PLAIN.replace("test.en", "test.en.gz")))
    (tmp_path / "test.en.gz").write_bytes(gzip.compress(b"one\n")[:-4])
    with pytest.raises(DataError, check=has_code("file_read_failed")):
        recipe.check_files(tmp_path)


def test_checksums_do_not_depend_on_the_data_folder(tmp_path: Path) -> None:
    (one := tmp_path / "one").mkdir()
    for name in ("train.en", "train.de", "test.en", "test.de"):
        (one / name).write_text(name, "utf-8")
    recipe = read_recipe(write_recipe(tmp_path, PLAIN))
    config = recipe.config(None, one)
    assert list_training_files(config.data) == {"train.en": one / "train.en", "train.de": one / "train.de"}
    assert list_test_files(config) == {"test.en": one / "test.en", "test.de": one / "test.de"}
    sums = compute_checksums(list_test_files(config))
    assert sums["test.en"] == hashlib.sha256(b"test.en").hexdigest()
    two = one.rename(tmp_path / "two")
    assert compute_checksums(list_test_files(recipe.config(None, two))) == sums
    assert list_training_files(DataConfig(prepared="ids")) == {"ids/index.json": Path("ids/index.json")}, (
        "the index identifies all files"
    )


def test_a_smaller_ensemble_is_not_judged(tmp_path: Path) -> None:
    valid = VARIED.replace("source_field", 'valid_file = "{variant}.dev.tsv"\nsource_field')
    recipe = read_recipe(write_recipe(tmp_path, valid.replace("seeds", "ensemble = true\nseeds")))
    assert recipe.full_scope is None
    assert recipe.select(seeds=[2]).full_scope == "an ensemble of 2 networks"
    assert recipe.select(seeds=[3, 4]).full_scope is None
    assert read_recipe(write_recipe(tmp_path, VARIED)).select(seeds=[2]).full_scope is None, (
        "a mean can be of any seeds"
    )


def test_a_subset_of_seeds_or_variants_is_partial(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, VARIED))
    assert not recipe.is_partial
    assert [recipe.select(seeds=seeds).is_partial for seeds in ([1], [2, 3], [2, 1], [1, 2, 3])] == [
        True,
        True,
        False,
        False,
    ]
    assert recipe.select(variants=["dut"]).is_partial


def test_only_some_of_many_missing_files_are_named(tmp_path: Path) -> None:
    names = ", ".join(f'"v{number}"' for number in range(6))
    recipe = read_recipe(write_recipe(tmp_path, VARIED.replace('"bul", "dut"', names)))
    with pytest.raises(DataError, check=has_code("recipe_files_missing", more=" and 4 more")):
        recipe.check_files(tmp_path)
    recipe.select(variants=["v1"])
    with pytest.raises(DataError, check=has_code("recipe_files_missing")):
        recipe.select(variants=["v1"]).check_files(tmp_path)


def test_running_text_is_a_required_file(tmp_path: Path) -> None:
    text = """
    model.num_encoder_layers = 0
    data.text = "all.txt"
    reproduce.about = "text"
    reproduce.test = [{name = "valid", metric = "loss"}]
    """
    recipe = read_recipe(write_recipe(tmp_path, text))
    with pytest.raises(DataError, check=has_code("recipe_files_missing")):
        recipe.check_files(tmp_path)


def test_the_data_folder_may_contain_the_dataset_folder(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, PLAIN))
    assert recipe.data_folder(tmp_path) == tmp_path
    (tmp_path / "pairs").mkdir()
    assert recipe.data_folder(tmp_path) == tmp_path / "pairs"
    assert recipe.data_folder(tmp_path / "pairs") == tmp_path / "pairs"
    assert recipe.data_folder(None) == Path("data")
    own = read_recipe(write_recipe(tmp_path, PLAIN.replace("[data]", "[data]\nfolder = 'mine'")))
    assert own.data_folder(None) is None
    assert own.data_folder(tmp_path) == tmp_path / "pairs"


def test_a_test_uses_the_validation_corpus_settings() -> None:
    corpora = [{"file": "de.tsv", "features_field": 3, "tag": "<de>"}, {"file": "ru.tsv", "features_field": 3}]
    data = DataConfig(corpora=corpora, valid_corpora=corpora[:1], folder="here")
    test = Expectation(name="test", file="{part}.tsv", tag="<{part}>", parts=["de", "ru"], metric="exact_match")
    read = make_test_corpus(test.for_part("ru"), data)
    assert read == CorpusConfig(file="here/ru.tsv", features_field="3", tag="<ru>")
