"""Prompts for a model: the full text, or its sentences and the text between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attendo.pipelines.text_pipeline import join_latest_turns, max_source_tokens
from attendo.serve.apis.openai.requests import ChatMessage
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.settings import ServeSettings
from attendo.text_model.sentence_splitting import join_texts, split_sentences


@dataclass(frozen=True)
class PromptSegment:
    """A sentence for the model, or text that is copied. `follows`: another sentence precedes it in the line."""

    text: str
    sent_to_model: bool = True
    follows: bool = False

    def separator(self, preceding: str) -> str:
        """Return the separator after the preceding text: a space, or nothing in scripts without spaces."""
        return join_texts([preceding, "x"])[len(preceding) : -1] if self.follows else ""


@dataclass(frozen=True)
class Prompt:
    text: str
    segments: tuple[PromptSegment, ...]

    @property
    def model_inputs(self) -> list[str]:
        """Return the texts of the segments for the model."""
        return [piece.text for piece in self.segments if piece.sent_to_model]

    def assemble(self, outputs: Sequence[str]) -> str:
        """Join the outputs and the copied segments, up to the first segment without an output."""
        joined, rest = "", iter(outputs)
        for piece in self.segments:
            text = next(rest, None) if piece.sent_to_model else piece.text
            if text is None:
                break
            joined += piece.separator(joined) + text
        return joined


def splits_sentences(served: ServedModel) -> bool:
    """Return whether the model translates texts sentence by sentence."""
    about = served.about
    translates = about.task == "translation" or (about.task is None and about.target_language is not None)
    return translates and served.model.reads_single_sentences is not False


def make_prompt(text: str, served: ServedModel) -> Prompt:
    """Build the prompt for a model. Decoder-only models accept an empty text."""
    if served.model.continues_text:
        return Prompt(text, (PromptSegment(text),))
    found = (
        _split_segments(text) if splits_sentences(served) else [PromptSegment(text, sent_to_model=bool(text.strip()))]
    )
    return Prompt(text, tuple(piece for piece in found if piece.text))


def build_source(messages: Sequence[ChatMessage], served: ServedModel, settings: ServeSettings) -> str:
    """Return the last user message, for conversation models with the latest previous turns that fit.

    Turns are joined as in training. System messages are ignored, because no model follows instructions.
    """
    turns = [turn for turn in messages if turn.role in ("user", "assistant")]
    if not turns or turns[-1].role != "user":
        raise ApiError("no_user_turn", {"param": "messages"})
    texts = [turn.text for turn in turns]
    if served.about.task != "conversation":
        return texts[-1]
    model = served.model
    added = len(model.generation.source_prefix) + len(model.generation.source_suffix)
    most = min(settings.max_source_tokens - added, max_source_tokens(model, model.generation))

    def fits(text: str) -> bool:
        return len(text) <= settings.max_characters and len(model.source_tokenizer.encode(text)) <= most

    return join_latest_turns(texts, model, served.about.context_turns, fits)


def _split_segments(text: str) -> Iterator[PromptSegment]:
    """Split into sentences, because models trained on sentences drop the rest. Text without letters is copied."""
    for line in text.splitlines(keepends=True):
        body = line.strip()
        begin = line.index(body)
        yield PromptSegment(line[:begin], sent_to_model=False)
        for number, sentence in enumerate(split_sentences(body)):
            yield PromptSegment(sentence, any(character.isalpha() for character in sentence), follows=number > 0)
        yield PromptSegment(line[begin + len(body) :], sent_to_model=False)
