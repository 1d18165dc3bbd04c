"""Pipelines that map texts or conversations to lists of dicts."""

import warnings
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.interop.load import load
from attendo.pipelines.options import (
    NEW_TOKEN_OPTIONS,
    PipelineTask,
    check_languages,
    check_model,
    from_hf_options,
    merge_options,
    parse_task,
    to_hf_names,
)
from attendo.text.model_card import TURN_SEPARATOR, escape_turn, join_turns
from attendo.text.newlines import strip_line_end
from attendo.text_model import GenerateOptions, Hypothesis, Result, TextModel
from attendo.text_model.options import shorten

CallOptions = dict[str, Any]
Record = dict[str, Any]
_LENGTH_LIMITS = {"max_length", "max_new_tokens"}
Device = str | int | torch.device
ChatMessage = dict[str, Any]
_MAX_NAMED_UNKNOWN = 20  # unknown pieces named in a warning
LINE_BREAK = "\n"  # turn separator for models trained without TURN_SEPARATOR


class Pipeline:
    """One task of one model. `defaults` apply to every call that does not override them.

    A text returns a list of dicts, one per hypothesis. A list of texts returns one dict per text, or a list of dicts
    per text with `n_best` above 1. text-generation and conversational return a list of dicts per input.
    The dict and an `IncompleteWarning` report truncated sources and cut outputs. `sentences` in the dict is the number
    of sentences a text was split into. Texts are split if the model was trained on single sentences, or with `split`.
    """

    def __init__(
        self, task: PipelineTask, model: TextModel, batch_size: int | None, defaults: Mapping[str, Any]
    ) -> None:
        check_model(task, model)
        self.task, self.model = task.name, model
        self._task, self._defaults = task, from_hf_options(defaults, task)
        self._batch_size = _check_batch_size(batch_size)
        self._check_options(defaults, self._defaults)

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> list[Any]:
        """Run the task on a text or a list of texts, or on a conversation or a list of conversations."""
        asked = merge_options(self._defaults, from_hf_options(options, self._task))
        config = self._check_options(options, asked)
        one, several = self._normalise_inputs(inputs)
        texts = (
            [build_conversation_source(each, self.model, config) for each in several]
            if self._task.takes_messages
            else several
        )
        results = self._generate(texts, asked, _check_batch_size(batch_size) or self._batch_size)
        warn_incomplete(results, expects_end=not self._task.continues, limited=not _LENGTH_LIMITS.isdisjoint(asked))
        pairs = zip(several, results, strict=True)
        told = [
            [self._make_record(given, result, each, asked) for each in result.hypotheses] for given, result in pairs
        ]
        if one:
            return told[0]
        flat = asked.get("n_best", 1) == 1 and not (self._task.continues or self._task.takes_messages)
        return [records[0] for records in told] if flat else told

    def _normalise_inputs(self, inputs: Any) -> tuple[bool, list[Any]]:
        """Return whether there is a single input, and the list of inputs."""
        takes_messages = self._task.takes_messages
        is_one: Callable[[Any], bool] = is_conversation if takes_messages else lambda each: isinstance(each, str)
        if is_one(inputs):
            return True, [inputs]
        if not isinstance(inputs, list) or not all(map(is_one, inputs)):
            what = "a list of messages" if takes_messages else "a text"
            raise UsageError("invalid_pipeline_input", task=self.task, expected=what, value=short_repr(inputs))
        return False, inputs

    def _check_options(self, given: Mapping[str, Any], call_options: CallOptions) -> GenerationConfig:
        """Return the settings of a call. Raise `UsageError` for every error that does not depend on a text."""
        check_languages(call_options, self.model)
        if new := [name for name in NEW_TOKEN_OPTIONS if name in call_options and call_options.get("prefix")]:
            raise UsageError("new_tokens_with_prefix", option=new[0], replacement=NEW_TOKEN_OPTIONS[new[0]])
        try:
            return self.model.settings(**_generate_options(call_options))
        except UsageError as error:
            raise to_hf_names(error, given) from None

    def _generate(self, texts: Sequence[str], call_options: CallOptions, batch_size: int | None) -> list[Result]:
        """Return the results in the order of the texts. At most `batch_size` texts are decoded together."""
        found: dict[int, Result] = {}
        wishes = GenerateOptions(prefix=call_options.get("prefix", ""), constraints=call_options.get("constraints", ()))
        prefixes, phrases = wishes.expand_prefixes(len(texts)), wishes.expand_constraints(len(texts))
        for options, places in self._group_texts(texts, call_options):
            for first in range(0, len(places), batch_size or len(places)):
                part = places[first : first + (batch_size or len(places))]
                of_each: CallOptions = {"prefix": [prefixes[n] for n in part]} if wishes.prefix else {}
                of_each |= {"constraints": [phrases[n] for n in part]} if wishes.constraints else {}
                answers = self.model.generate([texts[n] for n in part], **{**options, **of_each})
                found.update(zip(part, answers, strict=True))
        return [found[place] for place in range(len(texts))]

    def _group_texts(self, texts: Sequence[str], call_options: CallOptions) -> Iterator[tuple[CallOptions, list[int]]]:
        """Yield groups of texts with equal options. Limits on new tokens add the prompt length of a continued text."""
        new = {whole: call_options[name] for name, whole in NEW_TOKEN_OPTIONS.items() if name in call_options}
        plain, by_length = _generate_options(call_options), defaultdict[int, list[int]](list)
        if self._task.reads_full_text:
            plain.setdefault("split", False)
        own = self.model.prepare_call(texts).source_tokens if new and self._task.continues else [0] * len(texts)
        for place, tokens in enumerate(own):
            by_length[tokens].append(place)
        for tokens, places in by_length.items():
            yield {**plain, **{name: tokens + count for name, count in new.items()}}, places

    def _make_record(self, given: Any, result: Result, hypothesis: Hypothesis, call_options: CallOptions) -> Record:
        text = (
            self._extract_continuation(given, result, hypothesis, call_options)
            if self._task.continues
            else hypothesis.text
        )
        whole = append_response(given, text) if self._task.takes_messages else text
        told = {"sentences": len(result.sentences)} if result.joined else {}
        return {
            self._task.key: whole,
            **told,
            **find_shortcomings(result, hypothesis, expects_end=not self._task.continues),
        }

    def _extract_continuation(
        self, given: str, result: Result, hypothesis: Hypothesis, call_options: CallOptions
    ) -> str:
        """Return the continuation after the text as given, which may differ from the decoded prompt."""
        read = self.model.target_tokenizer.decode(hypothesis.ids[: result.source_tokens])
        new = hypothesis.text.removeprefix(read)
        if given[-1:].isspace() and not read[-1:].isspace():
            new = new.removeprefix(" ")  # the text already ends with the space
        return given + new if call_options.get("return_full_text", True) else new


