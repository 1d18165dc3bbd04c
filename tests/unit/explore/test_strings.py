"""Every string of strings.toml is used by a module that reads its table."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attendo
from attendo.explore.i18n import read_strings

# What a module that reads a table contains. All of `columns` is shown.
READERS = {
    "trace": "trace_string(",
    "parallel": "parallel_string(",
    "heads": "report_string(",
    "maps": 'localise("maps"',
    "axes": "MapAxisLabels",
    "fonts": 'localise("fonts"',
}


def find_names(source: str) -> Iterator[str]:
    """Yield the strings of a module as patterns. A replaced part of an f-string matches any name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [re.escape(each.value) if isinstance(each, ast.Constant) else r"\w+" for each in node.values]
            if any(part != r"\w+" for part in parts):
                yield "".join(parts)


def test_every_string_is_used() -> None:
    sources = [path.read_text("utf-8") for path in Path(attendo.__file__).parent.rglob("*.py")]
    tables = read_strings()
    assert set(tables) == {*READERS, "columns"}
    unused = {"heads.agreement"}  # the name of an alignment metric
    for table, reader in READERS.items():
        readers = [each for each in sources if reader in each]
        pattern = re.compile("|".join(name for source in readers for name in find_names(source)))
        unused |= {f"{table}.{key}" for key in tables[table] if not pattern.fullmatch(key)}
    assert sorted(unused) == ["heads.agreement"]
