"""Vocabularies of Marian: YAML, JSON, plain text or SentencePiece. Ids are found by name, never by position.

The order of the tokens depends on the tool that wrote the file: `marian-vocab` writes `</s>` first, OPUS's own tool
sorts by text, and a vocabulary made from SentencePiece begins with `<unk>`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from attendo.errors import ModelError, cut_line, shorten
from attendo.interop.marian.archive import GZIP_SUFFIX, MAX_VOCABULARY_BYTES, ModelFiles
from attendo.interop.marian.yaml_text import YamlTextError, read_key, read_scalar
from attendo.model_files import COPY_AGAIN, parse_json
from attendo.text.sentencepiece import PieceType, iter_pieces, open_processor

EOS_NAME, UNK_NAME = "</s>", "<unk>"
# Names of Nematus, which Marian accepts with these ids.
_NEMATUS_NAMES = {EOS_NAME: ("eos", 0), UNK_NAME: ("UNK", 1)}
_YAML_SUFFIXES = (".yml", ".yaml", ".json")
_SENTENCEPIECE_SUFFIX = ".spm"
_FACTORED_SUFFIX = ".fsv"
_MAX_ID_DIGITS = 9
_MAX_LINE_CHARS = 60  # of a line in a message


@dataclass(frozen=True)
class MarianVocabulary:
    """Tokens with their ids, which are unique. `model` is the SentencePiece model, if the vocabulary is one."""

    path: str
    ids: dict[str, int]
    model: bytes | None = None

    @property
    def eos(self) -> int:
        return self._find(EOS_NAME)

    @property
    def unk(self) -> int:
        return self._find(UNK_NAME)

    def _find(self, name: str) -> int:
        if name in self.ids:
            return self.ids[name]
        old_name, old_id = _NEMATUS_NAMES[name]
        if self.ids.get(old_name) == old_id:
            return old_id
        raise ModelError("marian_vocabulary_lacks_token", path=self.path, token=name)


def read_vocabulary(files: ModelFiles, name: str) -> MarianVocabulary:
    """Read a vocabulary. A fault raises a `ModelError`."""
    path = files.describe(name)
    if name.endswith(_FACTORED_SUFFIX):
        raise ModelError("marian_vocabulary_factored", path=path)
    content = files.read(name, MAX_VOCABULARY_BYTES)
    name = name.removesuffix(GZIP_SUFFIX)
    if name.endswith(_SENTENCEPIECE_SUFFIX):
        return _read_sentencepiece(path, content)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError("model_file_not_utf8", path=path, fix=COPY_AGAIN) from None
    vocabulary = _read_yaml(path, text) if name.endswith(_YAML_SUFFIXES) else _read_lines(path, text)
    _ = vocabulary.eos, vocabulary.unk
    return vocabulary


def _read_sentencepiece(path: str, model: bytes) -> MarianVocabulary:
    try:
        processor = open_processor(model)
        pieces = list(iter_pieces(model))
    except ModelError:
        raise ModelError("sentencepiece_model_invalid", path=path) from None
    # SentencePiece's own pieces may have other names than `</s>` and `<unk>`.
    names = {processor.eos_id(): EOS_NAME, processor.unk_id(): UNK_NAME}
    ids = {names.get(number, piece.text): number for number, piece in enumerate(pieces)}
    if len(ids) < len(pieces) or any(piece.type == PieceType.UNUSED for piece in pieces):
        raise ModelError("sentencepiece_model_invalid", path=path)
    vocabulary = MarianVocabulary(path, ids, model)
    _ = vocabulary.eos, vocabulary.unk
    return vocabulary


def _read_lines(path: str, text: str) -> MarianVocabulary:
    """Read one token per line. The id is the number of the line."""
    lines = text.removesuffix("\n").split("\n")
    ids = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    if "" in ids or len(ids) < len(lines):
        seen: set[str] = set()
        for number, line in enumerate(lines, start=1):
            token = line.removesuffix("\r")
            if not token or token in seen:
                raise _make_line_error(path, number, line)
            seen.add(token)
    return MarianVocabulary(path, ids)


def _read_yaml(path: str, text: str) -> MarianVocabulary:
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("{"):
        return _read_json(path, text)
    ids: dict[str, int] = {}
    for number, line, token, value in _iter_pairs(path, text):
        if not (value.isascii() and value.isdigit()) or len(value) > _MAX_ID_DIGITS or token in ids:
            raise _make_line_error(path, number, line)
        ids[token] = int(value)
    return _require_unique(path, ids)


def _iter_pairs(path: str, text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield the number of a line, the line, its token and the text of its id. A long key has two lines."""
    long_key: str | None = None
    for number, full_line in enumerate(text.split("\n"), start=1):
        line = full_line.removesuffix("\r")
        if not line.strip(" ") or line in ("---", "...") or line.startswith("# "):
            continue
        try:
            if long_key is not None:
                key, (empty, value) = long_key, read_key(line)
                long_key = None
                if empty:
                    raise YamlTextError
            elif line.startswith("? "):
                long_key = read_scalar(line[2:].strip()) if line[2:].strip()[:1] in "\"'" else line[2:].strip()
                continue
            else:
                key, value = read_key(line.strip(" "))
        except YamlTextError:
            raise _make_line_error(path, number, line) from None
        yield number, line, key, value


def _read_json(path: str, text: str) -> MarianVocabulary:
    try:
        ids = parse_json(text.encode("utf-8"))
    except ValueError as error:
        raise ModelError("json_syntax_invalid", path=path, reason=error, fix=COPY_AGAIN) from None
    if not isinstance(ids, dict) or not all(
        type(each) is int and 0 <= each < 10**_MAX_ID_DIGITS for each in ids.values()
    ):
        raise ModelError("vocabulary_ids_invalid", path=path)
    return _require_unique(path, ids)


def _require_unique(path: str, ids: dict[str, int]) -> MarianVocabulary:
    if not ids or len(set(ids.values())) < len(ids):
        raise ModelError("vocabulary_ids_invalid", path=path)
    return MarianVocabulary(path, ids)


def _make_line_error(path: str, number: int, line: str) -> ModelError:
    return ModelError(
        "marian_vocabulary_line_invalid", path=path, line=number, text=shorten(cut_line(line, _MAX_LINE_CHARS))
    )
