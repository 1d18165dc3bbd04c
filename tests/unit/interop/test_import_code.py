"""X12: `attendo import` runs no code from a folder, for every file that can name code and for all user input."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from foreign_models import random_model, written
from foreign_tokenizers import write_bart
from tiny import Command

from attendo.interop import import_model
from attendo.interop.huggingface.load_pretrained import open_model, open_tokenizer
from attendo.interop.huggingface.read_tokenizers import compare_tokenizations
from attendo.interop.import_model import from_folder
from attendo.text_model import TextModel
from attendo.text_model.inputs import ModelSymbols

pytest.importorskip("transformers")

CODE = """
from pathlib import Path
Path({sentinel!r}).touch()
from transformers import BartConfig as Config, BartForConditionalGeneration as Model, BartTokenizer as Tokenizer
"""
AUTO_MAP = {
    "AutoConfig": "planted.Config",
    "AutoModel": "planted.Model",
    "AutoModelForSeq2SeqLM": "planted.Model",
    "AutoTokenizer": ["planted.Tokenizer", None],
    "AutoProcessor": "planted.Tokenizer",
}
SECOND = "config.4.0.0.json"


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = import_model.collect_sentences

    def collect_few(model: TextModel, texts: list[str] | None, min_count: int) -> object:
        return collect(model, texts, min_count=2)

    monkeypatch.setattr(import_model, "collect_sentences", collect_few)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bart")
    return written(random_model("bart", vocab_size=len(write_bart(folder)), decoder_layers=1), folder)


@pytest.fixture
def planted(plain: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(plain, tmp_path / "bart"))
    (folder / "planted.py").write_text(CODE.format(sentinel=str(tmp_path / "sentinel")), "utf-8")
    generate = folder / "custom_generate"
    generate.mkdir()
    (generate / "generate.py").write_text(CODE.format(sentinel=str(tmp_path / "sentinel")), "utf-8")
    return folder


def change(path: Path, **values: Any) -> None:
    before = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**before, **values}), "utf-8")


def second_file(folder: Path) -> None:
    """A plain config.json that refers transformers to another file."""
    shutil.copy(folder / "config.json", folder / SECOND)
    change(folder / SECOND, auto_map=AUTO_MAP, model_type="planted")
    change(folder / "config.json", configuration_files=[SECOND])


def second_tokenizer_file(folder: Path) -> None:
    (folder / "tokenizer.4.0.0.json").write_text("{}", "utf-8")
    change(folder / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.0.json"], auto_map=AUTO_MAP)


PLANTS = {
    "second file": second_file,
    "second tokenizer file": second_tokenizer_file,
    **{
        name: lambda folder, name=name: change(folder / f"{name}.json", auto_map=AUTO_MAP)
        for name in ("config", "tokenizer_config", "processor_config", "preprocessor_config", "generation_config")
    },
    "every file": lambda folder: [plant(folder) for name, plant in PLANTS.items() if name != "every file"],
    "unknown class": lambda folder: change(
        folder / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=AUTO_MAP
    ),
    "custom generate": lambda folder: change(
        folder / "generation_config.json", custom_generate=str(folder), trust_remote_code=True
    ),
}


QUICK = ("second file", "every file", "unknown class")


@pytest.mark.parametrize(
    "plant", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in PLANTS if each not in QUICK)]
)
def test_code_that_a_folder_names_is_not_run(attendo: Command, planted: Path, tmp_path: Path, plant: str) -> None:
    PLANTS[plant](planted)
    result = attendo("import", planted, tmp_path / "model", given=b"y\n" * 20)
    assert not (tmp_path / "sentinel").exists()
    assert result.code == 0, result.errors
    assert "Do you wish" not in result.output + result.errors


def test_the_model_is_opened_with_the_checked_settings(planted: Path, tmp_path: Path) -> None:
    change(planted / "config.json", attn_implementation="somebody/kernel", configuration_files=[SECOND])
    (planted / SECOND).write_text("{", "utf-8")
    model = open_model(from_folder(planted).folder)
    assert type(model).__name__ == "BartForConditionalGeneration"
    assert model.config._attn_implementation in ("sdpa", "eager")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_tokenizer_settings_cannot_name_outside_files(planted: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"outside": 0}', "utf-8")
    change(planted / name, vocab_file=str(other), tokenizer_file=str(other), init_inputs=[str(other)])
    assert "outside" not in open_tokenizer(planted, "bart").get_vocab()


def test_a_tokenizer_of_an_unknown_class_is_not_compared(planted: Path) -> None:
    change(planted / "tokenizer_config.json", tokenizer_class="LlamaTokenizer")
    found = from_folder(planted)
    assert found.source_tokenizer is not None
    compared = compare_tokenizations((planted, "bart"), found.source, found.source_tokenizer, ModelSymbols(), ["ab"])
    reason = has_code("tokenizer_class_unsupported", name="LlamaTokenizer")
    assert has_code("tokenizer_not_compared", reason=reason)(compared.summary)
