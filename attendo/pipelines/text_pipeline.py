"""Pipelines that map texts or conversations to lists of dicts."""

import warnings
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from attendo.decode.config import GenerationConfig
from attendo.errors import MessagePart, UsageError, list_names, shorten
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
from attendo.text.tokenizer import strip_line_end
from attendo.text_model import GenerateOptions, Hypothesis, Result, TextModel

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
        call_options = merge_options(self._defaults, from_hf_options(options, self._task))
        config = self._check_options(options, call_options)
        one, several = self._normalise_inputs(inputs)
        texts = (
            [build_conversation_source(each, self.model, config) for each in several]
            if self._task.takes_messages
            else several
        )
        results = self._generate(texts, call_options, _check_batch_size(batch_size) or self._batch_size)
        limited = not _LENGTH_LIMITS.isdisjoint(call_options)
        warn_incomplete(results, expects_end=not self._task.continues, limited=limited)
        records = [
            [self._make_record(given, result, each, call_options) for each in result.hypotheses]
            for given, result in zip(several, results, strict=True)
        ]
        if one:
            return records[0]
        flat = call_options.get("n_best", 1) == 1 and not (self._task.continues or self._task.takes_messages)
        return [of_text[0] for of_text in records] if flat else records

    def _normalise_inputs(self, inputs: Any) -> tuple[bool, list[Any]]:
        """Return whether there is a single input, and the list of inputs."""
        takes_messages = self._task.takes_messages
        is_one: Callable[[Any], bool] = is_conversation if takes_messages else lambda each: isinstance(each, str)
        if is_one(inputs):
            return True, [inputs]
        if not isinstance(inputs, list) or not all(map(is_one, inputs)):
            expected = "a list of messages" if takes_messages else "a text"
            raise UsageError("invalid_pipeline_input", task=self.task, expected=expected, value=shorten(inputs))
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
        per_text = GenerateOptions(
            prefix=call_options.get("prefix", ""), constraints=call_options.get("constraints", ())
        )
        prefixes, phrases = per_text.expand_prefixes(len(texts)), per_text.expand_constraints(len(texts))
        for options, numbers in self._group_texts(texts, call_options):
            for first in range(0, len(numbers), batch_size or len(numbers)):
                part = numbers[first : first + (batch_size or len(numbers))]
                of_each: CallOptions = {"prefix": [prefixes[n] for n in part]} if per_text.prefix else {}
                of_each |= {"constraints": [phrases[n] for n in part]} if per_text.constraints else {}
                answers = self.model.generate([texts[n] for n in part], **{**options, **of_each})
                found.update(zip(part, answers, strict=True))
        return [found[number] for number in range(len(texts))]

    def _group_texts(self, texts: Sequence[str], call_options: CallOptions) -> Iterator[tuple[CallOptions, list[int]]]:
        """Yield groups of texts with equal options. Limits on new tokens add the prompt length of a continued text."""
        new = {limit: call_options[name] for name, limit in NEW_TOKEN_OPTIONS.items() if name in call_options}
        plain, by_length = _generate_options(call_options), defaultdict[int, list[int]](list)
        if self._task.reads_full_text:
            plain.setdefault("split", False)
        own = self.model.prepare_call(texts).source_tokens if new and self._task.continues else [0] * len(texts)
        for number, tokens in enumerate(own):
            by_length[tokens].append(number)
        for tokens, numbers in by_length.items():
            yield {**plain, **{name: tokens + count for name, count in new.items()}}, numbers

    def _make_record(self, given: Any, result: Result, hypothesis: Hypothesis, call_options: CallOptions) -> Record:
        text = (
            self._extract_continuation(given, result, hypothesis, call_options)
            if self._task.continues
            else hypothesis.text
        )
        content = [*given, {"role": "assistant", "content": text}] if self._task.takes_messages else text
        sentences = {"sentences": len(result.sentences)} if result.joined else {}
        return {
            self._task.key: content,
            **sentences,
            **find_shortcomings(result, hypothesis, expects_end=not self._task.continues),
        }

    def _extract_continuation(
        self, given: str, result: Result, hypothesis: Hypothesis, call_options: CallOptions
    ) -> str:
        """Return the continuation after the text as given, which may differ from the decoded prompt."""
        prompt = self.model.target_tokenizer.decode(hypothesis.ids[: result.source_tokens])
        new = hypothesis.text.removeprefix(prompt)
        if given[-1:].isspace() and not prompt[-1:].isspace():
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
    parsed_task = parse_task(task)
    if isinstance(model, TextModel):
        _check_device(model, device)
        return Pipeline(parsed_task, model, batch_size, defaults)
    if not isinstance(model, str | Path):
        raise UsageError("invalid_pipeline_model", value=shorten(model))
    return Pipeline(parsed_task, load(model, _device_name(device)), batch_size, defaults)


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


def _message_text(message: ChatMessage) -> str:
    role, content = message.get("role"), message.get("content")
    if role == "system":
        raise UsageError("system_message_unsupported")
    if role not in ("user", "assistant") or not isinstance(content, str):
        raise UsageError("invalid_message", message=shorten(message))
    return strip_line_end(content)


class IncompleteWarning(UserWarning):
    """A source or an output is incomplete. The dicts of a pipeline show which."""


def find_shortcomings(result: Result, hypothesis: Hypothesis, expects_end: bool) -> dict[str, Any]:
    """Return the incomplete parts by the names of `attendo generate --json`. `expects_end`: report cut outputs."""
    shortcomings = {
        "unknown": list(result.unknown),
        "source_left_out": result.source_left_out,
        "unsplit": result.unsplit,
        "cut": hypothesis.cut and expects_end,
        "constraints": [] if all(hypothesis.constraints) else list(hypothesis.constraints),
    }
    return {name: value for name, value in shortcomings.items() if value}


def warn_incomplete(results: Sequence[Result], expects_end: bool, limited: bool) -> None:
    """Warn once for all texts of a call. `limited`: the call sets a length limit, so cut outputs are not reported."""
    best = [find_shortcomings(result, result.best, expects_end) for result in results]
    unknown = list(dict.fromkeys(part for each in best for part in each.get("unknown", ())))
    left_out = sum(each.get("source_left_out", 0) for each in best)
    problems = {
        "unknown": MessagePart("text_not_in_vocabulary", parts=list_names(map(shorten, unknown), _MAX_NAMED_UNKNOWN)),
        "source_left_out": MessagePart("source_tokens_left_out", count=left_out),
        "unsplit": MessagePart("source_not_split"),
        "cut": MessagePart("output_cut_at_limit"),
        "constraints": MessagePart("constraints_not_met"),
    }
    for field, problem in problems.items():
        count = sum(field in each for each in best)
        if not count or (field == "cut" and limited):
            continue
        if len(best) > 1:
            message = MessagePart("incomplete_texts", count=count, total=len(best), problem=problem, field=field)
        else:
            message = MessagePart("incomplete_text", problem=problem, field=field)
        warnings.warn(str(message), IncompleteWarning, stacklevel=3)


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
    """Return the maximum source length in tokens, without the symbols of the model."""
    limits = (config.max_source, model.backend.max_sequence_length)
    return min(limit for limit in limits if limit is not None) - len(config.source_prefix) - len(config.source_suffix)
