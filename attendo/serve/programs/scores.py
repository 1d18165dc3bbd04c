"""/score: how probable a model finds given answers."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.serve.errors import Refusal, answer
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
        responses={**refusals("ours", *OF_MODELS, "too_many_texts", "pair_too_long"), 200: {"model": ScoreReply}},
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
    found: list[ScoredTarget] = []
    async for tokens, scored in blocks:
        office.tally.tokens(served.name, tokens, 0)  # all of them are read
        found += scored
    return {"model": served.name, "scores": [score_told(each, asked.normalise, asked.tokens) for each in found]}


def _blocks(
    model: TextModel, pairs: Sequence[ScoredPair], settings: ServeSettings
) -> Iterator[tuple[int, list[ScoredTarget]]]:
    """In the thread of the model, a few pairs at a time, with how many tokens they have."""
    rest = iter(pairs)
    while block := list(islice(rest, AT_ONCE)):
        sources, targets = [pair.source for pair in block], [pair.target for pair in block]
        tokens = _tokens(model, sources, "source", settings.source_tokens)
        tokens += _tokens(model, targets, "target", settings.answer_tokens)
        yield tokens, model.score_tokens(sources, targets)


def _tokens(model: TextModel, texts: Sequence[str], side: str, most: int) -> int:
    """How many, with what the model puts before them. With eos none may be too long, also for learned positions."""
    tokenizer = model.source_tokenizer if side == "source" else model.target_tokenizer
    before = len(model.generation.source_prefix if side == "source" else model.generation.target_prefix)
    longest = model.runtime.longest
    most = most if longest is None else min(most, longest + 1)
    counts = [before + len(ids) for ids in tokenizer.encode_many(list(texts))]
    if (tokens := max(counts) + 1) > most:
        raise Refusal("pair_too_long", {"side": side}, side=side, tokens=tokens, most=most)
    return sum(counts)
