"""Runs explorer requests on the model's worker: model selection, length limits, search."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import torch
from starlette.responses import Response

from attendo.data.batch import Example
from attendo.decode.frontier import Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.decode.search import Rule, Strategy
from attendo.decode.search_tree import SearchTree
from attendo.decode.tree_recorder import TreeRecorder
from attendo.model.config import ModelConfig
from attendo.model.head_scaling import sites
from attendo.serve.explorer.pieces import resolve_prefix_ids
from attendo.serve.explorer.schemas import ExplorerDecodingOptions, ModelTextRequest, ScaledHeadsRequest
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import JSON_OBJECT_CONTENT, MODEL_ERRORS, Responses, error_responses
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.text import BOS, EOS, Tokenizer
from attendo.text_model import TextModel
from attendo.text_model.generation import Generation
from attendo.text_model.inputs import SourceEncoder, SourceLine, encode_prefixes
from attendo.text_model.options import split_options
from attendo.text_model.results import Hypothesis, HypothesisScore
from attendo.text_model.sentence_splitting import split_sentences
from attendo.text_model.streaming import StreamDecoder

T = TypeVar("T")
CooperativeTask = Generator[None, None, T]  # yields to let other requests run, then returns a result
# Responses of explorer requests for the OpenAPI file.
PAGE_RESPONSES: Responses = {
    **error_responses(
        "ours",
        *MODEL_ERRORS,
        *("empty_text", "no_source", "too_long", "block_too_large", "trace_too_large", "tree_too_large"),
        *("unknown_checkpoint", "bad_checkpoint"),
    ),
    200: {"content": JSON_OBJECT_CONTENT},
}
ResultT = TypeVar("ResultT")
ModelTask = Callable[[TextModel], CooperativeTask[Any]]
Ids = Sequence[int]


class ExplorerSearch:
    """Search for one text. `max_source_tokens` includes EOS; `max_length` limits the output in tokens."""

    def __init__(
        self, model: TextModel, text: str, decoder: ExplorerDecodingOptions, max_source_tokens: int, max_length: int
    ) -> None:
        self.model, self.text = model, text
        self.options, self.config = split_options(model.generation, decoder.to_generate_options())
        before, self.target_prefix = encode_prefixes(self.config, model.source_tokenizer, model.target_tokenizer)
        positions = model.backend.max_sequence_length
        max_source_tokens = min(
            max_source_tokens, self.config.max_source + 1, max_source_tokens if positions is None else positions + 1
        )
        self.source = encode_within_limit(text, model.source_tokenizer, before, max_source_tokens)
        self._max_length = max_length if positions is None else min(max_length, positions)
        self._generation = Generation(self.options, self.config, model.target_tokenizer)
        self.hypotheses: tuple[Hypothesis, ...] = ()

    def generate(self, prefix: Sequence[int] = ()) -> CooperativeTask[tuple[Hypothesis, ...]]:
        """Return the hypotheses, best first. A prefix that ends with EOS is the only hypothesis."""
        for _ in self.stream(prefix):
            yield
        return self.hypotheses

    def stream(self, prefix: Sequence[int] = ()) -> Iterator[str]:
        """Yield the new text of the best hypothesis after each token, often empty. Then set `hypotheses`."""
        if prefix and prefix[-1] == EOS:
            self.hypotheses = (self._forced_hypothesis(prefix[:-1]),)
            yield self.hypotheses[0].text
            return
        decoder = StreamDecoder(Ranking.from_config(self.config), self.model.target_tokenizer)
        for last in self._frontiers(*self._generation.prepare_search([self._make_source_line(prefix)], ())):
            yield decoder.push(last)
        self.hypotheses = next(self._generation.to_hypotheses(last.hypotheses, [()]))[: self.options.n_best]
        yield decoder.flush(self.hypotheses[0].text)

    def record_trees(self) -> CooperativeTask[list[SearchTree]]:
        """Record every hypothesis considered. A diverse beam has one tree per group."""
        requests, strategy, rules = self._generation.prepare_search([self._make_source_line(())], ())
        recorder = TreeRecorder(strategy)
        for _ in self._frontiers(requests, recorder, rules):
            yield
        return recorder.trees

    def token_log_probabilities(self, hypothesis: Hypothesis) -> list[float]:
        """Return the model's log-probability of each token, with EOS if the hypothesis has an end."""
        pair = Example(self.source, hypothesis.ids)
        with self.model.backend.inference_mode():
            (scored,) = self.model.backend.score([pair], self.model.target_tokenizer)
        return list(scored.log_probabilities if hypothesis.has_end else scored.log_probabilities[:-1])

    def resolve_prefix(self, prefix: Sequence[str | int]) -> tuple[int, ...]:
        """Return the ids of a prefix of pieces or ids, without the model's target prefix."""
        ids = resolve_prefix_ids(prefix, self.model.target_tokenizer, self._next_log_probabilities)
        return (
            ids[len(self.target_prefix) :]
            if self.target_prefix and ids[: len(self.target_prefix)] == self.target_prefix
            else ids
        )

    @torch.inference_mode()
    def _next_log_probabilities(self, ids: list[int]) -> list[float]:
        reader, device = self.model.backend.network(self.config), self.model.device
        assert reader is not None  # None only for exported models
        target = torch.tensor([[BOS, *self.target_prefix, *ids]], device=device)
        with self.model.backend.inference_mode():
            memory = reader.encode(torch.tensor([[*self.source, EOS]], device=device))
            logits, _ = reader.step(target, reader.start(memory))
        return [float(each) for each in logits[0, -1].float().log_softmax(-1)]

    def _make_source_line(self, prefix: Sequence[int]) -> SourceLine:
        """Build the source line. A long prefix raises the length limit, so that `max_length_extra` tokens remain."""
        model, forced = self.model, (*self.target_prefix, *prefix)
        tokenizers = model.source_tokenizer, model.target_tokenizer
        ((line,),) = SourceEncoder(self.options, self.config, *tokenizers, model.backend.max_sequence_length).encode(
            [self.text]
        )
        limit = line.max_length
        if prefix and self.options.max_length is None:
            limit = max(limit, len(forced) + self.config.max_length_extra)
        limit = min(limit, self._max_length)
        if len(forced) > limit:
            raise ApiError("too_long", side="target", tokens=len(forced) + 1, most=limit + 1)
        return replace(line, prefix=forced, max_length=limit, min_length=min(line.min_length, limit))

    def _forced_hypothesis(self, prefix: Sequence[int]) -> Hypothesis:
        """Return the hypothesis of a prefix that ends with EOS, scored as in a search."""
        tokenizer, ids = self.model.target_tokenizer, (*self.target_prefix, *prefix)
        hypothesis = Hypothesis(
            tokenizer.decode(ids), ids, tuple(tokenizer.pieces(ids)), HypothesisScore(0.0), cut=False
        )
        tokens = len(ids) + int(self.config.counts_eos)
        divisor, reward = Ranking.from_config(self.config).terms(tokens)
        log_probability = sum(self.token_log_probabilities(hypothesis))
        return replace(
            hypothesis, parts=HypothesisScore(log_probability, tokens=tokens, divisor=divisor, reward=reward)
        )

    def _frontiers(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[Frontier]:
        """Yield the frontier after every token. Inference mode is set per step: other tasks share this thread."""
        batch = self.model.backend.make_batch(self.config, strategy, rules)
        assert batch is not None  # None only for exported models
        (request,) = requests
        frontiers = batch.stream(request)
        while True:
            with self.model.backend.inference_mode():
                frontier = next(frontiers, None)
            if frontier is None:
                return
            yield frontier


async def run_and_respond(gateway: ModelGateway, request: ModelTextRequest, task: ModelTask) -> Response:
    """Run `task` with the requested model and return its result as JSON."""
    served = gateway.get_model(request.model)

    def respond() -> CooperativeTask[Response]:
        return json_response((yield from task(prepare_model(served, request))))

    return await run_on_worker(gateway, served, respond)


async def run_on_worker(
    gateway: ModelGateway, served: ServedModel, task: Callable[[], CooperativeTask[ResultT]]
) -> ResultT:
    """Run `task` between the decoding steps of other requests, within the request deadline."""

    def turns() -> Iterator[tuple[ResultT] | None]:
        yield ((yield from task()),)

    async with aclosing(served.worker.iterate(turns, gateway.deadline())) as items:
        ((result,),) = [item async for item in items if item is not None]
    return result


def prepare_model(served: ServedModel, request: ModelTextRequest) -> TextModel:
    """Return the model at the requested checkpoint, with scaled heads."""
    model = served.load_checkpoint(request.checkpoint)
    config = model.network.config  # raises for exported models, which have no network
    if config.decoder_only:
        raise ApiError("no_source", model=served.name)
    heads = parse_heads(config, request.heads) if isinstance(request, ScaledHeadsRequest) else {}
    return model.with_heads(heads) if heads else model


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


def encode_within_limit(
    text: str, tokenizer: Tokenizer, prefix: Ids, max_tokens: int, side: str = "source"
) -> tuple[int, ...]:
    """Return the prefix and the ids of a text. `max_tokens` includes the prefix and EOS."""
    if side == "source" and not text.strip():
        raise ApiError("empty_text")
    ids = tokenizer.encode(text)
    room = max_tokens - 1 - len(prefix)
    if len(ids) > room:
        tokens = len(prefix) + len(ids) + 1
        extra = {"side": side, **(_shorter_texts(text, tokenizer, max(room, 0)) if side == "source" else {})}
        raise ApiError("too_long", extra, side=side, tokens=tokens, most=max_tokens)
    return (*prefix, *ids)


def _shorter_texts(text: str, tokenizer: Tokenizer, max_tokens: int) -> dict[str, object]:
    """Return shorter texts to send instead: a truncated text, and the sentences if each one fits."""
    parts = split_sentences(text)
    choices, chinese = [f"first {max_tokens} tokens"], [f"前 {max_tokens} 个词元"]
    texts: list[object] = [_truncate(text, tokenizer, max_tokens)]
    if len(parts) > 1 and all(len(each) <= max_tokens for each in tokenizer.encode_many(parts)):
        choices, chinese, texts = [*choices, "by sentence"], [*chinese, "逐句"], [*texts, parts]
    return {"choices": choices, "choices_zh": chinese, "texts": texts}


def _truncate(text: str, tokenizer: Tokenizer, max_tokens: int) -> str:
    """Return the longest beginning of a text with at most `max_tokens` tokens, cut at a space if possible.

    The text itself is cut, because decoding its tokens may not reproduce it.
    """
    fits, too_much = 0, len(text)
    while too_much - fits > 1:
        middle = (fits + too_much) // 2
        if len(tokenizer.encode(text[:middle])) <= max_tokens:
            fits = middle
        else:
            too_much = middle
    beginning = text[:fits]
    if beginning and not beginning[-1].isspace() and not text[fits].isspace():
        words = beginning.rsplit(maxsplit=1)
        beginning = words[0] if len(words) > 1 else beginning
    return beginning.strip()
