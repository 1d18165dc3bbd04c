"""Reader of Pegasus folders of transformers: Marian's network with pre-norm, and a SentencePiece model.

Pre-norm models that attendo exported have the tokenizer files of Marian.
"""

from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import exclude_prefix_from_limit, import_generation
from attendo.interop.huggingface.imported import ImportedModel, read_token_id
from attendo.interop.huggingface.load_pretrained import require_tokenizer_class
from attendo.interop.huggingface.read_marian import from_marian
from attendo.interop.huggingface.read_tokenizers import (
    build_names_and_symbols,
    has_tokenizer_model,
    read_added_tokens,
    read_pieces,
    read_sentencepiece_json,
    require_fit,
)
from attendo.interop.huggingface.read_weights import BART_DEFAULTS, build_network, read_settings
from attendo.interop.huggingface.vocabulary import build_permutation
from attendo.model_files import COPY_AGAIN, read_bytes
from attendo.text.imported_sentencepiece import ImportedSentencePiece

PEGASUS_CHOICES = {"norm": "pre", "positions": "sinusoidal", "position_layout": "halves"}
_SENTENCEPIECE_FILE = "spiece.model"
_OFFSET = 103
_NUM_FIRST_PIECES = 2  # pad and eos have the same ids as in the SentencePiece model
# Tokens of the pre-training, between eos and the other pieces.
_SPECIAL_NAMES = ("<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, _OFFSET)))


def from_pegasus(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> ImportedModel:
    """Read a model. Without tokenizers the folder needs only config.json and weights."""
    if not with_tokenizers or (folder.path / "source.spm").is_file():
        return from_marian(folder, with_tokenizers)
    require_tokenizer_class(folder.path, folder.model_type)
    settings = read_settings(folder, BART_DEFAULTS)
    pad, eos = read_token_id(folder, "pad_token_id", 0), read_token_id(folder, "eos_token_id", 1)
    start = read_token_id(folder, "decoder_start_token_id", pad)
    model, vocabulary = _read_vocabulary(folder)
    require_fit(folder.path, vocabulary, settings["vocab_size"])
    first = sorted(vocabulary[name] for name in _SPECIAL_NAMES if name in vocabulary)
    order = build_permutation(settings["vocab_size"], pad, vocabulary.get("<unk>"), start, eos, first)
    network = build_network(folder, settings, PEGASUS_CHOICES, order, order)
    names, symbols = build_names_and_symbols(vocabulary, order, first)
    tokenizer = ImportedSentencePiece(model, names, symbols)
    generation, notes = import_generation(folder, order, symbols)
    generation = exclude_prefix_from_limit(generation)
    return ImportedModel(folder, network, order, order, tokenizer, tokenizer, generation, tuple(notes))


def _read_vocabulary(folder: HuggingFaceFolder) -> tuple[bytes, dict[str, int]]:
    """Return the SentencePiece model and the ids. Without spiece.model, tokenizer.json has both."""
    if not (folder.path / _SENTENCEPIECE_FILE).is_file() and has_tokenizer_model(folder):
        model, vocabulary = read_sentencepiece_json(folder)
        return model, {**vocabulary, **read_added_tokens(folder)}
    path = folder.require_file(_SENTENCEPIECE_FILE)
    model = read_bytes(path, COPY_AGAIN)
    pieces = [piece.text for piece in read_pieces(path, model)]
    # BigBird-Pegasus has the same class without these tokens.
    offset = folder.json_field("tokenizer_config.json", "offset").look_up({_OFFSET: _OFFSET, 0: 0}, _OFFSET)
    first = ["<pad>", "</s>", *(_SPECIAL_NAMES if offset else ())]
    following = {piece: token for token, piece in enumerate(pieces[_NUM_FIRST_PIECES:], start=len(first))}
    return model, {**following, **{name: token for token, name in enumerate(first)}}
