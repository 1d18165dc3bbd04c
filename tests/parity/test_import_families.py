"""BART's relatives: the same logits, ids and answers as transformers, and the languages where each family has them."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code, message
from export_models import random_sentences
from foreign_families import FOLDERS, POSITIONS, make_folder
from foreign_models import assert_passed, certificate, random_model, written
from foreign_t5 import T5_FOLDERS, make_t5_folder
from foreign_tokenizers import (
    some_lines,
    strange_texts,
    write_bart,
    write_blenderbot,
    write_mbart25,
    write_pegasus,
    write_plbart,
)

from attendo.errors import ModelError, UsageError
from attendo.interop import import_model as importing
from attendo.interop.certify import model_symbols
from attendo.interop.compared_systems import TorchSystem, TransformersSystem
from attendo.interop.export import export
from attendo.interop.families import FAMILIES, FAMILY_BY_TYPE, REFUSED
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.huggingface.read_tokenizers import TokenizationComparison, compare_tokenizations
from attendo.interop.import_model import from_folder, import_model
from attendo.text import EOS

transformers = pytest.importorskip("transformers")

NEW = ("pegasus", "mbart25", "nllb-legacy", "small100", "plbart", "mvp", "blenderbot")
SYMBOLS = {
    "pegasus": {},
    "mvp": {"source_prefix": ["<<s>>"]},
    "blenderbot": {},
    "nllb-legacy": {"source_suffix": ["eng_Latn"], "target_prefix": ["fra_Latn"]},
    "small100": {"source_prefix": ["__fr__"]},
    "mbart25": {"source_suffix": ["en_XX"]},
    "plbart": {"source_suffix": ["__python__"]},
}
Folders = Callable[[str], Path]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Folders by name, each made once. Tests that change one copy it."""
    root = tmp_path_factory.mktemp("families")
    return lambda name: root / name if (root / name).exists() else make_folder(name, root / name)


def compare_texts(found: ImportedModel, texts: Sequence[str]) -> TokenizationComparison:
    model = found.build_text_model()
    added = None if "source" in found.missing_languages else model_symbols(model)
    folder = found.folder.path, found.folder.model_type
    return compare_tokenizations(folder, found.source, model.source_tokenizer, added, texts)


def assert_same_ids(found: ImportedModel, only_spaces: bool = False) -> None:
    texts = [*strange_texts(), *some_lines(3, 40)]
    if only_spaces:
        texts = [text for text in texts if not any(each.isspace() and each != " " for each in text)]
    comparison = compare_texts(found, texts)
    assert comparison.summary.code == "texts_have_same_ids", str(comparison.summary)
    assert comparison.summary.values["count"] > 50


@pytest.mark.parametrize("name", NEW)
def test_logits_answers_and_ids_are_the_same(folders: Folders, name: str) -> None:
    found = from_folder(folders(name))
    assert {key: value for key, value in found.generation.items() if "fix" in key} == SYMBOLS[name]
    assert not found.missing_languages
    assert_same_ids(found)
    begin = model_symbols(found.build_text_model()).begin
    assert_passed(certificate(found, 6, begin))


@pytest.mark.parametrize("name", NEW)
def test_long_sources_and_targets_have_the_same_logits(folders: Folders, name: str) -> None:
    found = from_folder(folders(name))
    symbols = model_symbols(found.build_text_model())
    dice = torch.Generator().manual_seed(1)
    source, target = torch.randint(4, found.source.size, (2, 150), generator=dice).tolist()
    ours, theirs = TorchSystem(found.network, "hf"), TransformersSystem.from_import(found)
    wrapped = symbols.wrap_source(source)
    difference = ours.logits(wrapped, target) - theirs.logits(wrapped, target)
    assert float(difference[:, 4:].abs().max()) < 1e-4
    without = ours.logits(source[:140], target) - theirs.logits(wrapped, target)
    assert float(without[:, 4:].abs().max()) > 1e-3  # the end of the source is read


