"""Without the extras, commands work or name the extra that they need."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from error_codes import message
from tiny import QUICK_RUN, SOURCES, TARGETS, Command, tiny_model

from attendo.cli import main

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Runs the commands of its second argument in order, without the packages of its first argument.
CHILD = """
import contextlib, io, json, sys
sys.modules |= dict.fromkeys(json.loads(sys.argv[1]))
from attendo.cli.main import main
for words in json.loads(sys.argv[2]):
    sys.argv, sys.stdin = ["attendo", *words], io.TextIOWrapper(io.BytesIO(b"the cat sat"), "utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
    print(json.dumps([code, *(each.buffer.getvalue().decode() for each in (out, err))]), file=sys.__stdout__)
"""
TRAIN = ("train", "--source", "none.en", "--target", "none.de", "--out", "run")

# The texts do not exist and the model is damaged: the missing package must be reported first.
REFUSED = {
    "eval": [
        ("evaluate", "damaged", "--source", "none.en", "--reference", "none.de"),
        (*TRAIN, "--set", "train.best=bleu"),
        (*TRAIN, "--set", "preset=tiny", "--set", "train.metrics=['chrf']"),
        ("reproduce", "multi30k_en_fr", "--data", "none"),
        ("bench", "generate", "damaged", "--natural", "none.en", "--references", "none.de"),
    ],
    "serve": [
        ("serve", "damaged"),
        ("serve", "damaged", "--check"),
        ("explore", "damaged", "--no-open"),
        ("bench", "serve", "--model", "damaged"),
    ],
    "export": [
        ("export", "damaged", "out", "--to", "onnx"),
        ("export", "damaged", "out", "--to", "ctranslate2"),
        ("export", "damaged", "out.argosmodel", "--to", "argos", "--from-lang", "en", "--to-lang", "de"),
        ("generate", "for_onnx"),
        ("generate", "for_ctranslate2"),
    ],
    "hf": [("export", "damaged", "out", "--to", "hf"), ("import", "damaged", "out")],
    "plot": [
        ("plot", "none"),
        ("plot-attention", "damaged", "the cat"),
        ("heads", "damaged", "none.en", "--output", "heads.svg"),
    ],
    "tensorboard": [(*TRAIN, "--tensorboard")],
}
CORE = [
    (
        "train",
        "--source",
        "a.en",
        "--target",
        "a.zh",
        "--out",
        "own",
        *(x for each in QUICK_RUN for x in ("--set", each)),
    ),
    ("generate", "model"),
    ("score", "model", "--source", "a.en", "--target", "a.zh"),
    ("describe", "model"),
    ("trace", "model", "the cat sat"),
    ("prepare", "--source", "a.en", "--target", "a.zh", "--out", "prepared", "--set", "tokenizer.kind=words"),
]
COMMANDS = [*(words for each in REFUSED.values() for words in each), *CORE]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[int, str, str]]:
    """By command: exit code, standard output, standard error."""
    folder = tmp_path_factory.mktemp("core")
    tiny_model().save(folder / "model")
    (folder / "a.en").write_text("".join(f"{each}\n" for each in SOURCES * 20), "utf-8")
    (folder / "a.zh").write_text("".join(f"{each}\n" for each in TARGETS * 20), "utf-8")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "manifest.json").write_text("{", "utf-8")
    for engine in ("onnx", "ctranslate2"):
        (folder / f"for_{engine}").mkdir()
        manifest = {"format": "attendo.export", "facts": {"to": engine}}
        (folder / f"for_{engine}" / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    child = [sys.executable, "-c", CHILD, json.dumps(list_extra_packages()), json.dumps(COMMANDS)]
    done = subprocess.run(child, cwd=folder, check=False, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    return dict(zip(COMMANDS, found, strict=True))


def list_extra_packages() -> list[str]:
    """The import names of the packages of all extras, and of packages that a server imports as well."""
    extras = PROJECT["optional-dependencies"]
    named = {re.split(r"[^\w-]", each)[0] for extra, wanted in extras.items() if extra != "dev" for each in wanted}
    return sorted({each.replace("-", "_") for each in named - {"attendo"}} | {"starlette", "h11", "PIL"})


def test_hidden_packages_are_those_of_the_extras() -> None:
    assert {"sacrebleu", "python_multipart", "onnxruntime", "transformers", "ray"} <= set(list_extra_packages())
    assert {"torch", "numpy", "pydantic", "typer", "rich"}.isdisjoint(list_extra_packages())


@pytest.mark.parametrize(("extra", "words"), [(extra, each) for extra, all_ in REFUSED.items() for each in all_])
def test_a_missing_extra_is_reported_before_files_are_read(
    results: dict[tuple[str, ...], tuple[int, str, str]], extra: str, words: tuple[str, ...]
) -> None:
    code, output, errors = results[words]
    assert code == 2
    assert output == ""
    assert re.fullmatch(rf"attendo: .+ needs [\w ]+: pip install 'attendo\[{extra}\]'\n", errors), errors


@pytest.mark.parametrize("words", CORE, ids=[words[0] for words in CORE])
def test_core_commands_need_no_extra(
    results: dict[tuple[str, ...], tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    code, _, errors = results[words]
    assert code == 0, errors


def test_extra_all_includes_every_extra_of_users_except_ray_and_corpora() -> None:
    extras = PROJECT["optional-dependencies"]
    (named,) = extras["all"]
    assert set(re.findall(r"\w+", named)) - {"attendo"} == extras.keys() - {"all", "dev", "docs", "ray", "corpora"}
    assert "attendo[all]" in extras["dev"]


def test_an_old_typer_is_named(attendo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer, "__version__", "0.28.0")
    done = attendo("generate", "none")
    assert (done.code, done.error) == (2, message("typer_too_old", version="0.28.0", least="0.29"))
    least = next(each for each in PROJECT["dependencies"] if each.startswith("typer"))
    assert least == "typer>=" + ".".join(map(str, main._LEAST_TYPER))
