"""Builds the lesson: runs the code of its pages and writes into them what it prints, listings, numbers and pictures.

`python docs/lesson/build.py` does all of it. `--gallery` also runs the experiments of the gallery anew, which takes
some minutes; without it their kept numbers are used.
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
    parser.add_argument("--gallery", action="store_true", help="run the experiments of the gallery anew")
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
    """A page in each language, with its code run. The code of the English page is that of all."""
    english = (HERE / "en" / name).read_text("utf-8")
    blocks = run([match["code"] for match in BLOCK.finditer(english)], name)
    texts = {}
    for language in LANGUAGES:
        page = HERE / language / name
        if page.exists():
            texts[language] = filled(with_blocks(page.read_text("utf-8"), blocks, f"{language}/{name}"))
    return texts


def run(codes: list[str], name: str) -> list[tuple[str, str]]:
    """Each block with what it prints. Blocks of a page know the names of those before them."""
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
        raise SystemExit(f"{name} has {found} blocks of code, the English page {len(blocks)}")
    rest = iter(blocks)

    def block(_: re.Match[str]) -> str:
        code, printed = next(rest)
        output = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python lesson\n{code}```\n{output}"

    return BLOCK.sub(block, text)


def filled(text: str) -> str:
    """With every listing and every measured value in its place."""
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
    """The source of a function, a class, or a method (`Class.method`) of the lesson."""
    source = (CODE / file).read_text("utf-8")
    node: Any = ast.parse(source)
    for part in name.split("."):
        node = next(each for each in node.body if getattr(each, "name", None) == part)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return textwrap.dedent("\n".join(source.splitlines()[first - 1 : node.end_lineno]))


if __name__ == "__main__":
    main()
