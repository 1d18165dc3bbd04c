"""Reads a model of Marian: a folder, a zip file as OPUS-MT publishes it, or one of several `decoder.yml` of a folder.

*.npz or *.bin  decoder.yml  the vocabularies it names  source.spm  target.spm

A folder of Firefox Translations has no decoder.yml: model.*.bin, and vocab.*.spm or srcvocab.*.spm and trgvocab.*.spm.
Its files may be compressed (.gz).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.decode.presets import preset
from attendo.errors import MessagePart, ModelError, UsageError, cut_text, list_names, shorten
from attendo.interop.huggingface.read_tokenizers import (
    build_names_and_symbols,
    check_sentencepiece_model,
    missing_piece_notes,
    non_text_ids,
    read_pieces,
)
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, build_permutation
from attendo.interop.marian.archive import (
    GZIP_SUFFIX,
    MAX_SETTINGS_BYTES,
    MAX_VOCABULARY_BYTES,
    ModelFiles,
    base_name,
    is_zip_file,
    open_folder,
    open_zip,
)
from attendo.interop.marian.bin_file import open_bin
from attendo.interop.marian.imported import ImportedMarian, MarianFolder
from attendo.interop.marian.network_settings import read_config, tie
from attendo.interop.marian.npz import open_npz
from attendo.interop.marian.read_weights import TableNames, read_network
from attendo.interop.marian.settings import MarianSettings, parse_settings
from attendo.interop.marian.vocabulary import EOS_NAME, UNK_NAME, MarianVocabulary, read_vocabulary
from attendo.interop.marian.weight_file import SETTINGS_TENSOR, WeightFile
from attendo.text import Tokenizer
from attendo.text.characters import WhitespaceTokenizer
from attendo.text.imported_sentencepiece import ImportedSentencePiece

DECODER_FILE, DECODER_SUFFIX = "decoder.yml", ".decoder.yml"
_NPZ_SUFFIX, _BIN_SUFFIX = ".npz", ".bin"
# Of Firefox Translations. A shortlist (lex.*.bin) only limits the output vocabulary, for speed.
_FIREFOX_MODEL, _FIREFOX_VOCABULARIES = "model.", (("vocab.", "vocab."), ("srcvocab.", "trgvocab."))
_FIREFOX_DECODER = {"beam-size": "1", "normalize": "1.0", "max-length-factor": "2.0"}  # as Firefox decodes
_SOURCE_BPE, _PREPROCESS = "source.bpe", "preprocess.sh"
_CONFIG_FILE = "config.json"  # of transformers
_MIN_KNOWN_SHARE = 0.5  # of SentencePiece's pieces; Marian's vocabulary has only those that its training text has
_DEFAULT_BEAM, _DEFAULT_LENGTH_FACTOR = 12, 3.0  # of Marian's decoder
# Settings of decoder.yml that change translations and that attendo does not have, with their neutral values.
_UNSUPPORTED = {
    "shortlist": (),
    "output-sampling": (),
    "skip-cost": "false",
    "force-decode": "false",
    "allow-special": "false",
    "max-length-crop": "false",
    "no-spm-decode": "false",
    "no-spm-encode": "false",
}


def is_marian(path: str | Path) -> bool:
    """Return whether a path looks like a model of Marian: a zip file, a decoder.yml, or a folder with one or with
    weights."""
    path = Path(path)
    if path.is_file():
        return is_decoder_file(path.name) or is_zip_file(path)
    if not path.is_dir():
        return False
    names = [each.name for each in path.iterdir()]
    if any(map(is_decoder_file, names)):
        return True
    has_weights = any(name.endswith(_NPZ_SUFFIX) for name in names) or _find_firefox_model(names) is not None
    return has_weights and _CONFIG_FILE not in names


def is_decoder_file(name: str) -> bool:
    return name == DECODER_FILE or name.endswith(DECODER_SUFFIX)


def read_marian(path: str | Path) -> ImportedMarian:
    """Read a model. Missing, damaged or unsupported files raise a `ModelError` that names them."""
    files, decoder = _find_decoder(Path(path))
    folder = _find_files(files, decoder)
    with open_weights(folder) as file:
        settings = _read_model_settings(file)
        vocabularies = _read_vocabularies(folder, settings, file)
        orders = _permutation(vocabularies[0]), _permutation(vocabularies[1])
        config = read_config(settings, (orders[0].size, orders[1].size))
        _check_depth(config.num_encoder_layers + config.num_decoder_layers, file, settings)
        tables = TableNames.find(tie(settings), file.shapes())
        network = read_network(file, config, tables, *orders)
    tokenizers = _tokenizers(folder, vocabularies, orders)
    notes = [*_describe_settings(decoder), *_describe_files(folder, vocabularies, tokenizers)]
    if config.norm == "pre":
        notes.append(MessagePart("marian_decodes_pre_norm_wrong"))
    generation = _read_generation(decoder)
    return ImportedMarian(folder, network, *orders, *tokenizers, generation, tuple(notes))


@contextmanager
def open_weights(folder: MarianFolder) -> Iterator[WeightFile]:
    """Open the weights of a model."""
    is_npz = folder.weights.endswith(_NPZ_SUFFIX)
    with (open_npz if is_npz else open_bin)(folder.files, folder.weights) as file:
        yield file


def _find_firefox_model(names: Sequence[str]) -> tuple[str, str, str] | None:
    """Return the weights and both vocabularies of a folder of Firefox Translations, or None if it is something else."""
    uncompressed = {name.removesuffix(GZIP_SUFFIX): name for name in sorted(names, reverse=True)}
    models = [each for each in uncompressed if each.startswith(_FIREFOX_MODEL) and each.endswith(_BIN_SUFFIX)]
    for prefixes in _FIREFOX_VOCABULARIES:
        found = [[each for each in uncompressed if each.startswith(p) and each.endswith(".spm")] for p in prefixes]
        if len(models) == 1 and all(len(each) == 1 for each in found):
            return uncompressed[models[0]], uncompressed[found[0][0]], uncompressed[found[1][0]]
    return None


def _find_decoder(path: Path) -> tuple[ModelFiles, MarianSettings]:
    """Return the files and the settings of the decoder, which name the other files."""
    if path.is_file() and is_decoder_file(path.name):
        files, names = open_folder(path.absolute().parent), [path.name]
    else:
        files = open_zip(path) if path.is_file() else open_folder(path)
        names = [name for name in files.names if is_decoder_file(name)]
        names = [DECODER_FILE] if DECODER_FILE in names else names
    if not names and (firefox := _find_firefox_model(files.names)) is not None:
        named = {"models": firefox[:1], "vocabs": firefox[1:]}
        return files, MarianSettings(str(path), {**named, **_FIREFOX_DECODER})
    if len(names) != 1:
        listing = list_names(names or files.names) or "nothing"
        code = "marian_decoder_files_several" if names else "marian_decoder_file_missing"
        raise ModelError(code, path=path, file=DECODER_FILE, files=listing)
    return files, parse_settings(files.describe(names[0]), files.read(names[0], MAX_SETTINGS_BYTES))


def _find_files(files: ModelFiles, decoder: MarianSettings) -> MarianFolder:
    """Return the names of the model and its vocabularies. Only base names of the paths in decoder.yml are used."""
    models, vocabularies = ([*map(base_name, decoder.items(name))] for name in ("models", "vocabs"))
    if len(models) != 1:
        raise ModelError("marian_models_several", path=decoder.path, count=len(models))
    if len(vocabularies) != 2:
        raise ModelError("marian_vocabularies_not_two", path=decoder.path, count=len(vocabularies))
    if not models[0].removesuffix(GZIP_SUFFIX).endswith((_NPZ_SUFFIX, _BIN_SUFFIX)):
        raise ModelError("marian_weight_file_unsupported", path=decoder.path, file=cut_text(models[0]))
    if _SOURCE_BPE in files.entries:
        raise ModelError("marian_bpe_unsupported", path=files.path, file=_SOURCE_BPE)
    return MarianFolder(files, models[0], (vocabularies[0], vocabularies[1]))


def _read_model_settings(file: WeightFile) -> MarianSettings:
    if SETTINGS_TENSOR not in file.headers:
        raise ModelError("marian_model_settings_missing", path=file.path, tensor=SETTINGS_TENSOR)
    return parse_settings(f"{file.path}: {SETTINGS_TENSOR}", file.read_bytes(SETTINGS_TENSOR))


def _check_depth(layers: int, file: WeightFile, settings: MarianSettings) -> None:
    """Refuse more layers than weights before a network is described."""
    if layers > len(file.headers):
        raise ModelError("marian_layers_exceed_weights", path=settings.path, layers=layers, count=len(file.headers))


def _read_vocabularies(
    folder: MarianFolder, settings: MarianSettings, file: WeightFile
) -> tuple["_SizedVocabulary", "_SizedVocabulary"]:
    """Return both vocabularies, the same object if they are one file."""
    names, shapes = folder.vocabularies, file.shapes()
    tables = TableNames.find(tie(settings), shapes)
    sizes = [shapes[table][0] if shapes.get(table) else 0 for table in (tables.source, tables.target)]
    if missing := [table for table in (tables.source, tables.target) if not shapes.get(table)]:
        fault = MessagePart("weight_missing", name=missing[0])
        raise ModelError("marian_weights_mismatch", path=file.path, faults=fault)
    declared = settings.counts("dim-vocabs")
    if declared and any(declared) and list(declared) != sizes:
        raise ModelError("marian_vocabulary_sizes_differ", path=settings.path, declared=list(declared), rows=sizes)
    split = _sentencepiece_pieces(folder.files)
    source = _SizedVocabulary(read_vocabulary(folder.files, names[0]), sizes[0], split)
    same = names[0] == names[1] and sizes[0] == sizes[1]
    target = source if same else _SizedVocabulary(read_vocabulary(folder.files, names[1]), sizes[1], split)
    if tables.source == tables.target and _permutation(source) != _permutation(target):
        raise ModelError("marian_tied_vocabularies_differ", path=folder.path, files=" / ".join(names))
    return source, target


def _sentencepiece_pieces(files: ModelFiles) -> set[str]:
    """Return the pieces of source.spm and target.spm."""
    pieces: set[str] = set()
    for name in (f"{side}.spm" for side in ("source", "target")):
        if name in files.entries:
            model = files.read(name, MAX_VOCABULARY_BYTES)
            pieces.update(piece.text for piece in read_pieces(Path(files.describe(name)), model))
    return pieces


class _SizedVocabulary:
    """A vocabulary, the number of rows of its table, which may be larger, and SentencePiece's own pieces."""

    def __init__(self, vocabulary: MarianVocabulary, rows: int, split: set[str]) -> None:
        self.vocabulary, self.rows, self._split = vocabulary, rows, split
        token, last = max(vocabulary.ids.items(), key=lambda each: each[1])
        if last >= rows:
            path = vocabulary.path
            raise ModelError(
                "marian_vocabulary_exceeds_table", path=path, piece=shorten(token), token_id=last, rows=rows
            )

    @property
    def first(self) -> list[int]:
        """The ids of language labels such as `>>fra<<`, which start multilingual sources, and of other non-text.

        Labels that SentencePiece has as pieces are not among them, because it splits the text as a whole.
        """
        if self.vocabulary.model is not None:
            return []
        ids = self.vocabulary.ids
        labels = (token for token in ids if token.startswith(">>") and token.endswith("<<"))
        return [*sorted(ids[label] for label in labels if label not in self._split), *non_text_ids(ids)]

    @property
    def pieces(self) -> dict[str, int]:
        """The ids by piece, with the usual names of the end and of unknown tokens."""
        renamed = {self.vocabulary.eos: EOS_NAME, self.vocabulary.unk: UNK_NAME}
        return {renamed.get(each, token): each for token, each in self.vocabulary.ids.items()}


