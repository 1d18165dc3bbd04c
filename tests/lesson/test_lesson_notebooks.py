"""The notebooks are the pages: valid, small, the same code, and it runs in their folder."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import build
import frame
import pytest

PAGES = [(language, name) for language in build.LANGUAGES for name in frame.names()]
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
# What a notebook does, without Jupyter: one namespace, one cell after the other, in the notebook's folder.
RUN = """
import json, sys
for path in sys.argv[1:]:
    known = {"__name__": "__main__"}
    for cell in json.load(open(path, encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path}, {cell['id']}", "exec"), known)
"""


def notebook(language: str, name: str) -> Path:
    return build.HERE / "notebooks" / language / Path(name).with_suffix(".ipynb")


def cells(language: str, name: str) -> list[dict[str, Any]]:
    return json.loads(notebook(language, name).read_text("utf-8"))["cells"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("language", "name"), PAGES)
def test_notebook_follows_the_format_and_is_small(language: str, name: str) -> None:
    text = notebook(language, name).read_text("utf-8")
    whole = json.loads(text)
    assert set(whole) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    assert whole["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in whole["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w-]{1,64}", each) for each in names)
    for cell in whole["cells"]:
        keys = {"cell_type", "id", "metadata", "source"}
        assert set(cell) == keys | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
        assert all(isinstance(line, str) for line in cell["source"])
        for output in cell.get("outputs", []):
            assert set(output) == {"name", "output_type", "text"}
            assert (output["name"], output["output_type"]) == ("stdout", "stream")
    assert len(text) < 30_000


@pytest.mark.parametrize(("language", "name"), PAGES)
def test_notebook_has_the_code_and_the_output_of_its_page(language: str, name: str) -> None:
    text = (build.HERE / language / name).read_text("utf-8")
    first, *code = [cell for cell in cells(language, name) if cell["cell_type"] == "code"]
    assert "sys.path" in "".join(first["source"])
    assert ["".join(cell["source"]) for cell in code] == [
        match["code"].rstrip() for match in build.BLOCK.finditer(text)
    ]
    for cell in code:
        for output in cell["outputs"]:
            assert "```text\n" + "".join(output["text"]) + "```" in text


def test_links_of_notebooks_lead_to_files() -> None:
    for language, name in PAGES:
        for cell in cells(language, name):
            if cell["cell_type"] == "markdown":
                for link in LINK.findall("".join(cell["source"])):
                    assert (notebook(language, name).parent / link).resolve().exists(), f"{language}/{name}: {link}"


def run_notebooks(pages: list[tuple[str, str]]) -> None:
    for language in build.LANGUAGES:
        names = [notebook(*page).name for page in pages if page[0] == language]
        done = subprocess.run(
            [sys.executable, "-I", "-c", RUN, *names],
            cwd=build.HERE / "notebooks" / language,
            capture_output=True,
            check=False,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr


def test_notebooks_run_in_their_folder() -> None:
    run_notebooks([(language, name) for language, name in PAGES if not build.needs_translator(name)])


@pytest.mark.slow
def test_notebooks_with_the_trained_translators_run_in_their_folder() -> None:
    run_notebooks([(language, name) for language, name in PAGES if build.needs_translator(name)])
