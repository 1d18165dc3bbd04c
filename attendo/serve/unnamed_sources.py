"""Which language a text is translated from where nobody names it."""

import asyncio
from collections.abc import Sequence

from attendo.errors import UsageError
from attendo.serve.detection import Detected, detect
from attendo.serve.errors import Refusal
from attendo.serve.office import Office
from attendo.serve.sentences import TextKind, TextPlan

_SURE = 0.8  # that a text is in a language which cannot be translated from: a short one is soon taken for another
_LOOKED_AT = 2_000  # characters of a text with tags


async def found_sources(office: Office, texts: Sequence[str], target: str, kind: TextKind) -> list[Detected]:
    """Of each text."""
    found: list[Detected] = []
    for text in texts:
        found.append(found_source(office, text, target, kind))
        await asyncio.sleep(0)  # fifty texts with tags take a while, and others are to be heard meanwhile
    return found


def found_source(office: Office, text: str, target: str, kind: TextKind = "text") -> Detected:
    """The likeliest of the languages that are translated into the target; the target where the text is in that itself.

    It is looked for among all that are served, and refused where it can only be another, or none of them: a model that
    reads what it never learned invents an answer.
    """
    sources = [source for source, targets in office.languages().items() if target in targets]
    if not sources:
        raise Refusal("unknown_language", language=target[:100])
    words = text if kind == "text" else " ".join(TextPlan(text[:_LOOKED_AT], kind).asked)
    found = _among(words, office, sources)
    best, source = found[0], next(each for each in found if each.language in sources)
    if best.language in sources or (best.confidence < _SURE and source.confidence > 0):
        if source.confidence == 0 and any(character.isalpha() for character in words):
            raise Refusal("no_language", languages=", ".join(each.language for each in found))
        return source
    if best.language != target:
        raise Refusal("no_such_pair", source=best.language, target=target)
    return best


def _among(words: str, office: Office, sources: Sequence[str]) -> list[Detected]:
    served = dict.fromkeys([*sources, *(code for pair in office.pairs() for code in pair)])
    try:
        return detect(words, [*served])
    except UsageError:  # some cannot be told apart without a package; those that matter perhaps can
        return detect(words, sources)
