"""Answers by any decoder, from any prefix: what the page's generation, steps and tree are made of."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from attendo.data.batch import Example
from attendo.decode.frontier import Frontier
from attendo.decode.recording import Recorder
from attendo.decode.requests import Request
from attendo.decode.search import Rule, Strategy
from attendo.decode.tree import Tree
from attendo.serve.errors import Refusal
from attendo.serve.explorer.lengths import checked_ids
from attendo.serve.explorer.pieces import prefix_ids
from attendo.serve.explorer.requests import Decoder
from attendo.text import BOS, EOS
from attendo.text_model import TextModel
from attendo.text_model.answering import Answering, Line
from attendo.text_model.choices import ranking_of
from attendo.text_model.lines import LineMaker
from attendo.text_model.prefixes import prefixes_of
from attendo.text_model.results import Hypothesis, Score
from attendo.text_model.streaming import Teller
from attendo.text_model.wishes import divided

T = TypeVar("T")
Turns = Generator[None, None, T]  # work that lets others compute whenever it yields, and then has something to give


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