def _generate_options(call_options: CallOptions) -> CallOptions:
    """Return the options of `TextModel.generate`, without those of the pipeline."""
    own = ("return_full_text", "src_lang", "tgt_lang", *NEW_TOKEN_OPTIONS)
    return {name: value for name, value in call_options.items() if name not in own}


def _check_batch_size(batch_size: int | None) -> int | None:
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise UsageError("invalid_batch_size", value=batch_size)
    return batch_size


def pipeline(
    task: str,
    model: str | Path | TextModel,
    *,
    device: Device | None = None,
    batch_size: int | None = None,
    **defaults: Any,
) -> Pipeline:
    """Create a pipeline for translation (also translation_en_to_de), summarization, text2text-generation,
    text-generation or conversational.

    `model` is a folder or a model from `attendo.load`. `device` is as for `load`, or a GPU index as in transformers,
    with -1 for the CPU. At most `batch_size` texts are decoded together. `defaults` are options of
    `TextModel.generate` or equivalent transformers options. A call may override them.
    """
    asked = parse_task(task)
    if isinstance(model, TextModel):
        _check_device(model, device)
        return Pipeline(asked, model, batch_size, defaults)
    if not isinstance(model, str | Path):
        raise UsageError("invalid_pipeline_model", value=short_repr(model))
    return Pipeline(asked, load(model, _device_name(device)), batch_size, defaults)


def _device_name(device: Device | None) -> str:
    if device is None:
        return "auto"
    if isinstance(device, int) and not isinstance(device, bool):
        return "cpu" if device == -1 else f"cuda:{device}"
    return str(device)


def _check_device(model: TextModel, device: Device | None) -> None:
    """Raise `UsageError` if a loaded model is on another device. The model is not moved."""
    if device is None or _device_name(device) in ("auto", str(model.device), model.device.type):
        return
    raise UsageError("model_on_other_device", device=model.device, requested=device)


def is_conversation(given: Any) -> bool:
    """Return whether the input is a non-empty list of messages."""
    return isinstance(given, list) and bool(given) and all(isinstance(each, dict) for each in given)


