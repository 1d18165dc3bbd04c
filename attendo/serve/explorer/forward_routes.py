"""Route /forward: a summary of one forward pass, for the drawing of the whole network."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.explore.forward_summary import summarize_forward
from attendo.serve.explorer.schemas import TargetRequest
from attendo.serve.explorer.search import InspectedPair, trace_fits
from attendo.serve.explorer.tasks import PAGE_RESPONSES, CooperativeTask, run_and_respond
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post("/forward", response_model=None, responses=PAGE_RESPONSES)
    async def forward(request: TargetRequest) -> Response:
        """Return norms of every token in every sub-layer, small attention maps, and the predictions."""
        return await run_and_respond(gateway, request, _compute_forward)

    return router


def _compute_forward(
    model: TextModel, request: TargetRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    subject = yield from InspectedPair.build(model, request, settings)
    if not trace_fits(model.network.config, subject):
        raise ApiError("trace_too_large", source=len(subject.source_ids), target=len(subject.read_ids))
    return {
        **summarize_forward(subject.trace()),
        "cut": subject.cut,
        "unknown": {"source": list(subject.unknown), "target": list(subject.unknown_in_target)},
    }
