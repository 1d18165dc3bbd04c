"""Builds the lesson: runs the code of its pages and inserts output, listings, numbers, pictures, heads and feet.

It also writes every page as a notebook.

`python docs/lesson/build.py` does all of it. `--gallery` also repeats the experiments of the gallery, which takes some
minutes. Without it, the build uses their stored numbers.
"""

import argparse
import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
CODE = HERE / "code"
for folder in (HERE, CODE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import figures  # noqa: E402
import frame  # noqa: E402
import gallery  # noqa: E402
import listings  # noqa: E402
import notebooks  # noqa: E402

LANGUAGES = ("en", "zh")
BLOCK = re.compile(r"^```python lesson\n(?P<code>.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (?P<kind>code|value): (?P<what>[^>]*?) -->(?P<held>.*?)<!-- end -->", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the lesson.")
    parser.add_argument("--gallery", action="store_true", help="repeat the experiments of the gallery")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.gallery or not gallery.KEPT.exists():
        gallery.measure()
    for name in page_names():
        for language in LANGUAGES:
            text, blocks = built(language, name)
            (HERE / language / name).write_text(text, "utf-8")
            notebook_path(language, name).write_text(notebooks.notebook(text, BLOCK, blocks, language), "utf-8")
    for language in LANGUAGES:
        page = HERE / "mistakes" / f"{language}.md"
        page.write_text(filled(page.read_text("utf-8"), language), "utf-8")
        for name, drawn in figures.all_pictures(language):
            (HERE / "pictures" / language / f"{name}.svg").write_text(drawn, "utf-8")


def page_names() -> list[str]:
    return frame.names()


def notebook_path(language: str, name: str) -> Path:
    path = HERE / "notebooks" / language / Path(name).with_suffix(".ipynb")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def needs_translator(name: str) -> bool:
    """Whether the code of a page needs a trained network."""
    text = (HERE / "en" / name).read_text("utf-8")
    return "from translator import" in text or "from language_model import" in text


def built(language: str, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Run the code of a page. Return the page, and its blocks with their outputs."""
    text = (HERE / language / name).read_text("utf-8")
    blocks = run([match["code"] for match in BLOCK.finditer(text)], f"{language}/{name}")
    return frame.framed(filled(with_blocks(text, blocks), language), name, language), blocks


def run(codes: list[str], name: str) -> list[tuple[str, str]]:
    """Return each block with its output. A block can use the names of earlier blocks of the page."""
    known: dict[str, Any] = {"__name__": "lesson"}
    done = []
    torch.set_printoptions(profile="default")  # a page prints what its reader's Python prints
    for number, code in enumerate(codes, 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{name}, block {number}", "exec"), known)
        done.append((code, "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())))
    return done


def with_blocks(text: str, blocks: list[tuple[str, str]]) -> str:
    rest = iter(blocks)

    def block(_: re.Match[str]) -> str:
        code, printed = next(rest)
        output = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python lesson\n{code}```\n{output}"

    return BLOCK.sub(block, text)


def filled(text: str, language: str) -> str:
    """Insert every listing and every measured value at its mark."""
    values = gallery.values()
    makers: dict[str, Callable[[str], str]] = {
        "code": lambda what: f"\n```python\n{listings.listing(*what.split(), language=language)}\n```\n",
        "value": lambda what: values[what],
    }

    def mark(match: re.Match[str]) -> str:
        kind, what = match["kind"], match["what"]
        return f"<!-- {kind}: {what} -->{makers[kind](what)}<!-- end -->"

    return MARK.sub(mark, text)


if __name__ == "__main__":
    main()