def _permutation(sized: _SizedVocabulary) -> VocabularyPermutation:
    """Return the permutation. Marian has no pad and starts from a zero vector: both are one additional row."""
    unk, eos, last = sized.vocabulary.unk, sized.vocabulary.eos, sized.rows
    return build_permutation(sized.rows + 1, last, unk, last, eos, sized.first)


def _tokenizers(
    folder: MarianFolder,
    vocabularies: tuple[_SizedVocabulary, _SizedVocabulary],
    orders: tuple[VocabularyPermutation, VocabularyPermutation],
) -> tuple[Tokenizer, Tokenizer]:
    """Return both tokenizers, the same object if they are equal."""
    sides = zip(("source", "target"), vocabularies, orders, strict=True)
    source, target = (_tokenizer(folder, *side) for side in sides)
    return (source, source) if source == target else (source, target)


def _tokenizer(folder: MarianFolder, side: str, sized: _SizedVocabulary, order: VocabularyPermutation) -> Tokenizer:
    """Return SentencePiece with the vocabulary's ids, or words between spaces if there is no SentencePiece model."""
    files, name, model = folder.files, f"{side}.spm", sized.vocabulary.model
    if model is None and name in files.entries:
        model = files.read(name, MAX_VOCABULARY_BYTES)
        check_sentencepiece_model(Path(files.describe(name)), model, sized.pieces, _MIN_KNOWN_SHARE)
    try:
        names, symbols = build_names_and_symbols(sized.pieces, order, sized.first)
        if model is not None:
            return ImportedSentencePiece(model, names, symbols)
        return WhitespaceTokenizer(_without_spaces(names), symbols)
    except UsageError as error:
        raise ModelError("marian_vocabulary_invalid", path=sized.vocabulary.path, error=error) from None


