"""Splits the documents of the project into headings and blocks of code."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")])
# Their code is that of the English pages, which test_chinese_documents.py checks. So it runs once.
CHINESE = [path for path in DOCUMENTS if path.name.endswith("zh-CN.md") or ROOT / "docs" / "zh" in path.parents]
NEEDS = re.compile(r"# needs: (\S+)")
NUMBER = re.compile(r"\d(?:[\d,.:e+-]*\d)?")
PROGRAM = f'#!/bin/sh\nexec "{sys.executable}" -m attendo "$@"\n'


@dataclass(frozen=True)
class Block:
    """A fenced block: the text after the opening fence, and its lines."""

    location: str  # such as README.md:12
    kind: str
    text: str

    @property
    def runs(self) -> bool:
        return self.kind == "python run"

    @property
    def needs(self) -> str | None:
        """The model folder that must exist, named by a first line such as `# needs: runs/demo/model`."""
        found = NEEDS.match(self.text)
        return found[1] if found else None


@dataclass(frozen=True)
class Command:
    """A block `sh run` and the block `output` after it, whose lines the output must contain in this order.

    Numbers may differ. `...` in a line matches any text, and alone it matches any lines.
    """

    block: Block
    output: Sequence[str] = ()

    def run(self, folder: Path, program: str = PROGRAM) -> None:
        """Run it in a folder with the files of earlier commands. `program` is the script named `attendo`."""
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", self.block.text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=_environment(folder, program),
            check=False,
        )
        assert done.returncode == 0, f"{self.block.location} ends with exit code {done.returncode}:\n{done.stdout}"
        line = missing_line(self.output, done.stdout.splitlines())
        assert line is None, f"{self.block.location}: its output has no line like {line!r}:\n{done.stdout}"


def missing_line(expected: Sequence[str], found: Sequence[str]) -> str | None:
    """The first expected line that is not found after the lines before it."""
    rest = iter([NUMBER.sub("0", line.rstrip()) for line in found])
    for line in expected:
        parts = NUMBER.sub("0", line.rstrip()).split("...")
        pattern = re.compile(".*".join(map(re.escape, parts)))
        if line.strip() != "..." and not any(pattern.fullmatch(each) for each in rest):
            return line
    return None


def commands(found: Sequence[Block]) -> list[Command]:
    """The blocks that a shell runs, each with its expected output."""
    return [
        Command(block, after.text.splitlines() if after.kind == "output" else ())
        for block, after in pairwise([*found, Block("", "", "")])
        if block.kind == "sh run"
    ]


def blocks(text: str, name: str) -> list[Block]:
    found, kind, begin = [], None, 0
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if kind is None:
            kind, begin = line.removeprefix("```").strip(), number + 1
        else:
            found.append(Block(f"{name}:{begin}", kind, "\n".join(lines[begin:number]) + "\n"))
            kind = None
    assert kind is None, f"{name}: the block that begins in line {begin} does not end"
    return found


def headings(text: str) -> list[int]:
    """The level of each heading. A comment in a block of code is not a heading."""
    levels, inside = [], False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        if not inside and (found := re.match(r"(#+) ", line)):
            levels.append(len(found[1]))
    return levels


def document(path: Path) -> list[Block]:
    return blocks(path.read_text("utf-8"), str(path.relative_to(ROOT)))


def _environment(folder: Path, program: str) -> dict[str, str]:
    """`attendo` and $ATTENDO run this interpreter, with one thread and unbuffered output."""
    script = folder / ".bin" / "attendo"
    script.parent.mkdir(exist_ok=True)
    script.write_text(program)
    script.chmod(0o755)
    path = os.pathsep.join([str(script.parent), os.environ.get("PATH", "")])
    ours = {"PATH": path, "ATTENDO": str(script), "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **ours}
