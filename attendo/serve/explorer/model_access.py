"""Runs explorer requests on the model's worker: model selection, length limits, search."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import torch
from starlette.responses import Response

from attendo.data.batch import Example
from attendo.decode.frontier import Frontier
from attendo.decode.requests import Request
from attendo.decode.search import Rule, Strategy
from attendo.decode.search_tree import Tree
from attendo.decode.tree_recorder import Recorder
from attendo.model.config import ModelConfig
from attendo.model.head_scaling import sites
from attendo.serve.explorer.pieces import prefix_ids
from attendo.serve.explorer.schemas import Decoder, OfHeads, OfModel
from attendo.serve.http.errors import Refusal, answer
from attendo.serve.http.openapi import OF_MODELS
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served
from attendo.text import BOS, EOS, Tokenizer
from attendo.text_model import TextModel
from attendo.text_model.generation import Answering
from attendo.text_model.inputs import Line, LineMaker, prefixes_of
from attendo.text_model.options import divided
from attendo.text_model.results import Hypothesis, Score
from attendo.text_model.search_setup import ranking_of
from attendo.text_model.sentence_splitting import sentences
from attendo.text_model.streaming import Teller

T = TypeVar("T")
Turns = Generator[None, None, T]  # work that lets others compute whenever it yields, and then has something to give
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
ResultT = TypeVar("ResultT")
Work = Callable[[TextModel], Turns[Any]]
Ids = Sequence[int]


class Search:
    """For one text. `most` is how many tokens the source may have with its eos, `longest` the most of an answer."""

    def __init__(self, model: TextModel, text: str, decoder: Decoder, most: int, longest: int) -> None:
        self.model, self.text = model, text
        self.wishes, self.config = divided(model.generation, decoder.options())
        before, self.begin = prefixes_of(self.config, model.source_tokenizer, model.target_tokenizer)
        positions = model.runtime.longest
        most = min(most, self.config.max_source + 1, most if positions is None else positions + 1)
        self.source = checked_ids(text, model.source_tokenizer, before, most)
        self._longest = longest if positions is None else min(longest, positions)
        self._answering = Answering(self.wishes, self.config, model.target_tokenizer)
        self.streamed: tuple[Hypothesis, ...] = ()

    def answers(self, prefix: Sequence[int] = ()) -> Turns[tuple[Hypothesis, ...]]:
        """Best first. A prefix that ends with eos is the answer."""
        for _ in self.stream(prefix):
            yield
        return self.streamed

    def stream(self, prefix: Sequence[int] = ()) -> Iterator[str]:
        """What is new of the best answer after each token, often nothing; all answers are then in `streamed`."""
        if prefix and prefix[-1] == EOS:
            self.streamed = (self._ended(prefix[:-1]),)
            yield self.streamed[0].text
            return
        teller = Teller(ranking_of(self.config), self.model.target_tokenizer)
        for last in self._frontiers(*self._answering.search([self._line(prefix)], ())):
            yield teller.new(last)
        self.streamed = next(self._answering.told(last.hypotheses.cpu(), [()]))[: self.wishes.n_best]
        yield teller.rest(self.streamed[0].text)

    def trees(self) -> Turns[list[Tree]]:
        """Every hypothesis that is considered; a diverse beam has a tree a group."""
        requests, strategy, rules = self._answering.search([self._line(())], ())
        recorder = Recorder(strategy)
        for _ in self._frontiers(requests, recorder, rules):
            yield
        return recorder.trees

    def token_log_probabilities(self, hypothesis: Hypothesis) -> list[float]:
        """Of each token as the model has it, eos included unless the answer came to no end."""
        pair = Example(self.source, hypothesis.ids)
        with self.model.runtime.evaluating():
            (scored,) = self.model.runtime.scored([pair], self.model.target_tokenizer)
        return list(scored.log_probabilities if hypothesis.has_end else scored.log_probabilities[:-1])

    def prefix_ids(self, prefix: Sequence[str | int]) -> tuple[int, ...]:
        """Of pieces or ids, behind those that every answer of this model begins with."""
        found = prefix_ids(prefix, self.model.target_tokenizer, self._next)
        return found[len(self.begin) :] if self.begin and found[: len(self.begin)] == self.begin else found

    @torch.inference_mode()
    def _next(self, ids: list[int]) -> list[float]:
        reader, device = self.model.runtime.reader(self.config), self.model.device
        assert reader is not None  # only exported models have none
        target = torch.tensor([[BOS, *self.begin, *ids]], device=device)
        with self.model.runtime.evaluating():
            memory = reader.encode(torch.tensor([[*self.source, EOS]], device=device))
            logits, _ = reader.step(target, reader.start(memory))
        return [float(each) for each in logits[0, -1].float().log_softmax(-1)]

    def _line(self, prefix: Sequence[int]) -> Line:
        """Its limits are those of a line without the prefix, unless the prefix would leave nothing to say."""
        model, forced = self.model, (*self.begin, *prefix)
        tokenizers = model.source_tokenizer, model.target_tokenizer
        ((line,),) = LineMaker(self.wishes, self.config, *tokenizers, model.runtime.longest).of([self.text])
        limit = line.limit
        if prefix and self.wishes.max_length is None:
            limit = max(limit, len(forced) + self.config.max_length_extra)
        limit = min(limit, self._longest)
        if len(forced) > limit:
            raise Refusal("too_long", side="target", tokens=len(forced) + 1, most=limit + 1)
        return replace(line, prefix=forced, limit=limit, least=min(line.least, limit))

    def _ended(self, prefix: Sequence[int]) -> Hypothesis:
        """What was forced to its end, with the score that a search would have given it."""
        tokenizer, ids = self.model.target_tokenizer, (*self.begin, *prefix)
        whole = Hypothesis(tokenizer.decode(ids), ids, tuple(tokenizer.pieces(ids)), Score(0.0), cut=False)
        tokens = len(ids) + int(self.config.counts_eos)
        divisor, reward = ranking_of(self.config).terms(tokens)
        log_probability = sum(self.token_log_probabilities(whole))
        return replace(whole, parts=Score(log_probability, tokens=tokens, divisor=divisor, reward=reward))

    def _frontiers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Frontier]:
        """After every token. Between two of them others compute in this thread: nothing stays set up for this one."""
        engine = self.model.runtime.watched(self.config)
        assert engine is not None  # only exported models have none
        with self.model.runtime.evaluating():
            frontiers = engine.frontiers(requests, strategy, rules)
        while True:
            with self.model.runtime.evaluating():
                frontier = next(frontiers, None)
            if frontier is None:
                return
            yield frontier


async def answered(office: Office, asked: OfModel, work: Work) -> Response:
    """What comes of `work`, done with the model that is asked for."""
    served = office.served(asked.model)

    def written() -> Turns[Response]:
        return answer((yield from work(model_for(served, asked))))

    return await computed(office, served, written)


async def computed(office: Office, served: Served, work: Callable[[], Turns[ResultT]]) -> ResultT:
    """What comes of `work`, done between the steps of whoever else asks the model, in the time that a request has."""

    def turns() -> Iterator[tuple[ResultT] | None]:
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


def checked_ids(text: str, tokenizer: Tokenizer, before: Ids, most: int, side: str = "source") -> tuple[int, ...]:
    """The ids of a text behind those that the model puts before it. With eos they may be `most`."""
    if side == "source" and not text.strip():
        raise Refusal("empty_text")
    ids = tokenizer.encode(text)
    room = most - 1 - len(before)
    if len(ids) > room:
        tokens = len(before) + len(ids) + 1
        extra = {"side": side, **(_choices(text, tokenizer, max(room, 0)) if side == "source" else {})}
        raise Refusal("too_long", extra, side=side, tokens=tokens, most=most)
    return (*before, *ids)


def _choices(text: str, tokenizer: Tokenizer, room: int) -> dict[str, object]:
    """What could be sent instead; by sentence only where each sentence is short enough."""
    parts = sentences(text)
    choices, chinese = [f"first {room} tokens"], [f"前 {room} 个词元"]
    texts: list[object] = [_beginning(text, tokenizer, room)]
    if len(parts) > 1 and all(len(each) <= room for each in tokenizer.encode_many(parts)):
        choices, chinese, texts = [*choices, "by sentence"], [*chinese, "逐句"], [*texts, parts]
    return {"choices": choices, "choices_zh": chinese, "texts": texts}


def _beginning(text: str, tokenizer: Tokenizer, room: int) -> str:
    """As much of it as has so many tokens, up to the end of a word where there are spaces.

    Taken from the text itself: what tokens read as need not be what was written.
    """
    fits, too_much = 0, len(text)
    while too_much - fits > 1:
        middle = (fits + too_much) // 2
        if len(tokenizer.encode(text[:middle])) <= room:
            fits = middle
        else:
            too_much = middle
    begun = text[:fits]
    if begun and not begun[-1].isspace() and not text[fits].isspace():
        words = begun.rsplit(maxsplit=1)
        begun = words[0] if len(words) > 1 else begun
    return begun.strip()
