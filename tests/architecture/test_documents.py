"""Code in the documents runs."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from tempfile import mkdtemp

import command_server
import pytest
import torch
from documents import CHINESE, DOCUMENTS, ROOT, Block, Command, blocks, commands, document, headings, missing_line
from piped import QUIET

from attendo.cli.main import COMMANDS
from attendo.runs.demo import demo_config
from attendo.runs.run import Run

RUN = [path for path in DOCUMENTS if path not in CHINESE]
BLOCKS = [block for path in RUN for block in document(path) if block.runs]
GUIDES = [str(path.relative_to(ROOT)) for path in RUN if commands(document(path))]
# They train and evaluate; docs/guides/other-tasks.md does the same in less time.
LONG_GUIDES = (
    *("docs/guides/your-data.md", "docs/guides/language-model.md", "docs/scores.md"),
    *("docs/guides/back-translation.md", "docs/exposure-bias.md", "docs/three-kinds.md", "docs/trust.md"),
)

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

GUIDE = """```sh run
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
    """A model with the layers and heads of the demo, but narrow and trained for 10 steps."""
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


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.location)
def test_code_block_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    run_block(block, tmp_path, monkeypatch, request)


def test_code_block_may_need_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    first, second = blocks(SAMPLE, "sample.md")
    assert (first.location, first.runs, first.needs) == ("sample.md:2", True, "runs/demo/model")
    assert (second.location, second.runs, second.needs) == ("sample.md:8", False, None)
    run_block(first, tmp_path, monkeypatch, request)
    assert (tmp_path / "runs" / "demo" / "model").is_dir()
    with pytest.raises(ZeroDivisionError):
        run_block(Block("sample.md:1", "python run", "1 / 0"), tmp_path, monkeypatch, request)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An `attendo` script that forks from a process with torch imported. The path of a socket must be short."""
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
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG_GUIDES else name for name in GUIDES]
)
def test_guide_commands_run_and_print_the_shown_output(name: str, program: str, tmp_path: Path) -> None:
    guide_commands = commands(document(ROOT / name))
    assert any(command.output for command in guide_commands), "a guide must show the output of its commands"
    for command in guide_commands:
        command.run(tmp_path, program)


def test_training_guides_are_run() -> None:
    assert "docs/guides/your-data.md" in GUIDES
    assert {*LONG_GUIDES} <= {*GUIDES}


def test_commands_share_a_folder_and_find_attendo(tmp_path: Path) -> None:
    first, second = commands(blocks(GUIDE, "walk.md"))
    assert (first.output, second.output) == ((), ["one", "attendo 7.8.9", "attendo 0"])
    first.run(tmp_path)
    second.run(tmp_path)
    with pytest.raises(AssertionError, match=r"walk\.md:4: its output has no line like 'two'"):
        commands(blocks(GUIDE.replace("```output\none", "```output\ntwo"), "walk.md"))[1].run(tmp_path)


@pytest.mark.parametrize("text", ["false\necho on", "exit 3", "false | cat", "attendo trian"])
def test_failing_command_is_reported(tmp_path: Path, text: str) -> None:
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
def test_output_lines_are_compared_without_numbers(expected: list[str], line: str | None) -> None:
    found = ["begin", "step 1,000: loss 0.25", "left 12:34:56", "model x was written"]
    assert missing_line(expected, found) == line


def test_run_file_reference_is_up_to_date() -> None:
    """`python docs/run_file.py` writes the pages of both languages."""
    program = run_path(str(ROOT / "docs" / "run_file.py"))
    for language, page in program["PAGES"].items():
        assert page.read_text("utf-8") == program["make_reference"](language)


def test_chinese_of_each_setting_is_used() -> None:
    program = run_path(str(ROOT / "docs" / "run_file.py"))
    english = program["make_reference"]("en").replace("`", "")
    assert [text for text in program["_CHINESE"] if f" {text.replace('`', '')} |" not in english] == []


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    names = [name for section in COMMANDS.values() for name in section]
    assert [name for name in names if f"attendo {name} " not in text and f"`{name}`" not in text] == []


def test_document_links_lead_to_files() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_comments_in_code_are_not_headings() -> None:
    assert headings(SAMPLE) == [1, 2]


def test_readme_has_code_that_runs() -> None:
    assert any(block.runs for block in document(ROOT / "README.md"))


def run_block(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Run the block in a folder that holds only the model it needs."""
    if block.needs is not None:
        shutil.copytree(request.getfixturevalue("demo_model"), folder / block.needs)
    monkeypatch.chdir(folder)
    exec(compile(block.text, block.location, "exec"), {"__name__": "__main__"})