def _without_spaces(names: Sequence[str]) -> tuple[str, ...]:
    """Replace white space in names, which no text between spaces has."""
    changed: dict[str, None] = {}
    for name in names:
        each = "_".join(name.split()) or "_"
        while each in changed:
            each = f"<{each}>"
        changed[each] = None
    return tuple(changed)


def _read_generation(decoder: MarianSettings) -> dict[str, Any]:
    """Return the decoding defaults. Settings missing in decoder.yml have Marian's defaults."""
    options = {
        "beam": decoder.count("beam-size", _DEFAULT_BEAM),
        "length_penalty": _read_normalize(decoder),
        "word_penalty": decoder.number("word-penalty", 0.0),
        "max_length_factor": decoder.number("max-length-factor", _DEFAULT_LENGTH_FACTOR),
        "allow_unk": decoder.flag("allow-unk"),
    }
    try:
        settings = preset("marian", options).model_dump(mode="json")
    except UsageError as error:
        raise ModelError("decoding_defaults_invalid", path=decoder.path, error=error) from None
    defaults = GenerationConfig().model_dump(mode="json")
    return {name: value for name, value in settings.items() if value != defaults[name]}


def _read_normalize(decoder: MarianSettings) -> float:
    """Return the exponent of the length. Old files have a flag, which means 1."""
    if decoder.values.get("normalize") in ("true", "false"):
        return float(decoder.flag("normalize"))
    return decoder.number("normalize", 0.0)


