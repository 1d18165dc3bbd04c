"""Route /forward: a summary of one forward pass, for the drawing of the whole network."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.explore.forward_summary import summarize_forward
from attendo.serve.explorer.passes import prepare_any_model, trace_pass
from attendo.serve.explorer.schemas import TargetRequest
from attendo.serve.explorer.tasks import PAGE_RESPONSES, CooperativeTask, run_and_respond
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post("/forward", response_model=None, responses=PAGE_RESPONSES)
    async def forward(request: TargetRequest) -> Response:
        """Return norms of every token in every sub-layer, small attention maps, and the predictions."""
        return await run_and_respond(gateway, request, _compute_forward, prepare_any_model)

    return router


def _compute_forward(
    model: TextModel, request: TargetRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    found = yield from trace_pass(model, request, settings)
    return {
        **summarize_forward(found.trace),
        "cut": found.cut,
        "unknown": {"source": list(found.trace.unknown), "target": list(found.unknown_in_target)},
    }
