"""/score: how probable a model finds given answers."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.serve.errors import Refusal, answer
from attendo.serve.messages import SIDES
from attendo.serve.office import Office
from attendo.serve.openapi import OF_MODELS, refusals
from attendo.serve.programs.replies import ScoreReply, score_told
from attendo.serve.programs.requests import ScoredPair, ScoreRequest
from attendo.serve.settings import ServeSettings
from attendo.serve.strict_json import StrictRoute
from attendo.text_model import ScoredTarget, TextModel

AT_ONCE = 8  # pairs between two steps of others


def routes(office: Office) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["programs"])

    @router.post(
        "/score",
        response_model=None,
        responses={**refusals("ours", *OF_MODELS, "too_many_texts", "too_long"), 200: {"model": ScoreReply}},
    )
    async def score(asked: ScoreRequest) -> Response:
        """The log-probability of each target given its source, in the order of the pairs."""
        return answer(await _scores(office, asked))

    return router


async def _scores(office: Office, asked: ScoreRequest) -> dict[str, Any]:
    served = office.served(asked.model)
    for side in ("source", "target"):
        office.check([getattr(pair, side) for pair in asked.pairs])
    blocks = served.batcher.each(lambda: _blocks(served.model, asked.pairs, office.settings), office.deadline())
    found = [scored async for block in blocks for scored in block]
    return {"model": served.name, "scores": [score_told(each, asked.normalise, asked.tokens) for each in found]}


def _blocks(model: TextModel, pairs: Sequence[ScoredPair], settings: ServeSettings) -> Iterator[list[ScoredTarget]]:
    """In the thread of the model, a few pairs at a time."""
    rest = iter(pairs)
    while block := list(islice(rest, AT_ONCE)):
        sources, targets = [pair.source for pair in block], [pair.target for pair in block]
        _check_tokens(model, sources, "source", settings.source_tokens)
        _check_tokens(model, targets, "target", settings.answer_tokens)
        yield model.score_tokens(sources, targets)


def _check_tokens(model: TextModel, texts: Sequence[str], side: str, most: int) -> None:
    """With eos and what the model puts before them; learned positions have an end of their own."""
    tokenizer = model.source_tokenizer if side == "source" else model.target_tokenizer
    before = len(model.generation.source_prefix if side == "source" else model.generation.target_prefix)
    longest = model.runtime.longest
    most = most if longest is None else min(most, longest + 1)
    for ids in tokenizer.encode_many(list(texts)):
        if before + len(ids) + 1 > most:
            tokens = before + len(ids) + 1
            raise Refusal("too_long", {"side": side}, side=side, side_zh=SIDES[side], tokens=tokens, most=most)
