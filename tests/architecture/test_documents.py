"""Code in the documents runs, and the two languages of the README say the same."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import command_server
import pytest
import torch
from documents import DOCUMENTS, ROOT, Block, Command, blocks, commands, document, headings, missing
from piped import QUIET

from attendo.cli.main import COMMANDS
from attendo.runs.config_reference import PAGE, make_reference
from attendo.runs.demo import demo_config
from attendo.runs.run import Run

BLOCKS = [block for path in DOCUMENTS for block in document(path) if block.runs]
WALKS = [str(path.relative_to(ROOT)) for path in DOCUMENTS if commands(document(path))]
# They train and evaluate, as docs/guides/other-tasks.md does, which is the short form.
LONG_WALKS = ("docs/guides/your-data.md", "docs/guides/language-model.md", "docs/scores.md")

SAMPLE = """# Title
```python run
# needs: runs/demo/model
import attendo
assert attendo.load("runs/demo/model").trace("The cat sat").cross.shape[:2] == (2, 2)
```
## Part
```sh
# not a heading
```
"""

WALK = """```sh run
echo one > a
```
```sh run
cat a
attendo --version
$ATTENDO --version >&2
```
```output
one
attendo 7.8.9
attendo 0
```
"""


@pytest.fixture(scope="module")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model like that of the demo, layers and heads included, but narrow and hardly trained."""
    config = demo_config().replace(
        data={"task": "builtin", "pairs": 2000},
        model={**demo_config().model, "d_model": 16, "d_ff": 16},
        train={"steps": 10, "batch_tokens": 256, "samples": 0},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attendo.runs.corpora.BUILTIN_VALID_PAIRS", 50)
        run = Run.begin(config, tmp_path_factory.mktemp("documents") / "run", torch.device("cpu"))
        for _ in run.prepare():
            pass
        run.build()
        for _ in run.train():
            pass
        return run.finish()


# The Chinese README has the code of the English one: another test compares them.
@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize(
    "block",
    [pytest.param(each, marks=pytest.mark.slow) if "zh-CN" in each.place else each for each in BLOCKS],
    ids=lambda block: block.place,
)
def test_a_block_of_code_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    run_block(block, tmp_path, monkeypatch, request)


def test_a_block_may_ask_for_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    first, second = blocks(SAMPLE, "sample.md")
    assert (first.place, first.runs, first.needs) == ("sample.md:2", True, "runs/demo/model")
    assert (second.place, second.runs, second.needs) == ("sample.md:8", False, None)
    run_block(first, tmp_path, monkeypatch, request)
    assert (tmp_path / "runs" / "demo" / "model").is_dir()
    with pytest.raises(ZeroDivisionError):
        run_block(Block("sample.md:1", "python run", "1 / 0"), tmp_path, monkeypatch, request)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`attendo`, forked from a process that has imported torch. The path of a socket must be short."""
    client, address = tmp_path_factory.mktemp("server") / "client.py", Path(mkdtemp(prefix="attendo-")) / "socket"
    client.write_text(command_server.CLIENT)
    python_path = os.pathsep.join(str(path) for path in (ROOT, ROOT / "tests"))
    with subprocess.Popen(
        [sys.executable, command_server.__file__, str(address)],
        env={**os.environ, "PYTHONPATH": python_path, "LC_ALL": "C.UTF-8"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        while not address.exists():
            assert server.poll() is None, "the server has died"
            time.sleep(0.01)
        yield f'#!/bin/sh\nexec "{sys.executable}" -S -E "{client}" "{address}" "$@"\n'
        server.terminate()
    shutil.rmtree(address.parent)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG_WALKS else name for name in WALKS]
)
def test_the_commands_of_a_guide_run_one_after_the_other_and_say_what_it_says(
    name: str, program: str, tmp_path: Path
) -> None:
    walked = commands(document(ROOT / name))
    assert any(command.output for command in walked), "a guide shows what its commands say"
    for command in walked:
        command.run(tmp_path, program)


def test_the_guide_to_training_is_run() -> None:
    assert "docs/guides/your-data.md" in WALKS
    assert {*LONG_WALKS} <= {*WALKS}


def test_commands_keep_their_files_and_know_attendo(tmp_path: Path) -> None:
    first, second = commands(blocks(WALK, "walk.md"))
    assert (first.output, second.output) == ((), ["one", "attendo 7.8.9", "attendo 0"])
    first.run(tmp_path)
    second.run(tmp_path)
    with pytest.raises(AssertionError, match=r"walk\.md:4: its output has no line like 'two'"):
        commands(blocks(WALK.replace("```output\none", "```output\ntwo"), "walk.md"))[1].run(tmp_path)


@pytest.mark.parametrize("text", ["false\necho on", "exit 3", "false | cat", "attendo trian"])
def test_a_command_that_fails_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(AssertionError, match=r"sample\.md:1 ends with exit code"):
        Command(Block("sample.md:1", "sh run", text)).run(tmp_path)


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        (["step 7: loss 1.5e-03"], None),
        (["step ...", "..."], None),
        (["left 0:00:05", "step 2: loss 2"], "step 2: loss 2"),  # in this order
        (["step"], "step"),
        (["model ... written"], None),
        (["step 2: loss 2  best"], "step 2: loss 2  best"),
    ],
)
def test_lines_are_compared_but_for_their_numbers(expected: list[str], line: str | None) -> None:
    found = ["begin", "step 1,000: loss 0.25", "left 12:34:56", "model x was written"]
    assert missing(expected, found) == line


def test_the_reference_of_the_run_file_is_that_of_the_settings() -> None:
    """Renewed by `python -m attendo.runs.config_reference`."""
    assert (ROOT / PAGE).read_text("utf-8") == make_reference()


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    names = [name for section in COMMANDS.values() for name in section]
    assert [name for name in names if f"attendo {name} " not in text and f"`{name}`" not in text] == []


def test_links_lead_to_files() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_headings_are_told_from_comments() -> None:
    assert headings(SAMPLE) == [1, 2]


def test_both_languages_of_the_readme_have_the_same_code_and_headings() -> None:
    english, chinese = (ROOT / "README.md"), (ROOT / "README.zh-CN.md")
    assert headings(english.read_text("utf-8")) == headings(chinese.read_text("utf-8"))
    assert [(block.kind, block.text) for block in document(english)] == [
        (block.kind, block.text) for block in document(chinese)
    ]


def test_the_readme_has_code_that_runs() -> None:
    assert any(block.runs for block in document(ROOT / "README.md"))


def run_block(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """In an empty folder, but for the model that the block needs."""
    if block.needs is not None:
        shutil.copytree(request.getfixturevalue("demo_model"), folder / block.needs)
    monkeypatch.chdir(folder)
    exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})
