"""What a model is asked: a text whole, or sentence by sentence, with what stands between sentences kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attendo.pipelines.text_pipeline import latest_turns, most_tokens
from attendo.serve.apis.openai.requests import Turn
from attendo.serve.http.errors import Refusal
from attendo.serve.scheduling.registry import Served
from attendo.serve.settings import ServeSettings
from attendo.text_model.sentence_splitting import joined, sentences


@dataclass(frozen=True)
class Piece:
    """A sentence for the model, or what is told as it is; `follows`: it stands behind another one in its line."""

    text: str
    asked: bool = True
    follows: bool = False

    def space(self, said: str) -> str:
        """What goes between this and all that was said before it; some scripts have no spaces."""
        return joined([said, "x"])[len(said) : -1] if self.follows else ""


@dataclass(frozen=True)
class Prompt:
    text: str
    pieces: tuple[Piece, ...]

    @property
    def parts(self) -> list[str]:
        """What is for the model."""
        return [piece.text for piece in self.pieces if piece.asked]

    def written(self, answers: Sequence[str]) -> str:
        """With an answer to each part; where there are fewer, up to the first that has none."""
        said, rest = "", iter(answers)
        for piece in self.pieces:
            text = next(rest, None) if piece.asked else piece.text
            if text is None:
                break
            said += piece.space(said) + text
        return said


def by_sentence(served: Served) -> bool:
    """Whether a text is cut for this model, which translates."""
    about = served.about
    translates = about.task == "translation" or (about.task is None and about.target_language is not None)
    return translates and served.model.reads_single_sentences is not False


def prompt_of(text: str, served: Served) -> Prompt:
    """As a model of this kind is to be asked. One that goes on with texts can begin with none."""
    if served.model.decoder_only:
        return Prompt(text, (Piece(text),))
    found = _by_sentence(text) if by_sentence(served) else [Piece(text, asked=bool(text.strip()))]
    return Prompt(text, tuple(piece for piece in found if piece.text))


def source_of(turns: Sequence[Turn], served: Served, settings: ServeSettings) -> str:
    """The last turn of the user; in a conversation as many turns before it as can be read, the latest of them.

    They are joined as the model learned to read them. What a system says is an instruction, which no model here
    understands.
    """
    said = [turn for turn in turns if turn.role in ("user", "assistant")]
    if not said or said[-1].role != "user":
        raise Refusal("no_user_turn", {"param": "messages"})
    texts = [turn.text for turn in said]
    if served.about.task != "conversation":
        return texts[-1]
    model = served.model
    most = min(settings.source_tokens - len(model.generation.source_prefix), most_tokens(model, model.generation))

    def fits(text: str) -> bool:
        return len(text) <= settings.characters and len(model.source_tokenizer.encode(text)) <= most

    return latest_turns(texts, model, served.about.context_turns, fits)


def _by_sentence(text: str) -> Iterator[Piece]:
    """Models that learned from sentences leave out what comes behind the first. What has no letters stays as it is."""
    for line in text.splitlines(keepends=True):
        body = line.strip()
        begin = line.index(body)
        yield Piece(line[:begin], asked=False)
        for number, sentence in enumerate(sentences(body)):
            yield Piece(sentence, any(character.isalpha() for character in sentence), follows=number > 0)
        yield Piece(line[begin + len(body) :], asked=False)
