"""The documents of the project, taken apart into headings and blocks of code."""

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
NEEDS = re.compile(r"# needs: (\S+)")
NUMBER = re.compile(r"\d(?:[\d,.:e+-]*\d)?")
PROGRAM = f'#!/bin/sh\nexec "{sys.executable}" -m attendo "$@"\n'


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands behind the fence, and its lines."""

    place: str  # such as README.md:12
    kind: str
    text: str

    @property
    def runs(self) -> bool:
        return self.kind == "python run"

    @property
    def needs(self) -> str | None:
        """The model folder that must be there, named by a first line `# needs: runs/demo/model`."""
        found = NEEDS.match(self.text)
        return found[1] if found else None


@dataclass(frozen=True)
class Command:
    """A block `sh run`, and the block `output` behind it: lines that its output must contain, in this order.

    Numbers may be others. `...` in a line is anything, and alone it is any lines.
    """

    block: Block
    output: Sequence[str] = ()

    def run(self, folder: Path, program: str = PROGRAM) -> None:
        """In a folder that keeps what the commands before it wrote; `program` is what `attendo` is there."""
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", self.block.text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=_environment(folder, program),
            check=False,
        )
        assert done.returncode == 0, f"{self.block.place} ends with exit code {done.returncode}:\n{done.stdout}"
        line = missing(self.output, done.stdout.splitlines())
        assert line is None, f"{self.block.place}: its output has no line like {line!r}:\n{done.stdout}"


def missing(expected: Sequence[str], found: Sequence[str]) -> str | None:
    """The first line that is expected and not found behind the ones before it."""
    rest = iter([NUMBER.sub("0", line.rstrip()) for line in found])
    for line in expected:
        parts = NUMBER.sub("0", line.rstrip()).split("...")
        pattern = re.compile(".*".join(map(re.escape, parts)))
        if line.strip() != "..." and not any(pattern.fullmatch(each) for each in rest):
            return line
    return None


def commands(found: Sequence[Block]) -> list[Command]:
    """The blocks that a shell runs, each with the output it declares."""
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
    """The level of each heading; a comment in a block of code is none."""
    levels, inside = [], False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        if not inside and (found := re.match(r"(#+) ", line)):
            levels.append(len(found[1]))
    return levels


def document(path: Path) -> list[Block]:
    return blocks(path.read_text("utf-8"), str(path.relative_to(ROOT)))


def _environment(folder: Path, program: str) -> dict[str, str]:
    """`attendo` is the one of this interpreter, also by the name $ATTENDO, with one thread; its lines come at once."""
    place = folder / ".bin" / "attendo"
    place.parent.mkdir(exist_ok=True)
    place.write_text(program)
    place.chmod(0o755)
    path = os.pathsep.join([str(place.parent), os.environ.get("PATH", "")])
    ours = {"PATH": path, "ATTENDO": str(place), "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **ours}
