"""Where requests of the page meet a model: found, checked, computed in its worker, written as JSON there too."""

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from attendo.model.config import ModelConfig
from attendo.model.heads import sites
from attendo.serve.errors import Refusal, answer
from attendo.serve.explorer.requests import OfHeads, OfModel
from attendo.serve.settings import ServeSettings
from attendo.serve.shelf import Served, Shelf
from attendo.text_model import TextModel

Work = Callable[[TextModel], Any]


class Desk:
    """What all endpoints of the page share."""

    def __init__(self, shelf: Shelf, settings: ServeSettings) -> None:
        self.shelf, self.settings = shelf, settings

    async def answer(self, asked: OfModel, work: Work) -> Response:
        """What comes of `work`, done with the model that is asked for."""
        served = self.shelf.named(asked.model)
        return await served.worker.run(lambda: answer(work(model_for(served, asked))))


def model_for(served: Served, asked: OfModel) -> TextModel:
    """At its checkpoint, with its heads scaled."""
    model = served.at(asked.checkpoint)
    if isinstance(asked, OfHeads) and asked.heads:
        return model.with_heads(checked_heads(model.network.config, asked.heads))
    return model


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
