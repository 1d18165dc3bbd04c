"""The pass that a request is about: of an autoregressive network, or the last one of a parallel network."""

from collections.abc import Collection
from dataclasses import dataclass

from attendo.model.parallel import ParallelTransformer
from attendo.serve.explorer.parallel_routes import trace_at_once
from attendo.serve.explorer.schemas import TargetRequest
from attendo.serve.explorer.search import InspectedPair, trace_fits
from attendo.serve.explorer.tasks import CooperativeTask, prepare_model
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel
from attendo.text_model.parallel_trace import trace_last_pass
from attendo.text_model.trace import Trace


@dataclass(frozen=True)
class TracedPass:
    """A trace, and what it leaves out of the request."""

    trace: Trace
    cut: bool  # the output ended at its maximum length
    unknown_in_target: tuple[str, ...] = ()


def prepare_any_model(served: ServedModel, request: TargetRequest) -> TextModel:
    """Return the model at the requested checkpoint, with edits. Only an autoregressive network can be edited."""
    if served.model.kind == "autoregressive":
        return prepare_model(served, request)
    model = served.load_checkpoint(request.checkpoint)
    if request.heads or request.edits:
        model.require_autoregressive("scaling heads")
    return model


def trace_pass(
    model: TextModel,
    request: TargetRequest,
    settings: ServeSettings,
    layer: int | None = None,
    inputs_of: Collection[str] = (),
) -> CooperativeTask[TracedPass]:
    network = model.network
    if isinstance(network, ParallelTransformer):
        yield
        found = trace_at_once(model, request, settings.max_inspected_tokens, request.target)
        return TracedPass(trace_last_pass(found, layer, inputs_of), found.cut)
    subject = yield from InspectedPair.build(model, request, settings)
    if layer is None and not trace_fits(network.config, subject):
        raise ApiError("trace_too_large", source=len(subject.source_ids), target=len(subject.read_ids))
    trace = subject.trace(layer=layer, inputs_of=inputs_of)
    return TracedPass(trace, subject.cut, subject.unknown_in_target)
