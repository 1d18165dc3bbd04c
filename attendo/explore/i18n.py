"""The bilingual strings of strings.toml."""

import tomllib
from functools import cache, partial
from pathlib import Path

from attendo.messages import Language


@cache
def read_strings() -> dict[str, dict[str, dict[Language, str]]]:
    """Return the strings by table, key and language."""
    return tomllib.loads(Path(__file__).with_name("strings.toml").read_text("utf-8"))


def localise(table: str, key: str, language: Language, *values: object) -> str:
    """Return the string of a key in a language, formatted with the values."""
    return read_strings()[table][key][language].format(*values)


trace_string, report_string = partial(localise, "trace"), partial(localise, "heads")
