"""The text of every message, in one file per language. Run this file to write both again."""

from pathlib import Path

import pytest

from attendo.messages import MESSAGES

FOLDER = Path(__file__).parent


def list_messages(language: str) -> str:
    return "".join(f"{code}: {getattr(MESSAGES[code], language)}\n" for code in sorted(MESSAGES))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_messages_match_the_snapshot(language: str) -> None:
    assert list_messages(language) == (FOLDER / f"messages.{language}.txt").read_text("utf-8")


if __name__ == "__main__":
    for each in ("en", "zh"):
        (FOLDER / f"messages.{each}.txt").write_text(list_messages(each), "utf-8", newline="\n")
