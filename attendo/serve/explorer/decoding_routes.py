"""Routes /answer, /steps, /distribution and /tree: hypotheses, decoding steps and the search tree."""

import base64
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.decode.ranking import Ranking
from attendo.decode.search_tree import SearchNode, SearchTree
from attendo.serve.explorer.inspection_routes import AttentionMaps, check_map_bytes, describe_attention
from attendo.serve.explorer.parallel_routes import answer_at_once
from attendo.serve.explorer.pieces import describe_predictions
from attendo.serve.explorer.schemas import AnswerRequest, DistributionRequest, ScaledHeadsRequest, StepsRequest
from attendo.serve.explorer.search import ExplorerSearch, InspectedPair, find_source_tokenizer
from attendo.serve.explorer.tasks import (
    PAGE_RESPONSES,
    CooperativeTask,
    prepare_model,
    run_and_respond,
)
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import EVENT_STREAM_CONTENT, JSON_OBJECT_CONTENT
from attendo.serve.http.sse import Event, Events, await_first, event_stream
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.settings import ServeSettings
from attendo.text import EOS
from attendo.text_model import TextModel
from attendo.text_model.results import Hypothesis

# Source tokens. Longer sources get no extra alternatives, because each one is a separate search.
MAX_SOURCE_FOR_ALTERNATIVES = 128
MAX_NODES = 10_000
SURVIVING_FATES = ("goes on", "finished", "cut")
REASONS = {
    "goes on": "kept",
    "finished": "ended",
    "cut": "limit",
    "not among the best W": "score",
    "ends, but not among the best W": "score_ended",
    "pushed out by better finished ones": "pushed_out",
    "forbidden": "forbidden",
    "not chosen": "not_chosen",
    "beyond the limit": "beyond_limit",
    "left, as enough have finished": "enough",
    # The page sends no constraints. These fates are mapped to reasons that the page can display.
    "ends, but phrases are missing": "forbidden",
    "its bank is full": "not_chosen",
    "no room left for the phrases": "not_chosen",
}


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post(
        "/answer",
        response_model=None,
        responses={**PAGE_RESPONSES, 200: {"content": JSON_OBJECT_CONTENT | EVENT_STREAM_CONTENT}},
    )
    async def answer_whole(request: AnswerRequest) -> Response:
        """Return the hypotheses for a text and alternative texts. `stream` sends server-sent events."""
        events = _stream_events(gateway, request)
        if request.stream:
            # Invalid requests are rejected before the stream starts.
            return event_stream(await await_first(events))
        async with aclosing(events):
            (response,) = [content async for name, content in events if name == "done"]
        return json_response(response)

    @router.post("/steps", response_model=None, responses=PAGE_RESPONSES)
    async def steps(request: StepsRequest) -> Response:
        """Return the decoding steps of the output after a forced prefix."""
        return await run_and_respond(gateway, request, _compute_steps)

    @router.post("/distribution", response_model=None, responses=PAGE_RESPONSES)
    async def distribution(request: DistributionRequest) -> Response:
        """Return the log-probability of every token after a forced prefix, as the sampling filters receive them."""
        return await run_and_respond(gateway, request, _compute_distribution)

    @router.post("/tree", response_model=None, responses=PAGE_RESPONSES)
    async def tree(request: ScaledHeadsRequest) -> Response:
        """Return the search tree: every hypothesis considered and its fate."""
        return await run_and_respond(gateway, request, _compute_tree)

    return router


async def _stream_events(gateway: ModelGateway, request: AnswerRequest) -> Events:
    """Yield `text` events with the new text of the best hypothesis, then `done` with the response."""
    served, text = gateway.get_model(request.model), ""
    items = served.worker.iterate(lambda: _generate_events(served, request, gateway.settings), gateway.deadline())
    async with aclosing(items) as parts:
        async for name, content in parts:
            if name == "done":
                yield name, content
            elif content:  # an empty item only lets other requests run
                text += content
                yield "text", {"text": content, "whole": text}


def _generate_events(served: ServedModel, request: AnswerRequest, settings: ServeSettings) -> Iterator[Event]:
    """Yield an event per token. Runs in a thread of the model's worker."""
    model = served.load_checkpoint(request.checkpoint)
    if model.kind != "autoregressive":
        yield from answer_at_once(model, request, settings)
        return
    model = prepare_model(served, request)
    search = ExplorerSearch(model, request, settings.max_source_tokens, settings.max_output_tokens)
    for new in search.stream(search.resolve_prefix(request.prefix or ())):
        yield "text", new
    yield "text", ""  # other readers of this search go on before the alternatives, which are a search of their own
    yield "done", _response_body(search, search.hypotheses, request)


