"""What a model is asked: a text whole, or sentence by sentence, with what stands between sentences kept."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attendo.serve.errors import Refusal
from attendo.serve.openai.requests import Turn
from attendo.serve.settings import ServeSettings
from attendo.serve.shelf import Served
from attendo.text_model import TextModel
from attendo.text_model.splitting import joined, sentences

SEPARATOR = "\n"  # between the turns of a conversation


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


def prompt_of(text: str, served: Served) -> Prompt:
    """As a model of this kind is to be asked."""
    about = served.about
    translates = about.task == "translation" or (about.task is None and about.target_language is not None)
    found = _by_sentence(text) if translates else [Piece(text, asked=bool(text.strip()))]
    return Prompt(tuple(piece for piece in found if piece.text))


def source_of(turns: Sequence[Turn], served: Served, settings: ServeSettings) -> str:
    """The last turn of the user; in a conversation as many turns before it as can be read, the latest of them.

    What a system says is an instruction, which no model here understands.
    """
    said = [turn for turn in turns if turn.role in ("user", "assistant")]
    if not said or said[-1].role != "user":
        raise Refusal("no_user_turn", {"param": "messages"})
    texts = [turn.text for turn in said]
    if served.about.task != "conversation":
        return texts[-1]
    most, encode = _most_tokens(served.model, settings), served.model.source_tokenizer.encode

    def last(count: int) -> str:
        return SEPARATOR.join(texts[len(texts) - count :])

    def too_long(count: int) -> bool:
        return len(last(count)) > settings.characters or len(encode(last(count))) > most

    # Halving: to encode a long conversation turn by turn would hold up others.
    return last(max(1, bisect_left(range(len(texts) + 1), True, lo=1, key=too_long) - 1))


def _most_tokens(model: TextModel, settings: ServeSettings) -> int:
    """That can be read, without what the model puts before every source."""
    limits = (settings.source_tokens, model.generation.max_source, model.runtime.longest)
    return min(limit for limit in limits if limit is not None) - len(model.generation.source_prefix)


def _by_sentence(text: str) -> Iterator[Piece]:
    """Models that learned from sentences leave out what comes behind the first. What has no letters stays as it is."""
    for line in text.splitlines(keepends=True):
        body = line.strip()
        begin = line.index(body)
        yield Piece(line[:begin], asked=False)
        for number, sentence in enumerate(sentences(body)):
            yield Piece(sentence, any(character.isalpha() for character in sentence), follows=number > 0)
        yield Piece(line[begin + len(body) :], asked=False)
