"""The main script of a text, which determines its word boundaries."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

Script = Literal["spaced", "han", "kana", "hangul", "unspaced"]

# First and last code point of blocks with letters.
_BLOCKS: tuple[tuple[int, int, Script], ...] = (
    (0x0E00, 0x0EFF, "unspaced"),  # Thai, Lao
    (0x1000, 0x109F, "unspaced"),  # Burmese
    (0x1100, 0x11FF, "hangul"),
    (0x1780, 0x17FF, "unspaced"),  # Khmer
    (0x3040, 0x30FF, "kana"),
    (0x3130, 0x318F, "hangul"),
    (0x31F0, 0x31FF, "kana"),
    (0x3400, 0x9FFF, "han"),
    (0xAC00, 0xD7FF, "hangul"),
    (0xF900, 0xFAFF, "han"),
    (0xFF66, 0xFF9F, "kana"),
    (0x20000, 0x3FFFF, "han"),
)
SCRIPTS_WITHOUT_SPACES: tuple[Script, ...] = ("han", "kana", "unspaced")  # the smallest countable unit is a character
_KANA_SHARE = 0.1  # Japanese mixes both; a Chinese text with a Japanese name has less kana


def main_script(texts: Iterable[str]) -> Script:
    """Return the script of more than half of the letters, else `spaced`.

    Han with at least 10% kana is `kana`. `unspaced` is Thai, Lao, Burmese and Khmer.
    """
    letters = Counter(character for text in texts for character in text if character.isalpha())
    counts: Counter[Script] = Counter()
    for letter, count in letters.items():
        counts[find_script(letter)] += count
    east = counts["han"] + counts["kana"]
    if counts["kana"] >= _KANA_SHARE * east:
        counts["kana"], counts["han"] = east, 0
    script, most = max(counts.items(), key=lambda each: each[1], default=("spaced", 0))
    return script if 2 * most > counts.total() else "spaced"


def find_script(letter: str) -> Script:
    """Return the script of a letter by its Unicode block. Han is `han` in Japanese too."""
    number = ord(letter)
    return next((script for first, last, script in _BLOCKS if first <= number <= last), "spaced")


def is_unspaced(letter: str) -> bool:
    """Return whether the script of a letter has no spaces between words."""
    return find_script(letter) in SCRIPTS_WITHOUT_SPACES


def unspaced_class() -> str:
    """Return the ranges of a regular expression's character class for `is_unspaced`."""
    return "".join(f"{chr(first)}-{chr(last)}" for first, last, script in _BLOCKS if script in SCRIPTS_WITHOUT_SPACES)