def _response_body(search: ExplorerSearch, hypotheses: Sequence[Hypothesis], request: AnswerRequest) -> dict[str, Any]:
    return {
        "source": {"pieces": search.source_pieces},
        "unknown": find_source_tokenizer(search.model).unknown(request.text),
        "hypotheses": [_hypothesis_body(search, each) for each in hypotheses],
        "alternatives": _alternatives(search, hypotheses, request),
    }


def _hypothesis_body(search: ExplorerSearch, hypothesis: Hypothesis) -> dict[str, Any]:
    parts = hypothesis.parts
    ids = (*hypothesis.ids, EOS) if hypothesis.has_end else hypothesis.ids
    pieces = search.model.target_tokenizer.pieces(ids)
    each = zip(pieces, ids, search.token_log_probabilities(hypothesis), strict=True)
    return {
        "text": hypothesis.text,
        "pieces": pieces,
        "tokens": [{"piece": piece, "id": token, "log_probability": value} for piece, token, value in each],
        "log_probability": hypothesis.log_probability,
        "score": hypothesis.score,
        "parts": {
            "length_term": parts.divisor,
            "reward": parts.reward,
            "penalties": parts.penalty,
            "coverage": parts.coverage,
            "tokens": parts.tokens,
        },
        "cut": hypothesis.cut,
    }


def _alternatives(search: ExplorerSearch, hypotheses: Sequence[Hypothesis], request: AnswerRequest) -> list[str]:
    """Return texts other than the best: other hypotheses, then outputs that begin with other words."""
    texts = list(dict.fromkeys(each.text for each in hypotheses))
    is_short = len(search.source) <= MAX_SOURCE_FOR_ALTERNATIVES and not search.model.continues_text
    if len(texts) <= request.alternatives and not request.prefix and is_short:
        # Always greedy: beam search for every alternative is too expensive.
        others = search.model.alternatives(
            request.text,
            count=request.alternatives,
            beam=1,
            beam_groups=1,
            sample=False,
            mbr="none",
            coverage_penalty=0.0,
        )
        texts = list(dict.fromkeys([*texts, *(each.result.text for each in others)]))
    return texts[1 : request.alternatives + 1]


def _compute_steps(model: TextModel, request: StepsRequest, settings: ServeSettings) -> CooperativeTask[dict[str, Any]]:
    """Decode after the prefix, and return the most probable tokens at each step."""
    search = ExplorerSearch(model, request, settings.max_inspected_tokens)
    prefix = search.resolve_prefix(request.prefix)
    best = (yield from search.generate(prefix))[0]
    subject = search.inspect(best)
    predicted, first = subject.predicted_ids, subject.first_row
    begin = len(search.target_prefix)
    labels, forced = model.target_tokenizer.pieces(subject.read_ids), begin + len(prefix)
    logits = search.predict(predicted)
    steps = [
        {
            "read": labels[: first + t + 1],
            "chosen": each["piece"],
            "chosen_id": each["id"],
            "forced": t < forced,
            "probability": each["probability"],
            "log_probability": each["log_probability"],
            "entropy": each["entropy"],
            "eos": each["eos"],
            "cache": first + t + 1,  # KV cache length in tokens
            "top": each["top"],
        }
        for t, each in enumerate(describe_predictions(logits, predicted, model.target_tokenizer))
    ]
    return {
        "source": {"pieces": search.source_pieces},
        "first": first,
        "steps": steps,
        "request_id": search.request_id([each for each in prefix if each != EOS]),
        "begin": begin,  # number of tokens that the model's settings require
        "text": best.text,
        "ended": best.has_end,
        "log_probability": sum(each["log_probability"] for each in steps[begin:]),
        "attention": _describe_maps(subject, settings) if request.attention else None,
    }


def _describe_maps(subject: InspectedPair, settings: ServeSettings) -> dict[str, Any] | None:
    """Return the attention maps of a hypothesis, or None if they are too large."""
    try:
        check_map_bytes(subject.model.network.config, subject, None, settings.max_map_bytes)
    except ApiError:
        return None
    return describe_attention(subject, AttentionMaps(subject, masked=True), None)


