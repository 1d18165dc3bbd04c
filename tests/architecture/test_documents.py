"""Code in the documents runs, and the two languages of the README say the same."""

import shutil
from pathlib import Path

import pytest
import torch
from documents import DOCUMENTS, ROOT, Block, blocks, document, headings

from attendo.recipes.demo import demo_config
from attendo.recipes.run import Run

BLOCKS = [block for path in DOCUMENTS for block in document(path) if block.runs]

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


@pytest.fixture(scope="module")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model like that of the demo, layers and heads included, but narrow and hardly trained."""
    config = demo_config().replace(
        model={**demo_config().model, "d_model": 16, "d_ff": 16}, train={"steps": 10, "batch_tokens": 256}
    )
    run = Run(config, tmp_path_factory.mktemp("documents"), torch.device("cpu"))
    list(run.train())
    return run.save()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
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
