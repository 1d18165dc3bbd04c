"""Every printed block of the lesson runs in `docs/lesson/code`, in a new Python, in the order of its page."""

import json
import subprocess
import sys

import build
import pytest

CODE = build.HERE / "code"
RUN = """
import json, sys
sys.path.insert(0, "")  # as `python` does, which -I switches off with the variables that change the path
for name, blocks in json.load(sys.stdin):
    known = {"__name__": "__main__"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{name}, block {number}", "exec"), known)
"""


def run_in_code_folder(pages: list[str]) -> None:
    blocks = [
        (
            f"{language}/{name}",
            [match["code"] for match in build.BLOCK.finditer((build.HERE / language / name).read_text("utf-8"))],
        )
        for name in pages
        for language in build.LANGUAGES
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN],
        input=json.dumps(blocks),
        cwd=CODE,
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr


def test_blocks_of_every_page_run_in_the_code_folder() -> None:
    run_in_code_folder([name for name in build.page_names() if not build.needs_translator(name)])


@pytest.mark.slow
def test_blocks_with_the_trained_translator_run_in_the_code_folder() -> None:
    run_in_code_folder([name for name in build.page_names() if build.needs_translator(name)])
