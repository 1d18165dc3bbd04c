"""Cuts a function, a class or a method out of the lesson's code, for Chinese pages with Chinese comments."""

import ast
import io
import re
import textwrap
import tokenize
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHAPES = re.compile(r"(\[[^\]]*\](?: -> )?)+")  # such as [B, T] -> [T]


def listing(file: str, name: str, language: str = "en") -> str:
    """Return the source of `Function`, `Class` or `Class.method`. Chinese pages need a text for each comment."""
    source = (HERE / "code" / file).read_text("utf-8")
    node: Any = ast.parse(source)
    for part in name.split("."):
        node = next(each for each in node.body if getattr(each, "name", None) == part)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    found = textwrap.dedent("\n".join(source.splitlines()[first - 1 : node.end_lineno]))
    return found if language == "en" else with_chinese_comments(found)


def with_chinese_comments(source: str) -> str:
    lines = source.splitlines()
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type != tokenize.COMMENT and not token.string.startswith('"""'):
            continue
        (row, start), (last, end) = token.start, token.end
        if token.type == tokenize.COMMENT:
            said = f"# {chinese(token.string.removeprefix('#').strip())}"
        else:
            said = f'"""{chinese(token.string[3:-3])}"""'.replace("\n", "\n" + " " * start).replace(
                " " * start + "\n", "\n"
            )
        lines[row - 1 : last] = [lines[row - 1][:start] + said + lines[last - 1][end:]]
    return "\n".join(lines)


def chinese(english: str) -> str:
    """Look up a comment or a docstring, whose lines are joined."""
    words = " ".join(english.split())
    return words if SHAPES.fullmatch(words) else comments()[words]


@cache
def comments() -> dict[str, str]:
    return tomllib.loads((HERE / "comments.zh.toml").read_text("utf-8"))
