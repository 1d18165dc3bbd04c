"""Writes a page as a Jupyter notebook: its text, its code, and the output that the build has computed."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PATHS = 'import sys\n\nsys.path.insert(0, "../../code")  # {}\n'
WHY = {"en": "the classes of the lesson", "zh": "本教程的类"}
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)((?:#[^)]*)?)\)")
MARKS = re.compile(r"^<!-- [^>]*? -->\n?", re.MULTILINE)


def notebook(text: str, block: re.Pattern[str], blocks: Sequence[tuple[str, str]], language: str) -> str:
    """Return the notebook of a built page as JSON. `blocks` are its codes with their outputs."""
    cells: list[dict[str, Any]] = []
    place, rest = 0, iter(blocks)
    for match in block.finditer(text):
        cells += prose(text[place : match.start()])
        if not any(cell["cell_type"] == "code" for cell in cells):
            cells.append(code(PATHS.format(WHY[language]), ""))
        cells.append(code(*next(rest)))
        place = match.end()
    cells += prose(text[place:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02}"
    whole = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def prose(text: str) -> list[dict[str, Any]]:
    shown = LINK.sub(adapt, MARKS.sub("", text).replace("<!-- end -->", "")).strip()
    return [{"cell_type": "markdown", "metadata": {}, "source": lines(shown)}] if shown else []


def code(source: str, printed: str) -> dict[str, Any]:
    output = [{"name": "stdout", "output_type": "stream", "text": lines(printed)}] if printed else []
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": output,
        "source": lines(source.rstrip()),
    }


def adapt(link: re.Match[str]) -> str:
    """A notebook is one folder deeper than its page. It links other notebooks, not their pages."""
    target, anchor = link[1], link[2]
    if "/" not in target:
        return f"]({Path(target).with_suffix('.ipynb')})"
    parts = target.split("/")
    if parts[:2] in (["..", "en"], ["..", "zh"]):
        return f"](../{parts[1]}/{Path(parts[2]).with_suffix('.ipynb')})"
    if parts[:2] == ["..", "notebooks"]:
        return f"](../../{parts[2]}/{Path(parts[3]).with_suffix('.md')})"
    return f"](../{target}{anchor})"


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
