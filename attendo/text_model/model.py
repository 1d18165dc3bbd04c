"""Text in, text out: the one place where tokenizers, network and search meet."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attendo.data.batch import Example, collate
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine
from attendo.decode.ensemble import Ensemble, How
from attendo.decode.recording import Recorder
from attendo.decode.tree import Tree
from attendo.errors import ModelError, UsageError
from attendo.model.transformer import Transformer
from attendo.store import StoredModel, load_model, save_model
from attendo.text import EOS, Tokenizer
from attendo.text_model.answering import Answering
from attendo.text_model.choices import engine_of, in_precision, networks_of, ranking_of, search_engine_of
from attendo.text_model.continuing import distinct, next_tokens
from attendo.text_model.lines import LineMaker
from attendo.text_model.looking import aligned, stacked
from attendo.text_model.networks import Reader, evaluating, pick_device
from attendo.text_model.prefixes import prefixes_of
from attendo.text_model.results import Alternative, Result, ScoredTarget, Trace
from attendo.text_model.scoring import scored
from attendo.text_model.splitting import joined
from attendo.text_model.streaming import decided
from attendo.text_model.wishes import Wishes, divided

_ENGINES_KEPT = 2  # one for most calls, and one for those with constraints or coverage


class TextModel:
    """A network with its tokenizers."""

    def __init__(self, stored: StoredModel, ensemble: Ensemble | None = None) -> None:
        self.stored = stored
        self.network: Transformer = stored.network
        self.source_tokenizer: Tokenizer = stored.source_tokenizer
        self.target_tokenizer: Tokenizer = stored.target_tokenizer
        if self.network.config.decoder_only:
            raise ModelError("a decoder-only network has no source to translate: use its network directly")
        self.generation = GenerationConfig(**stored.generation)
        self.scores: dict[str, Any] = stored.scores
        self._reader: Reader = ensemble or self.network
        self._engines: dict[Hashable, Engine] = {}

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def networks(self) -> list[Transformer]:
        """One, or the members of an ensemble."""
        return networks_of(self._reader)

    def save(self, folder: str | Path) -> None:
        self._require_single("saved: save its members")
        save_model(Path(folder), self.stored)

    def ensemble(
        self, others: "Sequence[TextModel]", weights: Sequence[float | int] | None = None, how: How = "probabilities"
    ) -> "TextModel":
        """A model that chooses every token together with others: this one's settings, and the mean of what all expect.

        `weights` are this one's first. The tokenizers must be the same.
        """
        for place, other in enumerate(others, start=2):
            for side in ("source", "target"):
                if getattr(other, f"{side}_tokenizer") != getattr(self, f"{side}_tokenizer"):
                    raise UsageError(
                        f"model {place} of the ensemble has another {side} tokenizer: models answer together where "
                        "their vocabularies are the same, as after training on one prepared folder"
                    )
        networks = [*self.networks, *(network for other in others for network in other.networks)]
        shares = None if weights is None else [float(weight) for weight in weights]
        return TextModel(self.stored, Ensemble(networks, shares, how))

    def generate(
        self, texts: Sequence[str], *, n_best: int = 1, max_length: int | None = None, **options: Any
    ) -> list[Result]:
        """An answer to each text; order out is order in, and no text in is no text out.

        `n_best` is how many hypotheses each result has, fewer where fewer were found. `max_length` is the most tokens
        of an answer; unless given, it follows the length of the source. `options` are the other fields of `Wishes`
        (prefix="...", constraints=["..."], ban=["..."], min_length=5, split=True, alignments=True) and those of
        `GenerationConfig`, the model's own unless given (beam=4, sample=True, temperature=0.8 ...); like="marian" takes
        those of another system instead (`decode/likes.py`).
        """
        _refuse_string(texts)
        wishes, config = divided(self.generation, {**options, "n_best": n_best, "max_length": max_length})
        maker = self._lines(wishes, config)
        made = maker.of(texts)
        lines = [line for each in made for line in each]
        answering = Answering(wishes, config, self.target_tokenizer)
        with self._evaluating():
            found = answering.hypotheses(lines, self._engine(config, bool(wishes.constraints))) if lines else []
            results = [Result(each) for each in found]
            if wishes.alignments:
                results = aligned(
                    results,
                    [line.source for line in lines],
                    self.networks,
                    config.positions(self.device.type == "cuda"),
                )
        told = zip(maker.results(results, made), texts, strict=True)
        return [self._with_unknown(result, text) for result, text in told]

    def stream(self, text: str, **options: Any) -> Iterator[str]:
        """The answer in pieces, each as soon as it is decided; joined, they are the text that `generate` gives.

        Greedy and samples come token by token. Of a beam comes what all hypotheses that can still win begin with. What
        is only known at the end comes whole: with mbr, with ban (an answer may have to be searched for again), and with
        constraints. A text that is split comes sentence by sentence.
        """
        wishes, config = divided(self.generation, options)
        if wishes.n_best > 1 or wishes.alignments:
            raise UsageError("a stream is one text: n_best and alignments are for generate")
        made = self._lines(wishes, config).of([text])[0]
        if config.mbr != "none" or wishes.ban or wishes.constraints or len(made) != 1:
            yield from self._stream_whole(text, wishes, options)
            return
        answering = Answering(wishes, config, self.target_tokenizer)
        engine, told = search_engine_of(config, self._reader), ""
        with self._evaluating():
            frontiers = decided(
                engine.frontiers(*answering.search(made, ())), ranking_of(config), self.target_tokenizer
            )
        while True:
            with self._evaluating():
                step = next(frontiers, None)
            if step is None:
                break
            new, last = step
            told += new
            if new:
                yield new
        whole = next(answering.told(last.hypotheses.cpu(), [()]))[0].text
        if rest := whole.removeprefix(told):
            yield rest

    def alternatives(self, text: str, prefix: str = "", count: int = 5, **options: Any) -> list[Alternative]:
        """The most probable next words behind a prefix of the answer, each with the whole answer it leads to."""
        wishes, config = divided(self.generation, {**options, "prefix": prefix})
        if wishes.ban or count < 1 or not text.strip():
            raise UsageError("alternatives are one or more ways to answer a text that is not empty, without a ban")
        ((line,),) = self._lines(wishes, config).of([text])
        answering = Answering(wishes, config, self.target_tokenizer)
        with self._evaluating():
            tokens = next_tokens(line, in_precision(config, self._reader), self.device, count)
            lines = [replace(line, prefix=(*line.prefix, token)) for token, _ in tokens]
            found = answering.hypotheses(lines, self._engine(config, bool(wishes.constraints)))
        results = [Result(each) for each in found]
        return distinct(tokens, results, line.prefix, self.target_tokenizer)[:count]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each target given its source, eos included: ∑ log p(yₜ | y₍<ₜ₎, x)."""
        return [each.log_probability for each in self.score_tokens(sources, targets)]

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> list[ScoredTarget]:
        """The same, token by token."""
        _refuse_string(sources)
        _refuse_string(targets)
        if len(sources) != len(targets):
            raise UsageError(f"score takes pairs: {len(sources)} sources and {len(targets)} targets")
        encoded = self.source_tokenizer.encode_many(sources), self.target_tokenizer.encode_many(targets)
        before, begin = prefixes_of(self.generation, self.source_tokenizer, self.target_tokenizer)
        pairs = [Example((*before, *source), (*begin, *target)) for source, target in zip(*encoded, strict=True)]
        with self._evaluating():
            return scored(pairs, self._reader, self.device, self.target_tokenizer)

    def search_tree(self, text: str, **options: Any) -> list[Tree]:
        """Every hypothesis that a search considers, and what became of it. A diverse beam has a tree a group."""
        wishes, config = divided(self.generation, options)
        if wishes.split or wishes.ban:
            raise UsageError("a tree is of one search: split and ban take several")
        (lines,) = self._lines(wishes, config).of([text])
        requests, strategy, rules = Answering(wishes, config, self.target_tokenizer).search(lines, ())
        recorder = Recorder(strategy)
        with self._evaluating():
            for _ in search_engine_of(config, self._reader).answers(requests, recorder, rules):
                pass
        return [replace(tree, sentence=0) for tree in recorder.trees]

    @torch.inference_mode()
    def trace(self, text: str, target: str | None = None) -> Trace:
        """Generate on the fast path (or take the given target), then look at it once from inside."""
        self._require_single("looked into: trace its members")
        before, begin = prefixes_of(self.generation, self.source_tokenizer, self.target_tokenizer)
        source, cut = [*before, *self.source_tokenizer.encode(text)], False
        if target is not None:
            answer = [*begin, *self.target_tokenizer.encode(target)]
        else:
            result = self.generate([text])[0]
            answer, cut = list(result.ids), result.cut
        # An answer that was cut never came to predict eos: its last token is the last row.
        batch = collate([Example(source, answer[:-1] if cut else answer)]).to(self.device)
        seen: dict[str, Tensor] = {}
        with self._evaluating():
            self.network(batch.source_ids, batch.target_ids, batch.source_mask, tap=seen.__setitem__)
        return Trace(
            source_pieces=tuple(self.source_tokenizer.pieces([*source, EOS])),
            target_pieces=tuple(self.target_tokenizer.pieces(answer if cut else [*answer, EOS])),
            encoder=stacked(seen, "encoder", "self"),
            decoder=stacked(seen, "decoder", "self"),
            cross=stacked(seen, "decoder", "cross"),
        )

    def _stream_whole(self, text: str, wishes: Wishes, options: dict[str, Any]) -> Iterator[str]:
        told: list[str] = []
        _, config = divided(self.generation, options)
        sentences = self._lines(wishes, config).sentences(text, 0) if wishes.split else [text]
        for sentence in sentences:
            before = joined(told)
            told.append(self.generate([sentence], **options)[0].text)
            if new := joined(told).removeprefix(before):
                yield new

    def _lines(self, wishes: Wishes, config: GenerationConfig) -> LineMaker:
        return LineMaker(wishes, config, self.source_tokenizer, self.target_tokenizer, self.networks)

    def _engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        """One of those used before, where nothing about it has changed: what it has recorded can be used again."""
        covered = config.coverage_penalty > 0
        machine = (config.engine, config.precision, config.batch_tokens, config.compile)
        key = (*machine, self.device, covered, constrained)
        if key not in self._engines:
            while len(self._engines) >= _ENGINES_KEPT:
                del self._engines[next(iter(self._engines))]
            self._engines[key] = engine_of(config, self._reader, constrained)
        return self._engines[key]

    def _evaluating(self) -> AbstractContextManager[None]:
        return evaluating(*self.networks)

    def _with_unknown(self, result: Result, text: str) -> Result:
        return replace(result, unknown=tuple(self.source_tokenizer.unknown(text))) if text.strip() else result

    def _require_single(self, what: str) -> None:
        if len(self.networks) > 1:
            raise UsageError(f"an ensemble of {len(self.networks)} models cannot be {what}")


def load(folder: str | Path, device: str = "auto") -> TextModel:
    """The model in a folder; `device` is cpu, cuda, or auto for a GPU where there is one."""
    stored = load_model(Path(folder), pick_device(device))
    try:
        return TextModel(stored)
    except UsageError as error:
        raise ModelError(f"{Path(folder) / 'generation.json'}: {error}") from None


def _refuse_string(texts: Sequence[str]) -> None:
    """A string is a sequence too, of letters: nobody means that."""
    if isinstance(texts, str):
        raise UsageError("a list of texts is needed: write [text] for a single one")
