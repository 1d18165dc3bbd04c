"""Route /check: the faults of an output, with their places and their evidence in both languages."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.errors import to_text
from attendo.metrics.faults import Fault
from attendo.serve.explorer.schemas import CheckRequest
from attendo.serve.explorer.search import encode_within_limit
from attendo.serve.explorer.tasks import PAGE_RESPONSES, CooperativeTask, run_on_worker
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import json_response
from attendo.serve.http.openapi import JSON_OBJECT_CONTENT
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel
from attendo.text_model.inputs import ModelSymbols, encode_symbols


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post("/check", response_model=None, responses={**PAGE_RESPONSES, 200: {"content": JSON_OBJECT_CONTENT}})
    async def check(request: CheckRequest) -> Response:
        """Return the faults of an output, the worst first, and the confidence."""
        served = gateway.get_model(request.model)

        def respond() -> CooperativeTask[Response]:
            yield
            model = served.load_checkpoint(request.checkpoint)
            return json_response(_check(model, request, gateway.settings))

        return await run_on_worker(gateway, served, respond)

    return router


def _check(model: TextModel, request: CheckRequest, settings: ServeSettings) -> dict[str, Any]:
    symbols = encode_symbols(model.generation, model.source_tokenizer, model.target_tokenizer)
    encode_within_limit(request.text, model.source_tokenizer, symbols, settings.max_inspected_tokens)
    begin = ModelSymbols(symbols.begin)
    encode_within_limit(request.target, model.target_tokenizer, begin, settings.max_inspected_tokens, "target")
    (report,) = model.check(
        [request.text], [request.target], check_detached=model.has_likelihood, truncated=[request.cut]
    )
    return {
        "faults": [_fault_to_dict(each) for each in report.faults],
        "confidence": report.confidence,
        "calibrated": bool(model.fault_limits.scores),
        "detached_checked": model.has_likelihood,
    }


def _fault_to_dict(fault: Fault) -> dict[str, Any]:
    return {**fault.to_dict(), "hint": fault.is_hint, "evidence_zh": to_text(fault.evidence, "zh")}
