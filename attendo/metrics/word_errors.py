"""The edit distance between two lines of words."""

from collections.abc import Sequence


def words(text: str, characters: bool) -> Sequence[str]:
    """What stands between white space; or, in a script that does not set words apart, every character."""
    return "".join(text.split()) if characters else text.split()


def edit_distance(output: Sequence[str], reference: Sequence[str]) -> int:
    """The fewest words to put in, take out or change until one is the other.

    Neighbours in the table of distances differ by at most one, so a column fits into two whole numbers, one bit a word:
    where it rises on the way down, and where it falls. A step to the next column is a dozen operations on them,
    however long the lines are (Myers 1999, in the form of Hyyrö 2003).
    """
    if not output:
        return len(reference)
    places: dict[str, int] = {}
    for n, word in enumerate(output):
        places[word] = places.get(word, 0) | 1 << n
    every, last = (1 << len(output)) - 1, 1 << len(output) - 1
    rises, falls, distance = every, 0, len(output)
    for word in reference:
        equal = places.get(word, 0)
        # Bit n: the diagonal step to word n costs nothing. The sum carries a match along the rises above it.
        free = (((equal & rises) + rises) ^ rises) | equal | falls
        rises_right = falls | (every & ~(free | rises))
        falls_right = free & rises
        distance += bool(rises_right & last) - bool(falls_right & last)
        rises_right = (rises_right << 1 | 1) & every
        falls_right = (falls_right << 1) & every
        rises, falls = falls_right | (every & ~(free | rises_right)), free & rises_right
    return distance