@pytest.mark.parametrize("name", ["mbart25", "plbart"])
def test_outputs_start_from_the_target_language(folders: Folders, name: str) -> None:
    """transformers takes the start token from config.json or from the caller, attendo at the import."""
    found = from_folder(folders(name))
    language = {"mbart25": "ro_RO", "plbart": "__en_XX__"}[name]
    theirs = transformers.AutoTokenizer.from_pretrained(folders(name))
    assert found.target.rows[2] == theirs.convert_tokens_to_ids(language)
    other = from_folder(folders(name), target_language={"mbart25": "de_DE", "plbart": "java"}[name])
    start = other.target.rows[2]
    assert start == theirs.convert_tokens_to_ids({"mbart25": "de_DE", "plbart": "__java__"}[name])
    model, network = other.build_text_model(), _open_original(other)
    network.generation_config.forced_eos_token_id = None
    texts = some_lines(1, 3)
    batch = theirs(texts, return_tensors="pt", padding=True)
    rows = network.generate(**batch, decoder_start_token_id=start, max_new_tokens=9, num_beams=1, suppress_tokens=[1])
    results = model.generate(texts, preset="hf", max_length=9)
    for result, row in zip(results, rows.tolist(), strict=True):
        assert found.target.to_theirs(result.ids) == [each for each in row[1:] if each not in (1, 2)]


def test_small100_names_only_the_target_language(folders: Folders) -> None:
    found = from_folder(folders("small100"), target_language="de")
    assert found.generation["source_prefix"] == ["__de__"]
    assert "target_prefix" not in found.generation
    with pytest.raises(UsageError, check=has_code("source_language_unused")):
        from_folder(folders("small100"), source_language="en", target_language="de")


def _open_original(found: ImportedModel) -> Any:
    from attendo.interop.huggingface.load_pretrained import open_model

    return open_model(found.folder)


