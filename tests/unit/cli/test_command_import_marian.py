"""`attendo import` of Marian's own files, and the commands that use the result. Marian itself is not needed."""

import json
from pathlib import Path

import pytest
from error_codes import fragment
from marian_folders import FOLDER, load_marian, write_zip
from tiny import Command

from attendo.interop import foreign_folder
from attendo.interop.foreign_folder import ForeignFolderWarning
from attendo.interop.marian import certify_import, marian_process

TEXTS = [">>deu<< the cat sees a dog", ">>rev<< today not", ">>deu<< red house"]
REFERENCES = ["der Katze sieht ein Hund", "nicht heute", "rot Haus"]


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_zip("tied_all", tmp_path_factory.mktemp("zip") / "opus-2020-02-26.zip")


def test_without_marian_the_check_is_refused_with_the_command_that_installs_it(
    attendo: Command, zipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marian_process, "find_spec", lambda name: None)
    done = attendo("import", zipped, tmp_path / "model")
    assert done.code == 2
    assert fragment("import_proof_needs_marian", package="pymarian", version="1.12.42") in done.error
    assert not (tmp_path / "model").exists()


FAKE = """
class Translator:
    def __init__(self, options):
        assert options.startswith("-m model.npz -v source.txt target.txt ")

    def translate(self, lines, **options):
        return [f"{{n}} ||| t5 t6 ||| F0= -3.5 ||| -3.5" for n in range(len(lines))]


def main(arguments):
    {fault}
    with open(arguments[arguments.index("-t") + 2]) as targets:
        for line in targets:
            print("-1.0 ||| WordScores=" + " -1.0" * (len(line.split()) + 1))
    return 0
"""


@pytest.fixture
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = certify_import.collect_sentences
    monkeypatch.setattr(
        certify_import, "collect_sentences", lambda model, texts, min_count: collect(model, texts, min_count=6)
    )


@pytest.mark.usefixtures("few_sentences")
def test_other_answers_of_marian_write_nothing(
    attendo: Command, zipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for Marian gives wrong scores and wrong translations."""
    module = tmp_path / "a module" / "_pymarian.py"
    module.parent.mkdir()
    module.write_text(FAKE.format(fault="pass"))
    monkeypatch.syspath_prepend(module.parent)
    done = attendo("import", zipped, tmp_path / "model")
    assert done.code == 4
    assert "FAILED: the mean difference of token scores is" in done.output
    assert fragment("converted_model_differs") in done.errors
    module.write_text(FAKE.format(fault="import sys; print('[now] Error: no such device', file=sys.stderr); return 1"))
    done = attendo("import", zipped, tmp_path / "model")
    assert done.code == 4
    assert fragment("marian_failed", reason="Error: no such device") in done.error
    assert not (tmp_path / "model").exists()


def test_an_imported_zip_file_works_in_the_other_commands(attendo: Command, zipped: Path, tmp_path: Path) -> None:
    model, sources, targets = tmp_path / "model", tmp_path / "source", tmp_path / "target"
    done = attendo("import", zipped, model, "--no-proof")
    assert (done.code, done.output) == (0, "")
    assert "native Marian model written to" in done.errors
    given = "".join(f"{text}\n" for text in TEXTS).encode()
    generated = attendo("generate", model, given=given)
    assert generated.code == 0, generated.errors
    assert generated.output.count("\n") == len(TEXTS)
    sources.write_bytes(given)
    targets.write_text("".join(f"{text}\n" for text in REFERENCES), "utf-8")
    scored = attendo("score", model, "--source", sources, "--target", targets)
    assert [float(line) < 0 for line in scored.output.split()] == [True] * len(TEXTS)
    assert attendo("trace", model, TEXTS[0]).code == 0
    verified = attendo("verify", model, "--source", sources)
    assert verified.code == 0, verified.errors


def test_an_imported_model_is_finetuned(attendo: Command, tmp_path: Path) -> None:
    """Source and target have tokenizers of their own, with one vocabulary and one table."""
    for name, lines in (("source", TEXTS), ("target", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines * 40), "utf-8")
    assert attendo("import", FOLDER / "tied_all", tmp_path / "model", "--no-proof").code == 0
    files = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    tuned = attendo("finetune", tmp_path / "model", *files, "--out", tmp_path / "run", "--set", "train.steps=2")
    assert tuned.code == 0, tuned.errors
    generated = attendo("generate", tmp_path / "run" / "model", given=f"{TEXTS[0]}\n".encode())
    assert generated.code == 0, generated.errors
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text("utf-8"))
    assert (config["tie"], config["position_layout"]) == ("all", "fairseq")


@pytest.mark.parametrize("option", ["--source-language", "--target-language"])
def test_languages_are_labels_in_the_text(attendo: Command, zipped: Path, tmp_path: Path, option: str) -> None:
    done = attendo("import", zipped, tmp_path / "model", "--no-proof", option, "fra")
    assert done.code == 2
    assert fragment("marian_languages_are_labels") in done.error


def test_a_damaged_zip_file_is_one_line(attendo: Command, zipped: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.zip"
    path.write_bytes(zipped.read_bytes()[:-40])
    done = attendo("import", path, tmp_path / "model", "--no-proof")
    assert done.code == 4
    assert fragment("zip_file_invalid") in done.error


def test_a_model_of_marian_generates_without_an_import(
    attendo: Command, zipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_folder, "find_missing_system", lambda imported: "pymarian")
    for path in (zipped, FOLDER / "tied_all"):
        with pytest.warns(ForeignFolderWarning) as found:
            done = attendo("generate", path, given=b">>deu<< the old cat\n")
        assert str(found[0].message).startswith(f"{path} is a native Marian model, imported in memory")
        expected = load_marian("tied_all").build_text_model().generate([">>deu<< the old cat"])[0].text
        assert (done.code, done.output) == (0, f"{expected}\n"), done.errors


def test_storing_a_head_needs_an_import(attendo: Command, tmp_path: Path) -> None:
    file = tmp_path / "s"
    file.write_text("a\n" * 9)
    done = attendo("heads", FOLDER / "tied_all", file, "--store")
    assert done.code == 4
    assert fragment("marian_model_not_imported") in done.error