def _compute_distribution(
    model: TextModel, request: DistributionRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    greedy = request.model_copy(update={"decoder": request.decoder.model_copy(update={"kind": "greedy"})})
    search = ExplorerSearch(model, greedy, settings.max_inspected_tokens)
    log_probs = yield from search.next_log_probs(search.resolve_prefix(request.prefix))
    numbers = log_probs.float().cpu().numpy().astype("<f4")
    return {"log_probabilities": base64.b64encode(numbers.tobytes()).decode("ascii")}


def _compute_tree(
    model: TextModel, request: ScaledHeadsRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    """Describe the search trees. Node ids are unique across the groups of a diverse beam."""
    search = ExplorerSearch(model, request, settings.max_inspected_tokens)
    trees = yield from search.record_trees()
    nodes = sum(len(tree.nodes) for tree in trees)
    if nodes > MAX_NODES:
        raise ApiError("tree_too_large", nodes=nodes, most=MAX_NODES)
    steps: list[list[dict[str, Any]]] = []
    ranking: list[dict[str, Any]] = []
    first = 0
    for tree in trees:
        shown = [node for node in tree.nodes if node.step > search.given]
        descriptions = [_describe_node(tree, node, first, search) for node in shown]
        for node, each in zip(shown, descriptions, strict=True):
            while len(steps) < node.step - search.given:
                steps.append([])
            steps[node.step - search.given - 1].append(each)
            if node.fate in ("finished", "cut"):
                ranking.append({name: each[name] for name in ("id", "text", "log_probability", "score", "reason")})
        first += len(tree.nodes)
    # Finished hypotheses rank above cut ones, as in the output.
    ranking.sort(key=lambda each: (each["reason"] == "limit", -each["score"]))
    return {"steps": steps, "ranking": ranking, "width": sum(tree.width for tree in trees)}


def _describe_node(tree: SearchTree, node: SearchNode, first_id: int, search: ExplorerSearch) -> dict[str, Any]:
    tokenizer = search.model.target_tokenizer
    ids = tree.ids(node)[search.given :]
    is_first = node.parent is None or tree.nodes[node.parent].step <= search.given
    reason = REASONS[node.fate]
    if reason == "forbidden" and _repeats(ids, search.config.no_repeat_ngram_size):
        reason = "ngram"
    return {
        "id": first_id + node.number,
        "parent": None if is_first or node.parent is None else first_id + node.parent,
        "group": tree.group,
        "piece": "" if node.id is None else tokenizer.pieces([node.id])[0],
        "token": node.id,
        "token_log_probability": node.log_probability,
        "log_probability": _sum_log_probabilities(tree, node, search.given),
        "value": node.value - _find_given_value(tree, node, search.given),
        "score": _score_so_far(tree, node, search) if node.score is None or search.given else node.score,
        "kept": node.fate in SURVIVING_FATES,
        "reason": reason,
        "text": tokenizer.decode(ids),
    }


def _sum_log_probabilities(tree: SearchTree, node: SearchNode, given: int) -> float:
    """Sum the log-probabilities of the hypothesis after its prompt, without the penalties in `value`."""
    total = 0.0 if node.id is None else node.log_probability
    while node.parent is not None and tree.nodes[node.parent].step > given:
        node = tree.nodes[node.parent]
        total += node.log_probability
    return total


def _find_given_value(tree: SearchTree, node: SearchNode, given: int) -> float:
    """Return the part of the value of a hypothesis that is that of its prompt."""
    while node.step > given and node.parent is not None:
        node = tree.nodes[node.parent]
    return node.value if 0 < node.step <= given else 0.0


def _score_so_far(tree: SearchTree, node: SearchNode, search: ExplorerSearch) -> float:
    """Return the score of the hypothesis if it ended at this node."""
    tokens = len(tree.ids(node)) - search.given
    divisor, reward = Ranking.from_config(search.config).terms(tokens)
    return (node.value - _find_given_value(tree, node, search.given)) / divisor + reward


def _repeats(ids: list[int], size: int) -> bool:
    """Return whether the last `size` tokens occur earlier in `ids`."""
    return 0 < size <= len(ids) and any(ids[n : n + size] == ids[-size:] for n in range(len(ids) - size))
