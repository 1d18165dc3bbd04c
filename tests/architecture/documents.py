"""The documents of the project, taken apart into headings and blocks of code."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")])
NEEDS = re.compile(r"# needs: (\S+)")


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
