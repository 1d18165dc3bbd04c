"""Long texts cut at the ends of their sentences, and what became of the sentences joined again."""

import re
from collections.abc import Callable, Sequence

from attendo.errors import UsageError
from attendo.metrics.scripts import SCRIPTS_WITHOUT_SPACES, script_of
from attendo.text_model.faults import shown

_WIDE_ENDS = "。！？｡"  # need no space behind them
_ENDS = ".!?…؟।॥։۔"
_CLOSING = "\"'”’»)\\]）」』》】"
# A sentence ends behind its signs and what closes with them: at once, or where a space follows.
_END = re.compile(rf"[{_WIDE_ENDS}{_ENDS}]+[{_CLOSING}]*")
# Behind these a point is no end: a single letter, and what is written short in several languages.
_SHORT = re.compile(
    r"(?:^|[\s(\[\"'])"
    r"(?:\w|Mr|Mrs|Ms|Dr|Prof|St|vs|No|Nr|etc|ca|bzw|usw|Hr|Fr|Sr|Sra|Mme|Mlle|p\.ex|e\.g|i\.e|z\.B|d\.h)\.$"
)


_SHORT_CHARACTERS = 8  # that any of them takes, with what stands before it


def sentences(text: str) -> list[str]:
    """In order, without the white space around them."""
    found: list[str] = []
    begin = 0
    for end in _END.finditer(text):
        if _ends(text, end):
            found.append(text[begin : end.end()])
            begin = end.end()
    return [each.strip() for each in (*found, text[begin:]) if each.strip()]


def fitting(text: str, most: int, tokens: Callable[[str], int]) -> list[str]:
    """Its sentences. One that has more than `most` tokens is a `UsageError` that shows it."""
    found = sentences(text)
    for sentence in found:
        if (count := tokens(sentence)) > most:
            raise UsageError(
                f"the sentence {shown(sentence)} alone has {count} tokens; the model reads at most {most}: "
                "end sentences with . ! or ?, or shorten it"
            )
    return found


def joined(texts: Sequence[str]) -> str:
    """With a space between them, but not in scripts that have none, unless the texts have been cut into words."""
    parts, spaced = list[str](), False
    for text in filter(None, texts):
        spaced = spaced or " " in text
        if parts and (spaced or not _without_spaces(parts[-1][-1])):
            parts.append(" ")
            spaced = True
        parts.append(text)
    return "".join(parts)


def _ends(text: str, signs: re.Match[str]) -> bool:
    if any(sign in _WIDE_ENDS for sign in signs[0]):
        return True
    before = text[max(0, signs.end() - _SHORT_CHARACTERS) : signs.end()]
    return text[signs.end() : signs.end() + 1].isspace() and not _SHORT.search(before)


def _without_spaces(character: str) -> bool:
    return (
        character in _WIDE_ENDS or character in "，、；：」』》】）" or script_of(character) in SCRIPTS_WITHOUT_SPACES
    )
