"""A pipeline: texts or conversations in, lists of dicts out."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.pipelines.keywords import NEW_TOKENS, in_their_words, merged, ours
from attendo.pipelines.messages import answered, is_conversation, shown, source_of
from attendo.pipelines.tasks import Task, check_languages, check_model
from attendo.pipelines.telling import shortcomings, warn
from attendo.text_model import Hypothesis, Result, TextModel, Wishes

Options = dict[str, Any]
Record = dict[str, Any]

_LIMITS = {"max_length", "max_new_tokens"}


class Pipeline:
    """One task of one model. `defaults` hold for every call that does not say otherwise.

    A text gives a list of dicts, one for each answer asked for. A list of texts gives a list of dicts, or of such lists
    where several answers are asked for; where texts are gone on with, and for conversations, always of such lists.
    What was not read or came to no end is told in the dict, and by a `NotWholeWarning`. `sentences` in the dict: the
    text was split into so many, because the model learned from single sentences or the call asks for it.
    """

    def __init__(self, task: Task, model: TextModel, batch_size: int | None, defaults: Mapping[str, Any]) -> None:
        check_model(task, model)
        self.task, self.model = task.name, model
        self._task, self._defaults = task, ours(defaults, task)
        self._batch_size = _checked_size(batch_size)
        self._checked(defaults, self._defaults)

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> list[Any]:
        """`inputs` are a text, a list of texts, a conversation or a list of those, by the task."""
        asked = merged(self._defaults, ours(options, self._task))
        config = self._checked(options, asked)
        one, several = self._inputs(inputs)
        texts = [source_of(each, self.model, config) for each in several] if self._task.takes_messages else several
        results = self._results(texts, asked, _checked_size(batch_size) or self._batch_size)
        warn(results, ends=not self._task.continues, limited=not _LIMITS.isdisjoint(asked))
        pairs = zip(several, results, strict=True)
        told = [[self._record(given, result, each, asked) for each in result.hypotheses] for given, result in pairs]
        if one:
            return told[0]
        flat = asked.get("n_best", 1) == 1 and not (self._task.continues or self._task.takes_messages)
        return [records[0] for records in told] if flat else told

    def _inputs(self, inputs: Any) -> tuple[bool, list[Any]]:
        """Whether it was one alone, and all of them."""
        takes_messages = self._task.takes_messages
        is_one: Callable[[Any], bool] = is_conversation if takes_messages else lambda each: isinstance(each, str)
        if is_one(inputs):
            return True, [inputs]
        if not isinstance(inputs, list) or not all(map(is_one, inputs)):
            what = "a list of messages" if takes_messages else "a text"
            raise UsageError("invalid_pipeline_input", task=self.task, expected=what, value=shown(inputs))
        return False, inputs

    def _checked(self, given: Mapping[str, Any], asked: Options) -> GenerationConfig:
        """The settings of a call, and all faults that can be told before a text is seen."""
        check_languages(asked, self.model)
        if new := [name for name in NEW_TOKENS if name in asked and asked.get("prefix")]:
            raise UsageError("new_tokens_with_prefix", option=new[0], replacement=NEW_TOKENS[new[0]])
        try:
            return self.model.settings(**_decoding(asked))
        except UsageError as error:
            raise in_their_words(error, given) from None

    def _results(self, texts: Sequence[str], asked: Options, size: int | None) -> list[Result]:
        """In the order of the texts; `size`: so many are decoded together, at most."""
        found: dict[int, Result] = {}
        wishes = Wishes(prefix=asked.get("prefix", ""), constraints=asked.get("constraints", ()))
        prefixes, phrases = wishes.prefixes(len(texts)), wishes.phrases(len(texts))
        for options, places in self._groups(texts, asked):
            for first in range(0, len(places), size or len(places)):
                part = places[first : first + (size or len(places))]
                of_each: Options = {"prefix": [prefixes[n] for n in part]} if wishes.prefix else {}
                of_each |= {"constraints": [phrases[n] for n in part]} if wishes.constraints else {}
                answers = self.model.generate([texts[n] for n in part], **{**options, **of_each})
                found.update(zip(part, answers, strict=True))
        return [found[place] for place in range(len(texts))]

    def _groups(self, texts: Sequence[str], asked: Options) -> Iterator[tuple[Options, list[int]]]:
        """Texts that can be asked for together: new tokens come on top of those of a text that is gone on with."""
        new = {whole: asked[name] for name, whole in NEW_TOKENS.items() if name in asked}
        plain, by_length = _decoding(asked), defaultdict[int, list[int]](list)
        if self._task.reads_whole:
            plain.setdefault("split", False)
        own = self.model.call(texts).source_tokens if new and self._task.continues else [0] * len(texts)
        for place, tokens in enumerate(own):
            by_length[tokens].append(place)
        for tokens, places in by_length.items():
            yield {**plain, **{name: tokens + count for name, count in new.items()}}, places

    def _record(self, given: Any, result: Result, answer: Hypothesis, asked: Options) -> Record:
        text = self._continued(given, result, answer, asked) if self._task.continues else answer.text
        whole = answered(given, text) if self._task.takes_messages else text
        told = {"sentences": len(result.sentences)} if result.joined else {}
        return {self._task.key: whole, **told, **shortcomings(result, answer, ends=not self._task.continues)}

    def _continued(self, given: str, result: Result, answer: Hypothesis, asked: Options) -> str:
        """Behind the text as it was given, not as the tokenizer reads it."""
        read = self.model.target_tokenizer.decode(answer.ids[: result.source_tokens])
        new = answer.text.removeprefix(read)
        if given[-1:].isspace() and not read[-1:].isspace():
            new = new.removeprefix(" ")  # a word that brings its own space, which the text has already
        return given + new if asked.get("return_full_text", True) else new


def _decoding(asked: Options) -> Options:
    """As `TextModel.generate` takes them."""
    own = ("return_full_text", "src_lang", "tgt_lang", *NEW_TOKENS)
    return {name: value for name, value in asked.items() if name not in own}


def _checked_size(batch_size: int | None) -> int | None:
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise UsageError("invalid_batch_size", value=batch_size)
    return batch_size
