"""A whole document translated a few sentences at a time, so that those who wait for an answer are not held up."""

import asyncio
from collections.abc import Sequence

from attendo.serve.documents.formats import Draft
from attendo.serve.errors import Refusal
from attendo.serve.linking import Answer, answers_of
from attendo.serve.office import Office
from attendo.serve.sentences import TextPlan
from attendo.serve.shelf import Served

CHUNK = 8  # sentences
_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds, each time that there is no room for a chunk


async def translated(office: Office, served: Served, draft: Draft) -> bytes:
    """The document in the other language, encoded as it was."""
    # Looking for tags in a large document takes a while, in which others are to be answered.
    plan = await asyncio.to_thread(TextPlan, draft.text, draft.kind)
    answers: list[Answer] = []
    for at in range(0, len(plan.asked), CHUNK):
        answers += await _answered(office, served, plan.asked[at : at + CHUNK], draft.kind != "text")
    return draft.written(await asyncio.to_thread(plan.written, answers))


async def _answered(office: Office, served: Served, sentences: Sequence[str], linked: bool) -> list[Answer]:
    """A document can wait: it asks again where others are first."""
    for pause in _PAUSES:
        try:
            return [each[0] for each in await answers_of(office, served, sentences, linked)]
        except Refusal as refusal:
            if refusal.code not in ("busy", "too_late"):
                raise
        await asyncio.sleep(pause)
    return [each[0] for each in await answers_of(office, served, sentences, linked)]
