"""TextModel: generate, stream, score and trace texts with tokenizers, network and search."""

import warnings
from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from attendo.data.batch import Example
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine
from attendo.decode.networks import Ensemble, EnsembleMethod, TappedNetwork
from attendo.decode.search_tree import SearchTree
from attendo.decode.tree_recorder import TreeRecorder
from attendo.errors import MessagePart, ModelError, UsageError
from attendo.metrics.fault_limits import MIN_PAIRS, FaultLimits, measure_length_factors, measure_scores, measure_texts
from attendo.model.head_scaling import HeadScales, ScaledHeads
from attendo.model.parallel import ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.model_folder import CALIBRATION, StoredModel, load_model, save_model
from attendo.nn.cpu_threads import tune_step
from attendo.nn.devices import pick_device
from attendo.settings import warn_of_old_name
from attendo.text import Tokenizer
from attendo.text.model_card import CONTEXT_SEPARATOR, TrainingSources
from attendo.text.newlines import NewlineTokenizer
from attendo.text_model.alignment import align
from attendo.text_model.backends import (
    NATIVE_SEARCH_ENGINES,
    Backend,
    ExportedFolder,
    TorchBackend,
    drop_engine_option,
    make_option_error,
    with_precision,
)
from attendo.text_model.checking import OutputChecker, compute_contrast, score_hypothesis
from attendo.text_model.constraints import Ids
from attendo.text_model.generation import Generation, PreparedCall
from attendo.text_model.inputs import PromptEncoder, SourceEncoder, SourceLine, reject_source_options
from attendo.text_model.options import (
    GenerateOptions,
    check_text_list,
    reject_terms,
    split_options,
    with_new_option_names,
)
from attendo.text_model.parallel_trace import ParallelOrigin, ParallelTrace, trace_call
from attendo.text_model.repairing import Repairer
from attendo.text_model.results import Alternative, CheckReport, Hypothesis, Result, ScoredTarget
from attendo.text_model.scoring import check_scores, encode_pairs, top_next_tokens, unique_alternatives
from attendo.text_model.sentence_splitting import measure_sources
from attendo.text_model.symmetrisation import Symmetrisation
from attendo.text_model.term_search import TermSearch
from attendo.text_model.trace import GREEDY_OPTIONS, EncodedPair, Trace, merge_head_scales, trace_pair
from attendo.text_model.word_alignment import (
    LinkUnit,
    PairAligner,
    PairWords,
    WordAlignment,
    align_pairs,
    pair_texts,
)

_MAX_CACHED_ENGINES = 2  # one for most calls, and one for calls with constraints or coverage
_MAX_SAMPLE_PAIRS = 500  # validation pairs that limits are measured on: 0.1 s
_MAX_NAMED_TAGS = 12  # tags listed in a warning


