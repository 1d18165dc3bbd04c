"""Runs explorer requests on the model's worker, between the decoding steps of other requests."""

from collections.abc import Callable, Generator, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response

from attendo.decode.networks import EditedNetwork
from attendo.errors import UsageError
from attendo.explore.saved_page import require_page
from attendo.model.config import ModelConfig
from attendo.model.edits import MaskEdit, NetworkEdits, Padding, WeightEdit
from attendo.model.head_scaling import HeadScales, ScaledHeads, sites
from attendo.serve.explorer.schemas import ModelTextRequest, PaddingEdit, ScaledHeadsRequest
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import JSON_OBJECT_CONTENT, MODEL_ERRORS, Responses, error_responses
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel
from attendo.text_model.backends import TorchBackend
from attendo.text_model.trace import merge_head_scales

MAX_PADDED_TOKENS = 256  # of the longer sentence of a batch
T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=ModelTextRequest)
CooperativeTask = Generator[None, None, T]  # yields to let other requests run, then returns a result
# Responses of explorer requests for the OpenAPI file.
PAGE_RESPONSES: Responses = {
    **error_responses(
        "ours",
        *MODEL_ERRORS,
        *("empty_text", "too_long", "block_too_large", "trace_too_large", "tree_too_large"),
        *("unknown_checkpoint", "bad_checkpoint"),
    ),
    200: {"content": JSON_OBJECT_CONTENT},
}


async def run_and_respond(
    gateway: ModelGateway,
    request: RequestT,
    compute: Callable[[TextModel, RequestT, ServeSettings], CooperativeTask[Any]],
    prepare: "Callable[[ServedModel, RequestT], TextModel] | None" = None,
) -> Response:
    """Run `compute` with the requested model and return its result as JSON. `prepare` checks and edits the model."""
    served = gateway.get_model(request.model)

    def respond() -> CooperativeTask[Response]:
        return json_response(
            (yield from compute((prepare or prepare_model)(served, request), request, gateway.settings))
        )

    return await run_on_worker(gateway, served, respond)


async def run_on_worker(gateway: ModelGateway, served: ServedModel, task: Callable[[], CooperativeTask[T]]) -> T:
    """Run `task` between the decoding steps of other requests, within the request deadline."""

    def iterate_task() -> Iterator[tuple[T] | None]:
        yield ((yield from task()),)

    async with aclosing(served.worker.iterate(iterate_task, gateway.deadline())) as items:
        ((result,),) = [item async for item in items if item is not None]
    return result


def prepare_model(served: ServedModel, request: ModelTextRequest) -> TextModel:
    """Return an autoregressive model at the requested checkpoint, with scaled heads and edits."""
    model = served.load_checkpoint(request.checkpoint)
    config = model.network.config  # the network raises for an exported model, which has none
    require_page(config)
    model.require_autoregressive("the explorer")
    if not isinstance(request, ScaledHeadsRequest):
        return model
    return edit_model(model, parse_heads(config, request.heads), parse_edits(model, request))


def edit_model(model: TextModel, heads: HeadScales, edits: NetworkEdits) -> TextModel:
    """Return the model with scaled heads and edits. Without any it is the model itself."""
    if not edits:
        return model.with_heads(heads) if heads else model
    assert isinstance(model.backend, TorchBackend)  # the network of exported models cannot be inspected
    network = EditedNetwork(model.network, ScaledHeads(merge_head_scales(model.backend.heads, heads)), edits)
    return TextModel(model.stored_model, backend=TorchBackend(network))


def find_edits(model: TextModel) -> NetworkEdits:
    """Return the edits of a model."""
    return model.backend.edits if isinstance(model.backend, TorchBackend) else NetworkEdits()


def find_heads(model: TextModel) -> HeadScales:
    """Return the scaled heads of a model."""
    return model.backend.heads if isinstance(model.backend, TorchBackend) else {}


def parse_edits(model: TextModel, request: ScaledHeadsRequest) -> NetworkEdits:
    """Check the edits of a request against the network, and count the padding."""
    found: dict[str, list[Any]] = {"off": [], "weight": [], "mask": [], "padding": []}
    for edit in request.edits:
        found[edit.kind].append(edit)
    edits = NetworkEdits(
        disabled=tuple(each.module for each in found["off"]),
        weights=tuple(WeightEdit(**each.model_dump(exclude={"kind"})) for each in found["weight"]),
        mask=tuple(MaskEdit(**each.model_dump(exclude={"kind"})) for each in found["mask"]),
        padding=_count_padding(model, request.text, found["padding"][-1]) if found["padding"] else Padding(0),
    )
    edits.check(model.network.config)
    return edits


def _count_padding(model: TextModel, text: str, edit: PaddingEdit) -> Padding:
    """Return the padding of a source in a batch with a longer one. A shorter one leaves it as it is."""
    if model.continues_text:
        raise UsageError("source_option_without_encoder", option="padding")
    tokenizer, positions = model.source_tokenizer, model.backend.max_sequence_length
    tokens = len(tokenizer.encode(edit.text)) + 1
    most = MAX_PADDED_TOKENS if positions is None else min(MAX_PADDED_TOKENS, positions + 1)
    if tokens > most:
        raise ApiError("too_long", side="source", tokens=tokens, most=most)
    return Padding(max(0, tokens - 1 - len(tokenizer.encode(text))), edit.masked)


def parse_heads(config: ModelConfig, heads: dict[str, dict[str, float]]) -> dict[str, dict[int, float]]:
    """Check sites and heads, and convert head names to integers."""
    known = sites(config)
    for site, scales in heads.items():
        if site not in known:
            raise ApiError("unknown_site", site=site[:100], known=", ".join(known))
        for head in scales:
            if not (head.isascii() and head.isdecimal() and len(head) < 6 and int(head) < config.num_heads):
                raise ApiError("unknown_head", head=head[:100], count=config.num_heads)
    return {site: {int(head): scale for head, scale in scales.items()} for site, scales in heads.items()}
