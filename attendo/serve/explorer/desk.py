"""Where requests of the page meet a model: found, checked, computed in its thread, written as JSON there too."""

from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response

from attendo.model.config import ModelConfig
from attendo.model.heads import sites
from attendo.serve.errors import Refusal, answer
from attendo.serve.explorer.requests import OfHeads, OfModel
from attendo.serve.explorer.searching import Turns
from attendo.serve.office import Office
from attendo.serve.openapi import OF_MODELS
from attendo.serve.shelf import Served
from attendo.text_model import TextModel

# Why a request of the page may be refused.
OF_PAGE = (
    *OF_MODELS,
    "empty_text",
    "no_source",
    "too_long",
    "block_too_large",
    "trace_too_large",
    "tree_too_large",
    "unknown_checkpoint",
    "bad_checkpoint",
)

T = TypeVar("T")
Work = Callable[[TextModel], Turns[Any]]


async def answered(office: Office, asked: OfModel, work: Work) -> Response:
    """What comes of `work`, done with the model that is asked for."""
    served = office.served(asked.model)

    def written() -> Turns[Response]:
        return answer((yield from work(model_for(served, asked))))

    return await computed(office, served, written)


async def computed(office: Office, served: Served, work: Callable[[], Turns[T]]) -> T:
    """What comes of `work`, done between the steps of whoever else asks the model, in the time that a request has."""

    def turns() -> Iterator[tuple[T] | None]:
        yield ((yield from work()),)

    async with aclosing(served.batcher.each(turns, office.deadline())) as items:
        ((found,),) = [item async for item in items if item is not None]
    return found


def model_for(served: Served, asked: OfModel) -> TextModel:
    """At its checkpoint, with its heads scaled."""
    model = served.at(asked.checkpoint)
    config = model.network.config  # an exported model has no network to look into, and says so here
    if config.decoder_only:
        raise Refusal("no_source", model=served.name)
    heads = checked_heads(config, asked.heads) if isinstance(asked, OfHeads) else {}
    return model.with_heads(heads) if heads else model


def checked_heads(config: ModelConfig, heads: dict[str, dict[str, float]]) -> dict[str, dict[int, float]]:
    """With numbers for names, as the library has them."""
    known = sites(config)
    for site, scales in heads.items():
        if site not in known:
            raise Refusal("unknown_site", site=site[:100], known=", ".join(known))
        for head in scales:
            if not (head.isascii() and head.isdecimal() and len(head) < 6 and int(head) < config.num_heads):
                raise Refusal("unknown_head", head=head[:100], count=config.num_heads)
    return {site: {int(head): scale for head, scale in scales.items()} for site, scales in heads.items()}