class TextModel:
    """A network with its tokenizers. `backend` computes the network, PyTorch by default."""

    def __init__(
        self,
        model: StoredModel | ExportedFolder | Transformer,
        tokenizers: Tokenizer | Sequence[Tokenizer] | None = None,
        *,
        generation: Mapping[str, Any] | None = None,
        backend: Backend | None = None,
        runtime: Backend | None = None,
    ) -> None:
        """A `Transformer` needs its `tokenizers`: source and target, or one for both.

        `generation` are its default decoding settings, such as {"beam": 4}. `runtime` is the old name of `backend`.
        """
        if runtime is not None:
            warn_of_old_name("runtime", "backend")
        self._stored = stored = _to_stored_model(model, tokenizers, generation)
        self.source_tokenizer: Tokenizer = stored.source_tokenizer
        self.target_tokenizer: Tokenizer = stored.target_tokenizer
        if self.continues_text:  # one tokenizer for both, with line breaks
            self.source_tokenizer = self.target_tokenizer = NewlineTokenizer(stored.target_tokenizer)
        self.generation = GenerationConfig(**stored.generation)
        self.scores: dict[str, Any] = stored.scores
        self.about: dict[str, Any] = stored.about  # the known fields of `TrainedModelCard`
        self.backend: Backend = backend or runtime or TorchBackend(self.network)
        self._engines: dict[Hashable, Engine] = {}

    def __repr__(self) -> str:
        """One line: task or languages, size, vocabularies, backend and device."""
        languages = [self.about[name] for name in ("source_language", "target_language") if name in self.about]
        facts = ["→".join(languages) or self.about.get("task", "")]
        if isinstance(self._stored, StoredModel):
            kind = "decoder-only" if self.decoder_only else "encoder-decoder"
            kind = "prefix LM" if self.decoder_only and not self.continues_text else kind
            if self.kind != "autoregressive":
                kind = f"{kind} ({self.kind})"
            parameters = sum(each.numel() for network in self.networks for each in network.parameters())
            facts += [kind, f"{parameters:,} parameters"]
        sizes = dict.fromkeys((self.source_tokenizer.vocab_size, self.target_tokenizer.vocab_size))
        facts += [f"{' and '.join(f'{size:,}' for size in sizes)} tokens", f"{self.backend.name} on {self.device}"]
        return f"<TextModel: {', '.join(filter(None, facts))}>"

    @property
    def runtime(self) -> Backend:
        """The old name of `backend`."""
        warn_of_old_name("runtime", "backend")
        return self.backend

    @property
    def stored_model(self) -> StoredModel:
        """The content of the model folder. Raise for an exported folder, which has no PyTorch network."""
        if isinstance(self._stored, StoredModel):
            return self._stored
        raise UsageError("exported_folder_without_network", folder=self._stored.folder, runtime=self.backend.name)

    @property
    def network(self) -> Transformer:
        return self.stored_model.network

    @property
    def decoder_only(self) -> bool:
        """Whether the network has no encoder: a language model, or a prefix LM for pairs."""
        return isinstance(self._stored, StoredModel) and self._stored.network.decoder_only

    @property
    def continues_text(self) -> bool:
        """Whether the model is a language model: it has no source, and continues a text."""
        return isinstance(self._stored, StoredModel) and self._stored.network.continues_text

    @property
    def kind(self) -> str:
        """The kind of the network: autoregressive, masked, ctc or graph. An exported model is autoregressive."""
        return self._stored.network.config.kind if isinstance(self._stored, StoredModel) else "autoregressive"

    @property
    def device(self) -> torch.device:
        return self.backend.device

    @property
    def networks(self) -> list[Transformer]:
        """The network, or the members of an ensemble."""
        return self.backend.networks if isinstance(self.backend, TorchBackend) else [self.network]

    @property
    def has_likelihood(self) -> bool:
        """Whether it gives a target a probability. A masked network does not."""
        return self.kind != "masked"

    @cached_property
    def fault_limits(self) -> FaultLimits:
        """Limits of the fault detectors, from `attendo calibrate`, else from the validation pairs of the model."""
        if not isinstance(self._stored, StoredModel) or not (self._stored.calibration or self._stored.sample):
            return FaultLimits()
        if self._stored.calibration:
            return FaultLimits(**self._stored.calibration)
        sources, references = zip(*self._stored.sample[:_MAX_SAMPLE_PAIRS], strict=True)
        return measure_texts([each.rpartition(CONTEXT_SEPARATOR)[2] for each in sources], references)

    @cached_property
    def reads_single_sentences(self) -> bool | None:
        """Whether it was trained on single sentences, so that texts are split by default.

        None if unknown.
        """
        if self.generation.context_sentences:  # the training sources have several, of which one is translated
            return True
        if self.continues_text or self.about.get("task") not in (None, "translation"):
            return False
        sample = self._stored.sample if isinstance(self._stored, StoredModel) else []
        measured = self.about.get("trained_on") or measure_sources([source for source, _ in sample])
        return TrainingSources(**measured).are_single_sentences if measured else None

    def require_autoregressive(self, feature: str) -> None:
        """Raise a `UsageError` if the model predicts all tokens at once. `feature` is what it would be used for."""
        if self.kind != "autoregressive":
            raise UsageError("parallel_feature_unsupported", feature=feature, kind=self.kind)

    def require_encoder(self, feature: str) -> None:
        """Raise a `UsageError` for a prefix LM. `feature` is what the encoder would be used for."""
        if self.decoder_only and not self.continues_text:
            raise UsageError("prefix_lm_feature_unsupported", feature=feature)

    def require_cross_attention(self, feature: str) -> None:
        """Raise a `UsageError` for a model without cross-attention. `feature` is what it would be used for."""
        self.require_encoder(feature)
        self.reject_merged_attention(feature)

    def reject_merged_attention(self, feature: str) -> None:
        """Raise a `UsageError` if one softmax reads source and target. `feature` is what it would be used for."""
        if not self.continues_text and self.network.config.merged_attention:
            raise UsageError("merged_attention_feature_unsupported", feature=feature)

    def save(self, folder: str | Path, keep_dtype: bool = False) -> None:
        """Write a model folder, in float32 or with `keep_dtype` in the precision of the weights."""
        self._require_single("ensemble_not_saveable")
        if self._heads:
            raise UsageError("save_with_scaled_heads")
        save_model(Path(folder), self.stored_model, None if keep_dtype else torch.float32)

    def ensemble(
        self,
        others: "Sequence[TextModel]",
        weights: Sequence[float | int] | None = None,
        how: EnsembleMethod = "probabilities",
    ) -> "TextModel":
        """Return an ensemble of this model and others, with the settings of this one.

        Every token is chosen from the weighted mean of all predictions. The first of the `weights` is for this model.
        The tokenizers must be the same.
        """
        if outside := [each.backend.name for each in (self, *others) if not isinstance(each.backend, TorchBackend)]:
            raise UsageError("ensemble_with_exported_folder", runtime=outside[0])
        for position, other in enumerate(others, start=2):
            for side in ("source", "target"):
                if getattr(other, f"{side}_tokenizer") != getattr(self, f"{side}_tokenizer"):
                    raise UsageError("ensemble_tokenizer_mismatch", position=position, side=side)
        for each in (self, *others):
            each.require_autoregressive("an ensemble")
        networks = [*self.networks, *(network for other in others for network in other.networks)]
        shares = None if weights is None else [float(weight) for weight in weights]
        return TextModel(self.stored_model, backend=TorchBackend(Ensemble(networks, shares, how)))

    def with_draft(self, draft: "TextModel") -> "TextModel":
        """Return this model with speculative decoding: `draft` proposes tokens, which this model verifies.

        Outputs do not change. One sentence at a time takes less time, if the draft is fast and often right. The draft
        is a model that predicts all tokens at once, or a small autoregressive one. The tokenizers must be the same.
        """
        for role, each in (("verifier", self), ("draft", draft)):
            if not isinstance(each.backend, TorchBackend):
                raise UsageError("draft_with_exported_folder", role=role, runtime=each.backend.name)
            if len(each.networks) > 1:
                raise UsageError("draft_with_ensemble", role=role)
        self.require_autoregressive("the verification of drafts")
        for side in ("source", "target"):
            if getattr(draft, f"{side}_tokenizer") != getattr(self, f"{side}_tokenizer"):
                raise UsageError("draft_tokenizer_mismatch", side=side)
        if self._heads or draft._heads:
            raise UsageError("draft_with_scaled_heads")
        return TextModel(self.stored_model, backend=TorchBackend(self.network, draft.network))

    def settings(self, **options: Any) -> GenerationConfig:
        """Return the decoding settings for a call with these options."""
        return self._parse_options(options)[1]

    def generate(
        self, texts: Sequence[str], *, n_best: int = 1, max_length: int | None = None, **options: Any
    ) -> list[Result]:
        """Return a result for each text, in the order of the texts. A blank text gives an empty result.

        A decoder-only model continues each text, which may be empty. Its output is the text and the continuation.

        `n_best` is the maximum number of hypotheses per result. `max_length` is the maximum number of output tokens,
        prefix included. By default it depends on the length of the source. `options` are the other fields of
        `GenerateOptions` (prefix="...", constraints=["..."], banned_phrases=["..."], min_length=5, split=True) and of
        `GenerationConfig` (beam=4, sample=True, temperature=0.8 ...). The latter default to the settings of the model.
        preset="marian" uses the settings of another system instead (`decode/presets.py`).

        `glossary` is a `Glossary` or its file: each of its terms in a text is translated as it says. `do_not_translate`
        and `keep` are texts and kinds of text that the output repeats unchanged. `result.terms` reports about them.
        """
        call = self.prepare_call(texts, n_best=n_best, max_length=max_length, **options)
        config = call.config
        with self.backend.inference_mode(), call.name_text_in_errors():
            if (terminology := call.source_encoder.terminology) is not None:
                call, results = TermSearch(self, call, terminology).generate()
            else:
                engine = self.make_engine(config, bool(call.options.constraints)) if call.lines else None
                results = [Result(each) for each in (call.generation.generate(call.lines, engine) if engine else ())]
            if call.options.check_detached:
                results = self._report_detached(call, results)
            if call.options.check == "repair":
                results = self._make_repairer(call).repair(results)
            if call.options.reads_attention:
                sources = [line.source for line in call.lines]
                positions = config.resolve_batch_tokens(self.device.type == "cuda")
                results = align(results, sources, self.networks, positions, self.scores)
            if call.options.copies_words:
                results = call.copy_words(results)
        return call.collect_results(results)

    def prepare_call(self, texts: Sequence[str], **options: Any) -> PreparedCall:
        """Validate the options and encode the texts of a `generate` call."""
        check_text_list(texts)
        call_options, config = self._parse_options(options)
        warn_missing_tags(texts, self._stored, config)
        encoder = self._make_source_encoder(call_options, config)
        generation = Generation(call_options, config, self.target_tokenizer)
        tokenizers = (self.source_tokenizer, self.target_tokenizer)
        checker = None if call_options.check == "off" else OutputChecker(self.fault_limits)
        if call_options.check == "repair":  # the new searches would not know the terms
            reject_terms(call_options, "check=repair")
        lines = encoder.encode(texts)
        return PreparedCall(texts, call_options, config, encoder, lines, generation, tokenizers, checker)

    def stream(self, text: str, **options: Any) -> Generator[str, None, Result]:
        """Yield the output in parts, each as soon as it is final. Joined, they are the text of the returned result.

        Greedy search and sampling stream token by token. With a beam, the common prefix of all surviving hypotheses is
        streamed. The output is yielded in one part with mbr, constraints, banned_phrases (which may need another
        search), or an engine that cannot be observed. A text that is split is streamed sentence by sentence.
        """
        options = with_new_option_names(options)
        call = self.prepare_call([text], **options)
        call.check_stream()
        requests, strategy, rules = call.prepare_search()
        batch = self.backend.make_batch(call.config, strategy, rules)
        phrases = call.options.banned_phrases or call.options.constraints
        several = call.config.mbr != "none" or phrases or call.options.has_terms or len(requests) != 1
        if batch is None or several:
            return (yield from self._stream_by_sentence(call, options))
        decoder, frontiers = call.make_stream_decoder(), batch.stream(requests[0])
        while True:
            with tune_step() if self.device.type == "cpu" else nullcontext(), self.backend.inference_mode():
                frontier = next(frontiers, None)
            if frontier is None:
                break
            hypotheses = frontier.hypotheses
            if new := decoder.push(frontier):
                yield new
        (result,) = call.collect_results([call.to_result(hypotheses)])
        if rest := decoder.flush(result.text):
            yield rest
        return result

    def alternatives(self, text: str, prefix: str = "", count: int = 5, **options: Any) -> list[Alternative]:
        """Return the most probable next words after a prefix, each with the complete output."""
        call_options, config = self._parse_options({**options, "prefix": prefix, "split": False})
        if call_options.banned_phrases or count < 1 or not (text.strip() or self.continues_text):
            raise UsageError("alternatives_request_invalid")
        reject_terms(call_options, "a list of alternatives")
        ((line,),) = self._make_source_encoder(call_options, config).encode([text])
        answering, reader = Generation(call_options, config, self.target_tokenizer), self.backend.network(config)
        if reader is None:
            self.require_autoregressive("a list of alternatives")
            raise make_option_error(self.backend.name, {"alternatives": NATIVE_SEARCH_ENGINES})
        with self.backend.inference_mode():
            tokens = top_next_tokens(line, reader, self.device, count)
            lines = [replace(line, prefix=(*line.prefix, token)) for token, _ in tokens]
            found = answering.generate(lines, self.make_engine(config, bool(call_options.constraints)))
        results = [Result(each) for each in found]
        return unique_alternatives(tokens, results, line.prefix, self.target_tokenizer)[:count]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Return the log-probability of each target given its source, eos included: ∑ log p(yₜ | y₍<ₜ₎, x).

        A language model scores each target as the continuation of its source, without eos.
        """
        return [each.log_probability for each in self.score_tokens(sources, targets)]

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> list[ScoredTarget]:
        """Return the log-probabilities of `score` token by token."""
        check_text_list(sources)
        check_text_list(targets)
        pairs = encode_pairs(sources, targets, self.generation, *self._tokenizers)
        with self.backend.inference_mode():
            return check_scores(self.backend.score(pairs, self.target_tokenizer), self.generation.precision)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        reverse: "TextModel | None" = None,
        symmetrise: Symmetrisation | None = None,
        unit: LinkUnit = "words",
    ) -> list[WordAlignment]:
        """Return the word alignment of each given pair. Words are separated by white space.

        Each target word is linked with the source word that it attends to most. `symmetrise` merges this with the
        links of the source words: intersection, union, grow-diag, grow-diag-final or grow-diag-final-and. `reverse` is
        a model of the other direction, whose links are merged. With `unit="tokens"` the links are between tokens.
        """
        return self.align_words(pair_texts(sources, targets), reverse, symmetrise, unit)

    def align_words(
        self,
        pairs: Sequence[PairWords],
        reverse: "TextModel | None" = None,
        symmetrise: Symmetrisation | None = None,
        unit: LinkUnit = "words",
    ) -> list[WordAlignment]:
        """Return the alignment of each pair, as `align` does, between given words."""
        aligners = [model.make_aligner() for model in (self, reverse) if model is not None]
        with self.backend.inference_mode():
            return align_pairs(pairs, aligners, symmetrise, unit)

    def make_aligner(self) -> PairAligner:
        """Return the aligner of this model. Raise if it has no cross-attention of single tokens."""
        self._require_single("ensemble_not_alignable")
        self.require_autoregressive("word alignment")
        if self.continues_text:
            raise UsageError("source_option_without_encoder", option="align")
        positions = self.generation.resolve_batch_tokens(self.device.type == "cuda")
        tokenizers = (self.source_tokenizer, self.target_tokenizer)
        return PairAligner(self.network, self.scores, tokenizers, self.generation, positions)

    def check(
        self,
        sources: Sequence[str],
        outputs: Sequence[str],
        *,
        check_detached: bool = False,
        truncated: Sequence[bool] | None = None,
    ) -> list[CheckReport]:
        """Return the faults of given outputs, such as those of another system.

        `check_detached` also finds outputs that do not depend on the source, by a second pass. `truncated` outputs
        reached a length limit. A masked model has no likelihood, so it finds only what is seen in the texts.
        """
        if self.continues_text:
            raise UsageError("source_option_without_encoder", option="check")
        scored: Sequence[ScoredTarget | None] = [None] * len(outputs)
        without = scored
        if self.has_likelihood or check_detached:
            scored = self.score_tokens(sources, outputs)
            without = self.score_tokens([""] * len(outputs), outputs) if check_detached else without
        lines = zip(sources, outputs, scored, without, truncated or [False] * len(outputs), strict=True)
        checker = OutputChecker(self.fault_limits)
        return [checker.check_given(*each) for each in lines]

    def calibrate(self, sources: Sequence[str], references: Sequence[str], **options: Any) -> FaultLimits:
        """Measure the limits of the fault detectors on validation pairs, and check with them from now on.

        `options` are the decoding options of later calls. `save` keeps the limits.
        """
        limits = measure_texts(sources, references)
        if limits.pairs < MIN_PAIRS:
            raise UsageError("too_few_calibration_pairs", count=limits.pairs, least=MIN_PAIRS)
        call = self.prepare_call(sources, **options)
        with self.backend.inference_mode(), call.name_text_in_errors():
            best = [found[0] for found in self._search(call.lines, call.options, call.config)]
            contrasts = self._contrasts([(line.source, each) for line, each in zip(call.lines, best, strict=True)])
        scores = [score_hypothesis(*each) for each in zip(best, contrasts, strict=True)]
        limits = measure_scores(limits, [each for each in scores if each is not None])
        tokens = [(line.source_tokens, len(each.ids)) for line, each in zip(call.lines, best, strict=True)]
        self.fault_limits = limits = measure_length_factors(limits, tokens)
        if isinstance(self._stored, StoredModel):
            self._stored = replace(self._stored, calibration=limits.model_dump(mode="json", exclude_defaults=True))
        return limits

    def search_tree(self, text: str, **options: Any) -> list[SearchTree]:
        """Return every hypothesis that a search considers, and its outcome. A diverse beam has one tree per group."""
        call_options, config = self._parse_options({**options, "split": options.get("split") or False})
        if call_options.split or call_options.banned_phrases:
            raise UsageError("search_tree_option_conflict")
        reject_terms(call_options, "a search tree")
        (lines,) = self._make_source_encoder(call_options, config).encode([text])
        requests, strategy, rules = Generation(call_options, config, self.target_tokenizer).prepare_search(lines, ())
        recorder = TreeRecorder(strategy)
        batch = self.backend.make_batch(config, recorder, rules)
        if batch is None:
            self.require_autoregressive("the search tree")
            raise make_option_error(self.backend.name, {"search_tree": NATIVE_SEARCH_ENGINES})
        with self.backend.inference_mode():
            for _ in batch.generate(requests):
                pass
        return [replace(tree, sentence=0) for tree in recorder.trees]

    def trace(
        self,
        text: str,
        target: str | None = None,
        heads: HeadScales | None = None,
        masked: bool = True,
        layer: int | None = None,
    ) -> Trace:
        """Return every tensor of one forward pass by name.

        The target is the given one, or the greedy output of the model. `heads` are scaled as in `with_heads`.
        `masked=False` removes the causal mask. `layer` keeps only one layer, for texts that are too long for all.
        """
        self._require_single("ensemble_not_traceable")
        if self.kind != "autoregressive":
            raise UsageError("trace_needs_autoregressive", kind=self.kind)
        model = self.with_heads(heads) if heads else self
        output = model.generate([text], **GREEDY_OPTIONS)[0].best if target is None else target
        pair = EncodedPair.encode(text, output, self.generation, *self._tokenizers)
        return trace_pair(self.network, pair, model._heads, masked, layer)

    def trace_parallel(self, text: str, target: str | None = None, count: int = 5, **options: Any) -> ParallelTrace:
        """Return how a model of kind masked, ctc or graph reaches its output.

        The passes of mask-predict, the graph with the chosen path, or the CTC alignment. A `target` is aligned with the
        positions of ctc and graph. `count` is the number of most probable tokens per position. `options` are decoding
        options, as in `generate`.
        """
        network = self.network
        if not isinstance(network, ParallelTransformer):
            raise UsageError("parallel_trace_needs_kind", kind=self.kind)
        if not text.strip():
            raise UsageError("trace_text_empty")
        options = {**GREEDY_OPTIONS, **options, "split": False}
        call = self.prepare_call([text], **options)
        reject_terms(call.options, "trace_parallel")
        precise = with_precision(call.config, network)
        assert isinstance(precise, ParallelTransformer)
        answer = self.generate([text], **options)[0].best
        with self.backend.inference_mode():
            trace = trace_call(precise, call, answer, target, count)
        return replace(trace, origin=ParallelOrigin(network, text, self.target_tokenizer))

    def with_heads(self, heads: HeadScales) -> "TextModel":
        """Return the model with scaled attention heads: {"decoder.0.cross": {3: 0.0}} removes one."""
        self._require_single("ensemble_heads_not_scalable")
        self.require_autoregressive("scaling heads")
        tapped = TappedNetwork(self.network, ScaledHeads(merge_head_scales(self._heads, heads)))
        return TextModel(self.stored_model, backend=TorchBackend(tapped))

    def _stream_by_sentence(self, call: PreparedCall, options: dict[str, Any]) -> Generator[str, None, Result]:
        results: list[Result] = []
        for number, line in enumerate(call.lines):
            before = call.source_encoder.join([each.text for each in results], call.lines)
            rest = {} if number == 0 else {"prefix": None}  # the prefix applies to the first sentence only
            results += self.generate([line.text], **{**options, **rest, "split": False})
            if new := call.source_encoder.join([each.text for each in results], call.lines).removeprefix(before):
                yield new
        return call.collect_results(results)[0]

    def _search(
        self, lines: Sequence[SourceLine], options: GenerateOptions, config: GenerationConfig
    ) -> list[tuple[Hypothesis, ...]]:
        """Search with other options and settings than those of the call."""
        self.backend.check(options, config)
        engine = self.make_engine(config, bool(options.constraints))
        return Generation(options, config, self.target_tokenizer).generate(lines, engine)

    def _contrasts(self, pairs: Sequence[tuple[Ids, Hypothesis]]) -> list[float | None]:
        """Return how much each source adds to the mean log-probability per token of an output. None without tokens."""
        (blank,) = encode_pairs([""], [""], self.generation, *self._tokenizers)
        examples = [Example(source, each.ids) for source, each in pairs]
        examples += [Example(blank.source, each.ids) for _, each in pairs]
        scored = self.backend.score(examples, self.target_tokenizer)
        both = zip(pairs, scored[: len(pairs)], scored[len(pairs) :], strict=True)
        return [compute_contrast(one, other, len(each.ids) + each.has_end) for (_, each), one, other in both]

    def _report_detached(self, call: PreparedCall, results: Sequence[Result]) -> list[Result]:
        """Return the results with reports that include the contrast to no source."""
        contrasts = self._contrasts([(line.source, each.best) for line, each in zip(call.lines, results, strict=True)])
        checker, found = OutputChecker(self.fault_limits), zip(results, call.lines, contrasts, strict=True)
        return [replace(each, report=checker.check(line.text, each.best, value)) for each, line, value in found]

    def _make_repairer(self, call: PreparedCall) -> Repairer:
        whole = replace(call.options, split=False, prefix="", constraints=())
        return Repairer(call, self._search, self._contrasts, self._make_source_encoder(whole, call.config))

    def _make_source_encoder(self, options: GenerateOptions, config: GenerationConfig) -> SourceEncoder:
        maker = PromptEncoder if self.continues_text else SourceEncoder
        tokenizers = (self.source_tokenizer, self.target_tokenizer)
        return maker(options, config, *tokenizers, self.backend.max_sequence_length, bool(self.reads_single_sentences))

    def make_engine(self, config: GenerationConfig, constrained: bool) -> Engine:
        """Return a cached engine if its settings are unchanged, to reuse its captured and compiled batches."""
        covered = config.coverage_penalty > 0
        machine = (config.engine, config.precision, config.batch_tokens, config.compile)
        passes = (config.passes, config.length_candidates, config.graph_search, config.path_length_penalty)
        key = (*machine, *passes, config.merge_repeats, self.device, covered, constrained)
        if key not in self._engines:
            while len(self._engines) >= _MAX_CACHED_ENGINES:
                del self._engines[next(iter(self._engines))]
            self._engines[key] = self.backend.engine(config, constrained)
        return self._engines[key]

    def _parse_options(self, options: dict[str, Any]) -> tuple[GenerateOptions, GenerationConfig]:
        """Return the options of a call and its decoding settings, both validated."""
        given = drop_engine_option(self.backend.name, with_new_option_names(options))
        call_options, config = split_options(self.backend.defaults(self.generation, given), given)
        self.backend.check(call_options, config)
        if self.continues_text:
            reject_source_options(call_options, config, given)
        return call_options, config

    @property
    def _tokenizers(self) -> tuple[Tokenizer | None, Tokenizer]:
        """Source tokenizer (None for a language model) and target tokenizer."""
        return None if self.continues_text else self.source_tokenizer, self.target_tokenizer

    @property
    def _heads(self) -> HeadScales:
        return self.backend.heads if isinstance(self.backend, TorchBackend) else {}

    def _require_single(self, code: str) -> None:
        if len(self.networks) > 1:
            raise UsageError(code, count=len(self.networks))


def _to_stored_model(
    model: StoredModel | ExportedFolder | Transformer,
    tokenizers: Tokenizer | Sequence[Tokenizer] | None,
    generation: Mapping[str, Any] | None,
) -> StoredModel | ExportedFolder:
    """Wrap a network and its tokenizers as a `StoredModel`. Raise if the vocabulary sizes do not match."""
    if not isinstance(model, Transformer):
        if tokenizers is not None or generation is not None:
            raise UsageError("redundant_model_arguments")
        return replace(model, generation=GenerationConfig.with_new_names(model.generation, warn=False))
    if tokenizers is None:
        raise UsageError("tokenizers_missing")
    several = tokenizers if isinstance(tokenizers, Sequence) else (tokenizers, tokenizers)
    if len(several) != 2:
        raise UsageError("tokenizer_count_invalid", count=len(several))
    source, target = several
    for side, tokenizer in (("source", source), ("target", target)):
        size = getattr(model.config, f"{side}_vocab_size")
        if size is not None and tokenizer.vocab_size != size:
            raise UsageError("tokenizer_vocabulary_size_mismatch", side=side, tokens=tokenizer.vocab_size, size=size)
    if model.config.prefix_lm and source != target:
        raise UsageError("prefix_lm_tokenizers_differ")
    return StoredModel(model, source, target, GenerationConfig.with_new_names(generation or {}))


def load(folder: str | Path, device: str = "auto") -> TextModel:
    """Load the model in a folder. `device` is cpu, cuda, or auto, which uses a GPU if there is one."""
    stored = load_model(Path(folder), pick_device(device))
    try:
        FaultLimits(**stored.calibration)
    except UsageError as error:
        raise ModelError("calibration_invalid", path=Path(folder) / CALIBRATION, error=error) from None
    try:
        return TextModel(stored)
    except UsageError as error:
        raise ModelError("generation_settings_invalid", path=Path(folder) / "generation.json", error=error) from None


class MissingTagWarning(UserWarning):
    """A text has no tag, but the model was trained with a tag before every text."""


def warn_missing_tags(texts: Sequence[str], stored: StoredModel | ExportedFolder, config: GenerationConfig) -> None:
    """Warn if texts lack the tag that the model was trained with.

    Tags are symbols at the start of all sources in the sample of the model. Only the caller knows which one applies.
    """
    symbols = set(stored.source_tokenizer.symbols)
    if not symbols or config.source_prefix or not isinstance(stored, StoredModel):
        return
    if all(_first_word(text) in symbols for text in texts if text.strip()):
        return
    tags = {_first_word(source) for source, _ in stored.sample}
    if tags and tags <= symbols:
        named = ", ".join(sorted(tags)[:_MAX_NAMED_TAGS])
        warnings.warn(str(MessagePart("source_tag_missing", tags=named)), MissingTagWarning, stacklevel=4)


def _first_word(text: str) -> str:
    """Return the text before the first space."""
    return text.partition(" ")[0]
