"""Routes /representations and /embeddings: what the vectors of the layers, tokens and positions hold."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from fastapi import APIRouter
from jaxtyping import Float
from starlette.responses import Response
from torch import Tensor
from torch.nn.functional import normalize

from attendo.explore.number_block import NumberBlock
from attendo.model.transformer import Embedding, Transformer
from attendo.serve.explorer.schemas import EmbeddingRequest, RepresentationRequest
from attendo.serve.explorer.search import ExplorerSearch, InspectedPair, trace_fits
from attendo.serve.explorer.tasks import PAGE_RESPONSES, CooperativeTask, run_and_respond
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text import Tokenizer
from attendo.text.tokenizer import end_source
from attendo.text_model import TextModel
from attendo.text_model.trace import Trace

MAX_POINTS = 1_500  # tokens of the map of embeddings: the first of the vocabulary, which are the most frequent
NEIGHBOURS = 6
PROMOTED = 5  # tokens that the vector of a feed-forward unit promotes most


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post("/representations", response_model=None, responses=PAGE_RESPONSES)
    async def representations(request: RepresentationRequest) -> Response:
        """Return the logit lens, the similarity of tokens in every layer, and the strongest feed-forward units."""
        return await run_and_respond(gateway, request, _compute_representations)

    @router.post("/embeddings", response_model=None, responses=PAGE_RESPONSES)
    async def embeddings(request: EmbeddingRequest) -> Response:
        """Return position vectors and their similarity, a map of the token embeddings, and nearest tokens."""
        return await run_and_respond(gateway, request, _compute_embeddings)

    return router


def _compute_representations(
    model: TextModel, request: RepresentationRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    subject = yield from InspectedPair.build(model, request, settings)
    if not trace_fits(model.network.config, subject):
        raise ApiError("trace_too_large", source=len(subject.source_ids), target=len(subject.read_ids))
    network, trace = model.network, subject.trace()
    stacks = ("decoder",) if network.config.decoder_only else ("encoder", "decoder")
    streams = {stack: residual_stream(network, trace, stack) for stack in stacks}
    block = NumberBlock()
    lens: list[Any] = []
    for states in streams["decoder"]:
        lens.append(_describe_lens(network, states[trace.first_row :], trace, request.top))
        yield
    return {
        "source": {"pieces": list(trace.source_pieces)},
        "target": {"read": list(trace.read_pieces), "predicted": list(trace.target_pieces)},
        "first": trace.first_row,
        "unknown": list(subject.unknown),
        "text": subject.text,
        "cut": subject.cut,
        "lens": lens,
        "similarity": {
            stack: block.add(torch.stack([_cosines(each) for each in states])) for stack, states in streams.items()
        },
        "norms": {stack: states.norm(dim=-1).tolist() for stack, states in streams.items()},
        "units": {stack: list(_describe_units(network, trace, stack, request)) for stack in streams},
        "block": block.encode(),
    }


def residual_stream(network: Transformer, trace: Trace, stack: str) -> Float[Tensor, "L T D"]:
    """Return the input of the first layer and the output of every layer, before the final norm."""
    first = "source.input" if stack == "encoder" else "target.input"
    end = "residual" if network.config.norm == "pre" else "norm"
    layers = len(network.encoder if stack == "encoder" else network.decoder)
    names = [first, *(f"{stack}.{n}.feed_forward.{end}" for n in range(layers))]
    return torch.stack([trace[name] for name in names if name in trace])


@torch.inference_mode()
def project_to_vocabulary(network: Transformer, states: Float[Tensor, "T D"]) -> Float[Tensor, "T V"]:
    """Return logits of a residual stream: the final norm, if there is one, then the output projection."""
    vectors = states.to(network.output.weight)
    logits: Tensor = network.output(network.decoder_norm(vectors) * network.config.output_scale)
    return logits.float().cpu()


def _describe_lens(
    network: Transformer, states: Float[Tensor, "T D"], trace: Trace, count: int
) -> list[dict[str, Any]]:
    """Return the most probable tokens at each position, and the probability and rank of the predicted token."""
    probabilities = project_to_vocabulary(network, states).softmax(-1)
    labels = torch.tensor(trace.target_ids)[:, None]
    predicted = probabilities.gather(-1, labels)
    ranks = (probabilities > predicted).sum(-1) + 1
    best = probabilities.topk(min(count, probabilities.size(-1)), dim=-1)
    return [
        {"top": _token_rows(trace.tokenizer, ids, values), "probability": probability, "rank": rank}
        for ids, values, probability, rank in zip(
            best.indices.tolist(), best.values.tolist(), predicted[:, 0].tolist(), ranks.tolist(), strict=True
        )
    ]


def _token_rows(tokenizer: Tokenizer, ids: Sequence[int], values: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"piece": piece, "id": token, "probability": value}
        for piece, token, value in zip(tokenizer.pieces(ids), ids, values, strict=True)
    ]


def _cosines(vectors: Float[Tensor, "T D"]) -> Float[Tensor, "T T"]:
    unit = normalize(vectors.float(), dim=-1)
    return unit @ unit.T


def _describe_units(
    network: Transformer, trace: Trace, stack: str, request: RepresentationRequest
) -> Iterator[list[list[dict[str, Any]]]]:
    """Yield the strongest feed-forward units of every layer, for every token.

    The strength of a unit is |activation| · ‖value vector‖: the length of what it adds. The value vector is its column
    of the second matrix (Geva et al. 2021).
    """
    layers: Any = network.encoder if stack == "encoder" else network.decoder
    for number, layer in enumerate(layers):
        activations = trace[f"{stack}.{number}.feed_forward.bent"]
        values = layer.feed_forward.contract.weight.detach().to(activations)
        strengths = activations.abs() * values.norm(dim=0)
        best = strengths.topk(min(request.units, strengths.size(-1)), dim=-1)
        promoted = _promoted_tokens(network, trace, values, activations, best.indices) if stack == "decoder" else {}
        yield [
            [
                {
                    "unit": unit,
                    "activation": float(activations[row, unit]),
                    "strength": strength,
                    "promotes": promoted.get((unit, bool(activations[row, unit] < 0))),
                }
                for unit, strength in zip(units, strengths_of_row, strict=True)
            ]
            for row, (units, strengths_of_row) in enumerate(
                zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
        ]


def _promoted_tokens(
    network: Transformer,
    trace: Trace,
    values: Float[Tensor, "D F"],
    activations: Float[Tensor, "T F"],
    units: Tensor,
) -> dict[tuple[int, bool], list[str]]:
    """Return the tokens whose logits each unit raises most, by unit and by whether its activation is negative."""
    signed = {(unit, bool(activations[row, unit] < 0)) for row, each in enumerate(units.tolist()) for unit in each}
    keys = sorted(signed)
    vectors = torch.stack([values[:, unit] * (-1 if negative else 1) for unit, negative in keys])
    logits = vectors @ network.output.weight.detach().to(vectors).T
    tokens = logits.topk(min(PROMOTED, logits.size(-1)), dim=-1).indices.tolist()
    return {key: trace.tokenizer.pieces(ids) for key, ids in zip(keys, tokens, strict=True)}


def _compute_embeddings(
    model: TextModel, request: EmbeddingRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    network, is_source = model.network, request.side == "source" and model.network.source is not None
    tokenizer = model.source_tokenizer if is_source else model.target_tokenizer
    embedding = network.source if is_source and network.source is not None else network.target
    if is_source:
        ids = tuple(end_source(ExplorerSearch(model, request, settings.max_inspected_tokens).source))
    else:
        subject = yield from InspectedPair.build(model, request, settings)
        ids = subject.predicted_ids
    block = NumberBlock()
    return {
        "side": "source" if is_source else "target",
        "positions": _describe_positions(network, embedding, request.positions, block),
        "tokens": _describe_tokens(embedding, tokenizer, ids),
        "block": block.encode(),
    }


@torch.inference_mode()
def _describe_positions(network: Transformer, embedding: Embedding, count: int, block: NumberBlock) -> dict[str, Any]:
    """Describe the vectors that are added, the angles that queries and keys are rotated by, or the biases."""
    positions, kind = embedding.positions, network.config.positions
    count = min(count, network.config.max_length) if kind == "learned" else count
    zeros = torch.zeros(1, count, network.config.d_model, device=network.device)
    rotation, biases = positions.rotation(zeros, 0), positions.biases(zeros, 0, count)
    if biases is not None:
        by_head = biases[:, 0].flatten(0, 1).cpu()  # [L, 1, H, T, S] -> [L * H, T, S]
        by_distance = torch.cat((by_head[:, -1, :-1], by_head[:, 0]), dim=-1)  # distances 1 - P to P - 1
        return {"kind": kind, "values": block.add(by_distance), "similarity": None, "distances": [1 - count, count - 1]}
    if rotation is not None:
        vectors = torch.stack((rotation.sine, rotation.cosine), dim=-1).reshape(count, -1)
    else:
        vectors = positions.add(zeros, 0)[0]
    vectors = vectors.float().cpu()
    if not vectors.any():
        return {"kind": kind, "values": None, "similarity": None, "distances": None}
    return {
        "kind": kind,
        "values": block.add(vectors),
        "similarity": block.add(_cosines(vectors)),
        "distances": None,
    }


@torch.inference_mode()
def _describe_tokens(embedding: Embedding, tokenizer: Tokenizer, ids: Sequence[int]) -> dict[str, Any]:
    """Place the tokens on the two directions in which embeddings differ most, and find the nearest ones."""
    table = embedding.tokens.weight.float().cpu()
    shown = sorted({*range(min(MAX_POINTS, len(table))), *ids})
    points, shares = project_on_principal_axes(table[shown])
    unique = list(dict.fromkeys(ids))
    cosines = normalize(table[unique], dim=-1) @ normalize(table, dim=-1).T
    cosines[torch.arange(len(unique)), torch.tensor(unique)] = -2.0  # a token is not its own neighbour
    best = cosines.topk(min(NEIGHBOURS, len(table) - 1), dim=-1)
    return {
        "ids": shown,
        "pieces": tokenizer.pieces(shown),
        "points": points.tolist(),
        "shares": shares,
        "size": len(table),
        "sentence": list(ids),
        "neighbours": {
            token: [
                {"piece": piece, "id": other, "cosine": value}
                for piece, other, value in zip(tokenizer.pieces(others), others, values, strict=True)
            ]
            for token, others, values in zip(unique, best.indices.tolist(), best.values.tolist(), strict=True)
        },
    }


def project_on_principal_axes(vectors: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "N 2"], list[float]]:
    """Return coordinates on the first two principal components, and their shares of the variance.

    The largest entry of each component is positive, so that the picture is the same on every machine.
    """
    centred = (vectors - vectors.mean(0)).double()
    variances, axes = torch.linalg.eigh(centred.T @ centred)
    first = axes[:, -2:].flip(-1)
    first = first * first.gather(0, first.abs().argmax(0, keepdim=True)).sign()
    shares = variances[-2:].flip(-1) / variances.sum().clamp(min=1e-30)
    return (centred @ first).float(), shares.tolist()
