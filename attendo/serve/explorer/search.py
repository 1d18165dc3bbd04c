"""Search for an explorer request, and the inspected pair of a source and a given or generated target."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.data.batch import Example
from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest, encode_and_start
from attendo.decode.search import Rule, Strategy
from attendo.decode.search_tree import SearchTree
from attendo.decode.tree_recorder import TreeRecorder
from attendo.model.config import ModelConfig
from attendo.model.edits import NetworkEdits
from attendo.model.trace import MAX_NUMBERS
from attendo.serve.explorer.pieces import resolve_prefix_ids
from attendo.serve.explorer.schemas import ModelTextRequest, TargetRequest
from attendo.serve.explorer.shared_search import SearchSteps, SharedSearches
from attendo.serve.explorer.tasks import CooperativeTask, find_edits, find_heads
from attendo.serve.http.errors import ApiError
from attendo.serve.settings import ServeSettings
from attendo.text import BOS, EOS, PAD, Tokenizer
from attendo.text.tokenizer import end_source
from attendo.text_model import TextModel
from attendo.text_model.generation import Generation
from attendo.text_model.inputs import ModelSymbols, PromptEncoder, SourceEncoder, SourceLine, encode_symbols
from attendo.text_model.options import split_options
from attendo.text_model.results import Hypothesis, HypothesisScore
from attendo.text_model.sentence_splitting import split_sentences
from attendo.text_model.streaming import StreamDecoder
from attendo.text_model.trace import EncodedPair, Trace, trace_pair

_SEARCHES = SharedSearches()


class ExplorerSearch:
    """Search for the text of a request."""

    def __init__(
        self, model: TextModel, request: ModelTextRequest, max_source_tokens: int, max_length: int | None = None
    ) -> None:
        """`max_source_tokens` includes EOS. `max_length` limits the output; by default it is the limit of a source."""
        self.model, self.text = model, request.text
        max_length = max_source_tokens - 1 if max_length is None else max_length
        self.options, self.config = split_options(model.generation, request.decoder.to_generate_options())
        symbols = encode_symbols(self.config, model.source_tokenizer, model.target_tokenizer)
        positions = model.backend.max_sequence_length
        max_source_tokens = min(
            max_source_tokens, self.config.max_source + 1, max_source_tokens if positions is None else positions + 1
        )
        # A language model reads its text as a prompt, which every output begins with.
        self._prompt: tuple[int, ...] = ()
        if model.continues_text:
            symbols = ModelSymbols(before=symbols.begin)
        self.source = encode_within_limit(self.text, find_source_tokenizer(model), symbols, max_source_tokens)
        if model.continues_text:
            self._prompt = self.source
            if self.options.max_length is not None:
                self.options = replace(self.options, max_length=self.options.max_length + len(self._prompt))
        self.target_prefix = symbols.begin
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
            self.hypotheses = (self._score_forced_prefix(prefix[:-1]),)
            yield self.hypotheses[0].text
            return
        line = self._make_source_line(prefix)
        self.hypotheses = yield from _SEARCHES.stream(self._key(line), lambda: self._search(line))

    def record_trees(self) -> CooperativeTask[list[SearchTree]]:
        """Record every hypothesis considered. A diverse beam has one tree per group."""
        requests, strategy, rules = self._generation.prepare_search([self._make_source_line(())], ())
        recorder = TreeRecorder(strategy)
        for _ in self._frontiers(requests, recorder, rules):
            yield
        return recorder.trees

    def request_id(self, prefix: Sequence[int] = ()) -> int:
        """Return what seeds the sampling noise of an output with this prefix, besides the seed."""
        return self._make_source_line(prefix).request_id

    def next_log_probs(self, prefix: Sequence[int]) -> "CooperativeTask[Float[Tensor, ' V']]":
        """Return the distribution of the token after a prefix, as the model's decoding rules leave it."""
        requests, strategy, rules = self._generation.prepare_search([self._make_source_line(prefix)], ())
        recorder = DistributionRecorder(strategy, len(self._prompt) + len(self.target_prefix) + len(prefix))
        for _ in self._frontiers(requests, recorder, rules):
            if recorder.found is not None:
                break
            yield
        if recorder.found is None:
            raise ApiError("unknown_step", step=recorder.length)
        return recorder.found

    def inspect(self, hypothesis: Hypothesis) -> "InspectedPair":
        """Return the hypothesis as a pair to inspect."""
        unknown = tuple(find_source_tokenizer(self.model).unknown(self.text))
        answer = (hypothesis.ids, hypothesis.cut, hypothesis.has_end, hypothesis.text)
        return InspectedPair(self.model, self.source, *answer, False, unknown)

    def predict(self, target: Sequence[int]) -> Float[Tensor, "T V"]:
        """Return the logits of each token of a target, as the search computes them."""
        reader, device = self.model.backend.network(self.config), self.model.device
        assert reader is not None  # None only for exported models
        read = torch.tensor([[BOS, *self._prompt, *target[:-1]]], device=device)
        source = torch.tensor([end_source(self.source)], device=device)
        with self.model.backend.inference_mode(), torch.inference_mode():
            logits, _ = reader.step(read, encode_and_start(reader, source))
        return logits[0, len(self._prompt) :]

    @property
    def given(self) -> int:
        """The tokens of the prompt, which outputs of the network begin with."""
        return len(self._prompt)

    @property
    def source_pieces(self) -> list[str]:
        ids = self.source if self.model.continues_text else end_source(self.source)
        return find_source_tokenizer(self.model).pieces(ids)

    def token_log_probabilities(self, hypothesis: Hypothesis) -> list[float]:
        """Return the model's log-probability of each token, with EOS if the hypothesis has an end."""
        return score_tokens(self.model, self.source, hypothesis.ids, hypothesis.has_end)

    def resolve_prefix(self, prefix: Sequence[str | int]) -> tuple[int, ...]:
        """Return the ids of a prefix of pieces or ids, without the model's target prefix."""
        ids = resolve_prefix_ids(prefix, self.model.target_tokenizer, self._next_log_probabilities)
        return (
            ids[len(self.target_prefix) :]
            if self.target_prefix and ids[: len(self.target_prefix)] == self.target_prefix
            else ids
        )

    def _search(self, line: SourceLine) -> SearchSteps:
        """Yield the new text of the best hypothesis after each token, then return the hypotheses."""
        decoder = StreamDecoder(Ranking.from_config(self.config), self.model.target_tokenizer)
        decoder.flush(self._prompt_text)  # only what follows is new
        for last in self._frontiers(*self._generation.prepare_search([line], ())):
            yield decoder.push(last)
        found = next(self._generation.to_hypotheses(last.hypotheses, [()]))[: self.options.n_best]
        yield decoder.flush(found[0].text)
        return tuple(map(self._strip_prompt, found))

    def _key(self, line: SourceLine) -> object:
        """Return everything that determines the hypotheses: the network as it is edited, the settings, the text."""
        model = self.model
        network = (model.network, model.target_tokenizer, find_heads(model), find_edits(model))
        return network, self.options, self.config, self.text, line

    def _next_log_probabilities(self, ids: list[int]) -> list[float]:
        logits = self.predict((*self.target_prefix, *ids, EOS))
        return [float(each) for each in logits[-1].float().log_softmax(-1)]

    def _make_source_line(self, prefix: Sequence[int]) -> SourceLine:
        """Build the source line. A long prefix raises the length limit, so that `max_length_extra` tokens remain."""
        model, forced = self.model, (*self._prompt, *self.target_prefix, *prefix)
        tokenizers = model.source_tokenizer, model.target_tokenizer
        encoder = PromptEncoder if model.continues_text else SourceEncoder
        ((line,),) = encoder(self.options, self.config, *tokenizers, model.backend.max_sequence_length).encode(
            [self.text]
        )
        limit = line.max_length
        if prefix and self.options.max_length is None:
            limit = max(limit, len(forced) + self.config.max_length_extra)
        limit = min(limit, self._max_length)
        if len(forced) > limit:
            raise ApiError("too_long", side="target", tokens=len(forced) + 1, most=limit + 1)
        return replace(line, prefix=forced, max_length=limit, min_length=min(line.min_length, limit))

    @property
    def _prompt_text(self) -> str:
        return self.model.target_tokenizer.decode(self._prompt)

    def _strip_prompt(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return the hypothesis without the prompt of a language model, scored as a continuation."""
        first = len(self._prompt)
        if not first:
            return hypothesis
        text, ids = hypothesis.text.removeprefix(self._prompt_text), hypothesis.ids[first:]
        scores = score_tokens(self.model, self.source, ids, hypothesis.has_end)
        divisor, reward = Ranking.from_config(self.config).terms(len(scores))
        parts = replace(
            hypothesis.parts, log_probability=sum(scores), tokens=len(scores), divisor=divisor, reward=reward
        )
        return replace(hypothesis, text=text, ids=ids, pieces=hypothesis.pieces[first:], parts=parts)

    def _score_forced_prefix(self, prefix: Sequence[int]) -> Hypothesis:
        """Return a prefix that ends with EOS as a hypothesis, scored as in a search."""
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


class DistributionRecorder(Strategy):
    """Returns the answers of the wrapped strategy and records the log-probabilities after `length` tokens."""

    def __init__(self, strategy: Strategy, length: int) -> None:
        self._strategy, self.length = strategy, length
        self.width, self.free_end, self.ranking = strategy.width, strategy.free_end, strategy.ranking
        self.found: Float[Tensor, " V"] | None = None

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        return self._strategy.start(limits, capacity)

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        if int(frontier.length[0]) == self.length:
            self.found = ruled[0].clone()
        return self._strategy.advance(frontier, log_probs, ruled)


@dataclass(frozen=True)
class InspectedPair:
    """Source and target as ids, and the model, possibly with scaled heads."""

    model: TextModel
    source: tuple[int, ...]  # without EOS, unless symbols follow it
    target: tuple[int, ...]  # without EOS
    cut: bool  # the length limit was reached before the end, or forced EOS
    has_end: bool  # EOS is predicted
    text: str  # of the target
    target_given: bool
    unknown: tuple[str, ...]  # words of the source that are not in the vocabulary
    unknown_in_target: tuple[str, ...] = ()

    @staticmethod
    def build(model: TextModel, request: TargetRequest, settings: ServeSettings) -> "CooperativeTask[InspectedPair]":
        """Build the pair. Without a target in the request, the model generates one, token by token."""
        search = ExplorerSearch(model, request, settings.max_inspected_tokens)
        if request.target is None:
            return search.inspect((yield from search.generate())[0])
        positions = model.backend.max_sequence_length
        most = settings.max_inspected_tokens if positions is None else min(settings.max_inspected_tokens, positions + 1)
        begin = ModelSymbols(search.target_prefix)
        ids = encode_within_limit(request.target, model.target_tokenizer, begin, most, "target")
        in_target = tuple(model.target_tokenizer.unknown(request.target))
        unknown, ends = tuple(find_source_tokenizer(model).unknown(request.text)), not model.continues_text
        if not (ids or ends):
            raise ApiError("empty_text")
        return InspectedPair(model, search.source, ids, False, ends, request.target, True, unknown, in_target)

    @property
    def source_ids(self) -> tuple[int, ...]:
        """Return the ids with EOS, and padding if the model is edited to have some. A prompt has neither."""
        if self.model.continues_text:
            return self.source
        return (*end_source(self.source), *[PAD] * find_edits(self.model).padding.tokens)

    @property
    def predicted_ids(self) -> tuple[int, ...]:
        """Return the predicted ids. A target cut before its end has no EOS."""
        return (*self.target, EOS) if self.has_end else self.target

    @property
    def read_ids(self) -> tuple[int, ...]:
        """Return what the decoder reads. A decoder-only model reads its source, or its prompt, in the same row."""
        read = (BOS, *self.predicted_ids[:-1])
        if self.model.continues_text:
            return (BOS, *self.source, *read[1:])
        return (*self.source_ids, *read) if self.model.decoder_only else read

    @property
    def first_row(self) -> int:
        """Return the row of the decoder that predicts the first token."""
        return len(self.source_ids) if self.model.decoder_only else 0

    def trace(
        self,
        masked: bool = True,
        layer: int | None = None,
        edits: NetworkEdits | None = None,
        inputs_of: Collection[str] = (),
    ) -> Trace:
        """Trace the pair. `edits` replace those of the model, with the same padding tokens."""
        model = self.model
        tokenizers = find_source_tokenizer(model), model.target_tokenizer
        pair = EncodedPair(self.source_ids, self.predicted_ids, *tokenizers, self.target_given, self.unknown)
        edits = find_edits(model) if edits is None else edits
        return trace_pair(model.network, pair, find_heads(model), masked, layer, edits, inputs_of)

    def log_probabilities(self, model: TextModel | None = None) -> list[float]:
        """Return the log-probability of each predicted token, from this model or another one."""
        return score_tokens(model or self.model, self.source, self.target, self.has_end)


def find_source_tokenizer(model: TextModel) -> Tokenizer:
    """Return the tokenizer of the source, or of the prompt of a language model."""
    return model.target_tokenizer if model.continues_text else model.source_tokenizer


def score_tokens(model: TextModel, source: Sequence[int], target: Sequence[int], has_end: bool) -> list[float]:
    """Return the log-probability of each token, with EOS if the target has an end."""
    if model.continues_text:  # it scores its continuation without EOS
        target = (*target, EOS) if has_end else target
    with model.backend.inference_mode():
        (scored,) = model.backend.score([Example(source, target)], model.target_tokenizer)
    return list(scored.log_probabilities[: len(target) + int(has_end and not model.continues_text)])


def trace_fits(config: ModelConfig, subject: InspectedPair) -> bool:
    """Return whether a trace of all layers fits within `MAX_NUMBERS`."""
    return 4 * count_map_numbers(config, subject) <= MAX_NUMBERS


def count_map_numbers(config: ModelConfig, subject: InspectedPair, layers: Sequence[int] | None = None) -> int:
    """Count the attention weights of these layers, by default of all."""
    source, target = len(subject.source_ids), len(subject.read_ids)
    memory = 0 if config.decoder_only else source
    encoder, decoder = (
        sum(layers is None or layer in layers for layer in range(count))
        for count in (config.num_encoder_layers, config.num_decoder_layers)
    )
    return config.num_heads * (encoder * source * source + decoder * target * (target + memory))


def encode_within_limit(
    text: str, tokenizer: Tokenizer, symbols: ModelSymbols, max_tokens: int, side: str = "source"
) -> tuple[int, ...]:
    """Return the ids of a text with the symbols of a source. `max_tokens` includes the symbols and EOS."""
    if side == "source" and not text.strip():
        raise ApiError("empty_text")
    ids = tokenizer.encode(text)
    room = max_tokens - 1 - symbols.source_tokens
    if len(ids) > room:
        tokens = symbols.source_tokens + len(ids) + 1
        extra = {"side": side, **(_shorter_texts(text, tokenizer, max(room, 0)) if side == "source" else {})}
        raise ApiError("too_long", extra, side=side, tokens=tokens, most=max_tokens)
    return symbols.wrap_source(ids)


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
