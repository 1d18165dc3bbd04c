"""The package as source text, for tests that read it instead of running it."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "attendo"
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]


@cache  # several rules read each file
def parsed(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text("utf-8"))


def dotted(node: ast.expr) -> str:
    """`torch.load` for the expression of that name; nothing for one that is not a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