def build_conversation_source(messages: Sequence[ChatMessage], model: TextModel, config: GenerationConfig) -> str:
    """Return the source text of a conversation: its latest turns that fit."""
    texts = [_message_text(message) for message in messages]
    if messages[-1]["role"] != "user":
        raise UsageError("last_message_not_user")
    most, encode = max_source_tokens(model, config), model.source_tokenizer.encode
    return join_latest_turns(texts, model, model.about.get("context_turns"), lambda text: len(encode(text)) <= most)


def append_response(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    return [*messages, {"role": "assistant", "content": text}]


def short_repr(value: Any) -> str:
    """Return the repr of a value, cut to 80 characters, for an error message."""
    whole = repr(value)
    return whole if len(whole) <= 80 else f"{whole[:77]}..."


def _message_text(message: ChatMessage) -> str:
    role, content = message.get("role"), message.get("content")
    if role == "system":
        raise UsageError("system_message_unsupported")
    if role not in ("user", "assistant") or not isinstance(content, str):
        raise UsageError("invalid_message", message=short_repr(message))
    return strip_line_end(content)


class IncompleteWarning(UserWarning):
    """A source or an output is incomplete. The dicts of a pipeline show which."""


def find_shortcomings(result: Result, hypothesis: Hypothesis, expects_end: bool) -> dict[str, Any]:
    """Return the incomplete parts by the names of `attendo generate --json`. `expects_end`: report cut outputs."""
    told = {
        "unknown": list(result.unknown),
        "source_left_out": result.source_left_out,
        "unsplit": result.unsplit,
        "cut": hypothesis.cut and expects_end,
        "constraints": [] if all(hypothesis.constraints) else list(hypothesis.constraints),
    }
    return {name: value for name, value in told.items() if value}


def warn_incomplete(results: Sequence[Result], expects_end: bool, limited: bool) -> None:
    """Warn once for all texts of a call. `limited`: the call sets a length limit, so cut outputs are not reported."""
    best = [find_shortcomings(result, result.best, expects_end) for result in results]
    unknown = list(dict.fromkeys(part for each in best for part in each.get("unknown", ())))
    more = f" and {len(unknown) - _MAX_NAMED_UNKNOWN:,} more" if len(unknown) > _MAX_NAMED_UNKNOWN else ""
    left_out = sum(each.get("source_left_out", 0) for each in best)
    meanings = {
        "unknown": f"not in the vocabulary: {', '.join(map(shorten, unknown[:_MAX_NAMED_UNKNOWN]))}{more}",
        "source_left_out": f"the last tokens were not read, {left_out:,} in all: shorten the text, or take split=True",
        "unsplit": "read as one sentence, and the model learned from single ones: leave out constraints or prefix",
        "cut": "the answer was cut at its length limit: see max_length",
        "constraints": "not all constraints are met",
    }
    for name, meaning in meanings.items():
        count = sum(name in each for each in best)
        if count and not (name == "cut" and limited):
            where = f"{count} of {len(best)} texts" if len(best) > 1 else "the text"
            warnings.warn(f"{where}: {meaning} ({name} in the result)", IncompleteWarning, stacklevel=3)


def join_latest_turns(
    texts: Sequence[str], model: TextModel, max_turns: int | None, fits: Callable[[str], bool]
) -> str:
    """Join the latest turns that fit, at most `max_turns`. The last turn is always included."""
    texts = texts[-max_turns:] if max_turns is not None else texts
    with_symbol = TURN_SEPARATOR in model.source_tokenizer.symbols
    if model.source_tokenizer.unknown(" "):  # character vocabulary without spaces (data.without_spaces)
        texts = [text.replace(" ", "") for text in texts]

    def last(count: int) -> str:
        turns = texts[len(texts) - count :]
        return join_turns(map(escape_turn, turns)) if with_symbol else LINE_BREAK.join(turns)

    # Binary search: encoding a long conversation turn by turn is slow.
    too_long = bisect_left(range(len(texts) + 1), True, lo=1, key=lambda count: not fits(last(count)))
    return last(max(1, too_long - 1))


def max_source_tokens(model: TextModel, config: GenerationConfig) -> int:
    """Return the maximum source length in tokens, without the source prefix."""
    limits = (config.max_source, model.backend.max_sequence_length)
    return min(limit for limit in limits if limit is not None) - len(config.source_prefix)
