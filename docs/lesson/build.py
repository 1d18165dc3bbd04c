"""Builds the lesson: runs the code of its pages and inserts the output, the listings, the numbers and the pictures.

`python docs/lesson/build.py` does all of it. `--gallery` also repeats the experiments of the gallery, which takes some
minutes. Without it, the build uses their stored numbers.
"""

import argparse
import ast
import contextlib
import io
import re
import sys
import textwrap
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
import gallery  # noqa: E402

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
        for language, text in built(name).items():
            (HERE / language / name).write_text(text, "utf-8")
    for language in LANGUAGES:
        page = HERE / "mistakes" / f"{language}.md"
        if page.exists():
            page.write_text(filled(page.read_text("utf-8")), "utf-8")
        for name, drawn in figures.all_pictures(language):
            (HERE / "pictures" / language / f"{name}.svg").write_text(drawn, "utf-8")


def page_names() -> list[str]:
    return sorted(path.name for path in (HERE / "en").glob("*.md"))


def needs_translator(name: str) -> bool:
    return "from translator import" in (HERE / "en" / name).read_text("utf-8")


def built(name: str) -> dict[str, str]:
    """Run the code of a page and return the page in each language. All languages use the code of the English page."""
    english = (HERE / "en" / name).read_text("utf-8")
    blocks = run([match["code"] for match in BLOCK.finditer(english)], name)
    texts = {}
    for language in LANGUAGES:
        page = HERE / language / name
        if page.exists():
            texts[language] = filled(with_blocks(page.read_text("utf-8"), blocks, f"{language}/{name}"))
    return texts


def run(codes: list[str], name: str) -> list[tuple[str, str]]:
    """Return each block with its output. A block can use the names of earlier blocks of the page."""
    known: dict[str, Any] = {"__name__": "lesson"}
    done = []
    torch.set_printoptions(precision=4, sci_mode=False, linewidth=100)
    for number, code in enumerate(codes, 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{name}, block {number}", "exec"), known)
        done.append((code, "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())))
    torch.set_printoptions(profile="default")
    return done


def with_blocks(text: str, blocks: list[tuple[str, str]], name: str) -> str:
    found = len(BLOCK.findall(text))
    if found != len(blocks):
        raise SystemExit(f"{name} has {found} blocks of code, but the English page has {len(blocks)}")
    rest = iter(blocks)

    def block(_: re.Match[str]) -> str:
        code, printed = next(rest)
        output = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python lesson\n{code}```\n{output}"

    return BLOCK.sub(block, text)


def filled(text: str) -> str:
    """Insert every listing and every measured value at its mark."""
    values = gallery.values()
    makers: dict[str, Callable[[str], str]] = {
        "code": lambda what: f"\n```python\n{listing(*what.split())}\n```\n",
        "value": lambda what: values[what],
    }

    def mark(match: re.Match[str]) -> str:
        kind, what = match["kind"], match["what"]
        return f"<!-- {kind}: {what} -->{makers[kind](what)}<!-- end -->"

    return MARK.sub(mark, text)


def listing(file: str, name: str) -> str:
    """Return the source of a function, a class, or a method (`Class.method`) of the lesson."""
    source = (CODE / file).read_text("utf-8")
    node: Any = ast.parse(source)
    for part in name.split("."):
        node = next(each for each in node.body if getattr(each, "name", None) == part)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return textwrap.dedent("\n".join(source.splitlines()[first - 1 : node.end_lineno]))


if __name__ == "__main__":
    main()