def _describe_settings(decoder: MarianSettings) -> Iterator[MessagePart]:
    for name, neutral in _UNSUPPORTED.items():
        value = decoder.values.get(name, neutral)
        if value not in (neutral, (), "", ("",)):
            shown = value if isinstance(value, str) else " ".join(value)
            yield MessagePart("setting_not_imported", name=name, value=cut_text(shown))
    factor = decoder.number("max-length-factor", _DEFAULT_LENGTH_FACTOR)
    if not factor.is_integer():
        yield MessagePart("marian_length_factor_fraction", factor=factor)


def _describe_files(
    folder: MarianFolder,
    vocabularies: tuple[_SizedVocabulary, _SizedVocabulary],
    tokenizers: tuple[Tokenizer, Tokenizer],
) -> Iterator[MessagePart]:
    for side, sized, tokenizer in zip(("source", "target"), vocabularies, tokenizers, strict=True):
        if not isinstance(tokenizer, ImportedSentencePiece):
            yield MessagePart("marian_reads_words", side=side)
        elif sized.vocabulary.model is None:
            yield from missing_piece_notes(Path(f"{side}.spm"), tokenizer.model, sized.pieces)
    if _PREPROCESS in folder.files.entries:
        yield MessagePart("marian_preprocess_not_run", file=_PREPROCESS)
