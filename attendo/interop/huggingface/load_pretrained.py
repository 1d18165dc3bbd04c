"""Opens models and tokenizers of transformers without running code from their folder.

transformers runs Python files of a folder if a JSON file there names them and the user types `y`. attendo loads a
concrete class from a temporary folder instead. That folder holds the known weight and vocabulary files, and new JSON
files with the known settings.
"""

import inspect
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from attendo.errors import ModelError, cut_text
from attendo.interop.families import FAMILY_BY_TYPE
from attendo.interop.huggingface.folder import (
    CONFIG,
    INDEX,
    HuggingFaceFolder,
    no_progress_bars,
    read_json,
    weight_files,
)
from attendo.interop.huggingface.t5_settings import T5_CLASSES, prepare_t5_oracle
from attendo.interop.huggingface.t5gemma2_settings import prepare_t5gemma2_oracle

_RENAMED = {"SMALL100Tokenizer": "M2M100Tokenizer", "MvpTokenizer": "BartTokenizer"}  # classes with the same ids
GENERIC_TOKENIZERS = ("PreTrainedTokenizer", "TokenizersBackend")  # need only tokenizer.json
_TOKENIZER_CONFIG, _SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
_VOCABULARIES = (
    *("source.spm", "target.spm", "vocab.json", "target_vocab.json", "merges.txt", "spiece.model"),
    *("sentencepiece.bpe.model", "tokenizer.model", "tokenizer.json", "added_tokens.json"),
)
# An allowlist: other settings can name files or pass arguments to the tokenizer's libraries.
_TOKENIZER_SETTINGS = frozenset(
    (
        *("add_prefix_space", "added_tokens_decoder", "additional_special_tokens", "clean_up_tokenization_spaces"),
        *("errors", "extra_ids", "extra_special_tokens", "language_codes", "legacy_behaviour", "mask_token_sent"),
        *("model_max_length", "num_madeup_words", "offset", "padding_side", "separate_vocabs", "source_lang"),
        *("src_lang", "target_lang", "tgt_lang", "trim_offsets", "truncation_side"),
        *(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")),
    )
)


def open_model(folder: HuggingFaceFolder) -> Any:
    """Load the model in evaluation mode, in float32. Errors of transformers are passed on."""
    import transformers

    model_class = getattr(transformers, FAMILY_BY_TYPE[folder.model_type].model_class or "")
    config_class = model_class.config_class
    # Skip settings of the base class: they can name files, code and kernels, and do not change the network's output.
    both = (config_class, transformers.PretrainedConfig)
    own, base = (inspect.signature(each.__init__).parameters.keys() for each in both)
    config = config_class(**{name: value for name, value in folder.settings.items() if name in own - base})
    with tempfile.TemporaryDirectory(prefix="attendo-") as name, no_progress_bars(), _errors_only():
        temporary = Path(name)
        _write_json(temporary / CONFIG, config.to_dict())
        for file in weight_files(folder.path):
            _link(file, temporary / file.name)
        if (folder.path / INDEX).is_file():
            _write_json(temporary / INDEX, {"metadata": {}, "weight_map": read_json(folder.path / INDEX)["weight_map"]})
        model = model_class.from_pretrained(
            temporary,
            config=config,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
        )
    if folder.model_type == "t5gemma2":
        model = prepare_t5gemma2_oracle(model)
    return (prepare_t5_oracle(model, folder) if folder.model_type in T5_CLASSES else model).eval()


@contextmanager
def _errors_only() -> Iterator[None]:
    """Hide warnings of transformers. It warns about every T5 1.1 that its output table is not tied."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def open_tokenizer(path: Path, model_type: str, default: str | None = None) -> Any:
    """Load the tokenizer of a folder with this model_type. Errors of transformers are passed on.

    `default` is the class if no file names one.
    """
    import transformers

    settings = _list_known_settings(path / _TOKENIZER_CONFIG)
    tokenizer_class = getattr(transformers, _choose_class(path, model_type, default))
    with tempfile.TemporaryDirectory(prefix="attendo-") as name, warnings.catch_warnings():
        temporary = Path(name)
        warnings.simplefilter("ignore")  # recommendations of packages
        _write_json(temporary / _TOKENIZER_CONFIG, settings)
        if tokens := _list_known_settings(path / _SPECIAL_TOKENS):
            _write_json(temporary / _SPECIAL_TOKENS, tokens)
        for file in _VOCABULARIES:
            if (path / file).is_file():
                _link(path / file, temporary / file)
        return tokenizer_class.from_pretrained(temporary, local_files_only=True, trust_remote_code=False)


def find_tokenizer_class(path: Path) -> str | None:
    """Return the tokenizer class that a file of the folder names, or None."""
    files = [each for each in (path / _TOKENIZER_CONFIG, path / CONFIG) if each.is_file()]
    found = (read_json(file).get("tokenizer_class") for file in files)
    return next((str(each).removesuffix("Fast") for each in found if each is not None), None)


def require_tokenizer_class(path: Path, model_type: str) -> str | None:
    """Return the class that a file names, which must be one of the family; None without one or for a generic class."""
    name, known = find_tokenizer_class(path), FAMILY_BY_TYPE[model_type].tokenizer_classes
    if name is None or name in GENERIC_TOKENIZERS:
        return None
    if name not in known:
        raise ModelError("tokenizer_class_unsupported", path=path, name=cut_text(name, 40), known=", ".join(known))
    return name


def _choose_class(path: Path, model_type: str, default: str | None) -> str:
    """Return a class of transformers: the one that a file names, or `default`, or the first of the family."""
    if name := require_tokenizer_class(path, model_type):
        return _RENAMED.get(name, name)
    if find_tokenizer_class(path) is not None and (path / "tokenizer.json").is_file():
        return "PreTrainedTokenizerFast"
    return default or FAMILY_BY_TYPE[model_type].tokenizer_classes[0]


def _list_known_settings(path: Path) -> dict[str, Any]:
    content: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    return {name: value for name, value in content.items() if name in _TOKENIZER_SETTINGS}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, default=str), "utf-8")


def _link(file: Path, link: Path) -> None:
    """Create a symbolic link, or a copy if the system does not allow links, as on Windows."""
    try:
        link.symlink_to(file.resolve())
    except OSError:
        shutil.copyfile(file, link)