@pytest.mark.parametrize("name", NEW)
def test_defaults_of_the_original_give_the_same_answers(folders: Folders, tmp_path: Path, name: str) -> None:
    """generate() without options, from texts to texts, with a beam, a length penalty and limits of the original."""
    folder = tmp_path / "m"
    shutil.copytree(folders(name), folder)
    path = folder / "generation_config.json"
    theirs_forced = {"nllb-legacy": "fra_Latn"}.get(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder) if name not in ("small100", "mbart25") else None
    if name == "mbart25":
        tokenizer = transformers.MBartTokenizer.from_pretrained(folder, src_lang="en_XX")
    if name == "small100":
        tokenizer = transformers.M2M100Tokenizer.from_pretrained(folder, src_lang="fr")
    settings = {"num_beams": 3, "length_penalty": 0.7, "max_length": 12, "no_repeat_ngram_size": 3, "min_length": 2}
    original = {key: value for key, value in json.loads(path.read_text("utf-8")).items() if "forced_eos" not in key}
    if theirs_forced:
        settings["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(theirs_forced)
    original.pop("encoder_no_repeat_ngram_size", None)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.pop("encoder_no_repeat_ngram_size", None)
    path.write_text(json.dumps({**original, **settings}), "utf-8")
    found = from_folder(folder)
    texts = some_lines(2, 6)
    results = found.build_text_model().generate(texts)
    network = _open_original(found)
    network.generation_config = transformers.GenerationConfig(**{**original, **settings})
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    if name == "blenderbot":  # transformers 5 leaves </s> out
        rows = [[*row, 2] for row in tokenizer(texts)["input_ids"]]
        width = max(map(len, rows))
        batch = {
            "input_ids": torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
        }
    pad, eos = network.config.pad_token_id, network.config.eos_token_id
    rows = network.generate(**{key: batch[key] for key in ("input_ids", "attention_mask")}, suppress_tokens=[pad])
    for result, row in zip(results, rows.tolist(), strict=True):
        assert found.target.to_theirs(result.ids) == [each for each in row[1:] if each not in (pad, eos)]
    assert len({result.text for result in results}) > 1


@pytest.mark.parametrize("name", ["plbart", pytest.param("pegasus", marks=pytest.mark.slow)])
def test_an_import_is_certified_and_keeps_its_symbols(folders: Folders, tmp_path: Path, name: str) -> None:
    from attendo import load

    found = from_folder(folders(name))
    passed = import_model(found, tmp_path / "out", some_lines(2, 4))
    assert passed is not None
    assert passed.passed
    assert any(note.code == "texts_have_same_ids" for note in passed.notes)
    model, texts = load(tmp_path / "out"), some_lines(1, 3)
    assert model.generation.source_suffix == tuple(found.generation.get("source_suffix", ()))
    again = found.build_text_model().generate(texts, max_length=7)
    assert [each.ids for each in model.generate(texts, max_length=7)] == [each.ids for each in again]


def test_an_exported_blenderbot_has_its_ids_and_ends_sources_with_eos(folders: Folders, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    found = from_folder(folders("blenderbot"))
    model, texts = found.build_text_model(), some_lines(1, 5)
    certificate = export(model, tmp_path / "out", "hf", "float32", sentences=random_sentences(model, 4))
    assert certificate.passed
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in texts:
        assert theirs(text).input_ids == found.source.to_theirs([*model.source_tokenizer.encode(text), EOS])
    again = from_folder(tmp_path / "out")
    assert again.source == found.source
    assert not again.remarks()
    outputs = [each.ids for each in model.generate(texts, max_length=7)]
    assert [each.ids for each in again.build_text_model().generate(texts, max_length=7)] == outputs


TOKENIZERS: dict[str, tuple[str, Callable[[Path], Any], dict[str, Any]]] = {
    "pegasus in one file": ("pegasus", lambda folder: write_pegasus(folder, in_one_file=True), {}),
    "mbart-cc25 in one file": ("mbart", lambda folder: write_mbart25(folder, ("tokenizer.json",)), {}),
    "mbart-cc25 without names": ("mbart", lambda folder: write_mbart25(folder, ("sentencepiece.bpe.model",)), {}),
    "plbart multi": ("plbart", lambda folder: write_plbart(folder, "multi"), {}),
    "blenderbot in one file": ("blenderbot", lambda folder: len(write_blenderbot(folder, in_one_file=True)), {}),
    "bart with a space before the text": ("bart", lambda folder: _write_spaced_bart(folder), {}),
}


def _write_spaced_bart(folder: Path) -> int:
    size = len(write_bart(folder))
    settings = {"tokenizer_class": "BartTokenizer", "add_prefix_space": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return size


@pytest.mark.parametrize("name", TOKENIZERS)
def test_other_tokenizer_files_give_the_same_ids(tmp_path: Path, name: str) -> None:
    kind, write, changes = TOKENIZERS[name]
    written(random_model(kind, vocab_size=write(tmp_path), **changes), tmp_path)
    language = {"mbart": "ro_RO", "plbart": "java"}.get(kind)
    found = from_folder(tmp_path, target_language=language, source_language=language)
    # transformers 5 saves MBartTokenizer without the normalisation of SentencePiece, which reads tabs as spaces.
    assert_same_ids(found, only_spaces=name == "mbart-cc25 in one file")
    model = found.build_text_model()
    text = some_lines(1, 1)[0]
    ids = model.source_tokenizer.encode(text)
    assert model.source_tokenizer.decode(ids) == text
    theirs = {"blenderbot": 2, "pegasus": 1}.get(kind, 2)
    assert found.source.to_theirs([EOS]) == [theirs]
    if name == "blenderbot in one file":
        assert not any(note.code == "blenderbot_sources_end_with_eos" for note in found.notes)


def test_spaced_tokenizers_are_saved_and_loaded(tmp_path: Path) -> None:
    written(random_model("bart", vocab_size=_write_spaced_bart(tmp_path)), tmp_path)
    from_folder(tmp_path).build_text_model().save(tmp_path / "saved")
    from attendo import load

    tokenizer = load(tmp_path / "saved").source_tokenizer
    assert tokenizer == from_folder(tmp_path).source_tokenizer
    assert tokenizer.encode("ab") == tokenizer.encode(" ab")
    assert tokenizer.decode(tokenizer.encode("ab cd")) == "ab cd"


@pytest.mark.parametrize("kind", REFUSED)
def test_other_families_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    """Before the weights are read, which may be large or a pickle."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}), "utf-8")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, check=has_code("model_type_refused", kind=kind)) as found:
        from_folder(tmp_path)
    assert "\n" not in str(found.value)
    assert kind in str(found.value)


def test_prompts_of_mvp_are_refused(folders: Folders, tmp_path: Path) -> None:
    folder = _copy_with(folders("mvp"), tmp_path, "config.json", use_prompt=True)
    with pytest.raises(ModelError, check=has_code("mvp_prompt_unsupported")):
        from_folder(folder)


@pytest.mark.parametrize(
    ("family", "name"),
    [("mvp", "BertTokenizer"), ("mbart25", "BarthezTokenizer"), ("pegasus", "BertTokenizerFast")],
)
def test_other_tokenizer_classes_are_refused_by_name(folders: Folders, tmp_path: Path, family: str, name: str) -> None:
    folder = _copy_with(folders(family), tmp_path, "tokenizer_config.json", tokenizer_class=name)
    (folder / "vocab.json").unlink(missing_ok=True)
    with pytest.raises(ModelError, check=has_code("tokenizer_class_unsupported", name=name.removesuffix("Fast"))):
        from_folder(folder)
    assert from_folder(folder, with_tokenizers=False).network.config.max_length is not None or family == "pegasus"


def test_a_missing_target_language_is_reported(folders: Folders, tmp_path: Path) -> None:
    folder = _copy_with(folders("mbart25"), tmp_path, "config.json", decoder_start_token_id=2)
    (folder / "generation_config.json").unlink()
    with pytest.raises(UsageError, check=has_code("target_language_needed")):
        from_folder(folder)
    assert from_folder(folder, target_language="de_DE").generation["source_suffix"] == ["en_XX"]


def _copy_with(original: Path, tmp_path: Path, file: str, **changes: Any) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(original, folder)
    content = json.loads((folder / file).read_text("utf-8")) if (folder / file).is_file() else {}
    (folder / file).write_text(json.dumps({**content, **changes}), "utf-8")
    return folder


def test_every_family_has_a_reader_a_folder_and_an_oracle() -> None:
    kinds = {"t5gemma2", *(kind for kind, *_ in (*FOLDERS.values(), *T5_FOLDERS.values()))}
    for family in FAMILIES:
        if family.oracle == "transformers":
            assert family.model_type in kinds
            assert hasattr(transformers, family.model_class or "")
    assert POSITIONS > 300
    assert not {each.model_type for each in FAMILIES} & {*REFUSED}


def test_the_certificate_compares_long_sources_and_targets(folders: Folders, tmp_path: Path) -> None:
    """A fault that only far positions show. With few positions the pair is shorter."""
    found = from_folder(folders("blenderbot"))
    certificate = importing.certify_import(found, found.build_text_model(), None, 2)
    assert message("long_pair_compared", length=150) in map(str, certificate.notes)
    found = from_folder(folders("blenderbot"))  # the comparison drops the weights
    assert found.network.source is not None
    with torch.no_grad():
        found.network.source.positions.table[100:] *= -1  # type: ignore[operator]
    assert not importing.certify_import(found, found.build_text_model(), None, 2).passed
    short = from_folder(make_folder("blenderbot", tmp_path / "short", max_position_embeddings=64))
    certificate = importing.certify_import(short, short.build_text_model(), None, 2)
    assert message("long_pair_compared", length=63) in map(str, certificate.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FOLDERS, *T5_FOLDERS])
def test_exports_are_those_of_the_table(folders: Folders, tmp_path: Path, name: str) -> None:
    """`attendo families` lists them. Symbols after the source are kept by ONNX only."""
    found = from_folder(folders(name) if name in FOLDERS else make_t5_folder(name, tmp_path / "original"))
    model = found.build_text_model()
    listed = FAMILY_BY_TYPE[found.folder.model_type].exports
    if model.generation.source_suffix:
        listed = ("onnx",)
    exported, reasons = [], list[str]()
    for to in ("hf", "ctranslate2", "onnx"):
        try:
            export(model, tmp_path / to, to, "float32", sentences=random_sentences(model, 4))  # type: ignore[arg-type]
            exported.append(to)
        except ModelError as error:
            reasons.append(str(error))
    assert exported == [*listed]
    suffix = " ".join(model.generation.source_suffix)
    assert all("source_suffix" in each or suffix in each for each in reasons)
    with pytest.raises(ModelError, check=has_code("marian_export_unsupported")):
        export(model, tmp_path / "marian", "marian", "float32", sentences=random_sentences(model, 4))
