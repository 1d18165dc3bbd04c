"""Tiny folders of transformers with random weights and a tokenizer, one for each family that attendo imports."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foreign_models import random_model, written
from foreign_tokenizers import (
    write_bart,
    write_blenderbot,
    write_m2m100,
    write_marian,
    write_mbart,
    write_mbart25,
    write_nllb,
    write_pegasus,
    write_plbart,
)

POSITIONS = 400  # enough for sources and outputs of more than 130 tokens


def make_folder(name: str, folder: Path, **changes: Any) -> Path:
    """Write the folder of one of `FOLDERS`. `changes` are settings of its config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    kind, write = FOLDERS[name]
    size, settings = write(folder)
    sizes = {"vocab_size": size, "max_position_embeddings": POSITIONS, "decoder_layers": 1}
    return written(random_model(kind, **{**sizes, **settings, **changes}), folder)


def _marian(folder: Path) -> tuple[int, dict[str, Any]]:
    size = len(write_marian(folder))
    return size, {"pad_token_id": size - 1, "decoder_start_token_id": size - 1}


def _small100(folder: Path) -> tuple[int, dict[str, Any]]:
    size = len(write_m2m100(folder)) + 108
    settings = {"tokenizer_class": "SMALL100Tokenizer", "tgt_lang": "fr"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return size, {"decoder_start_token_id": 2}


def _m2m100(folder: Path) -> tuple[int, dict[str, Any]]:
    size = len(write_m2m100(folder)) + 108
    settings = {"tokenizer_class": "M2M100Tokenizer", "src_lang": "en", "tgt_lang": "fr"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return size, {}


def _nllb(folder: Path, legacy: bool = False) -> tuple[int, dict[str, Any]]:
    size = write_nllb(folder)
    _change_json(folder / "tokenizer_config.json", tgt_lang="fra_Latn", legacy_behaviour=legacy)
    return size, {"decoder_start_token_id": 2}


def _mbart(folder: Path) -> tuple[int, dict[str, Any]]:
    size = write_mbart(folder)
    _change_json(folder / "tokenizer_config.json", tgt_lang="de_DE")
    return size, {"decoder_start_token_id": 2}


def _mbart25(folder: Path) -> tuple[int, dict[str, Any]]:
    size = write_mbart25(folder)
    (folder / "tokenizer_config.json").write_text('{"src_lang": "en_XX"}', "utf-8")
    return size, {"decoder_start_token_id": size - 1 - 25 + 19}  # ro_RO


def _plbart(folder: Path) -> tuple[int, dict[str, Any]]:
    size = write_plbart(folder)
    return size, {"decoder_start_token_id": size - 2}  # __en_XX__


def _change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


FOLDERS: dict[str, tuple[str, Callable[[Path], tuple[int, dict[str, Any]]]]] = {
    "marian": ("marian", _marian),
    "bart": ("bart", lambda folder: (len(write_bart(folder)), {})),
    "mvp": ("mvp", lambda folder: (len(write_bart(folder)), {})),
    "blenderbot": ("blenderbot", lambda folder: (len(write_blenderbot(folder)), {})),
    "pegasus": ("pegasus", lambda folder: (write_pegasus(folder), {})),
    "m2m100": ("m2m_100", _m2m100),
    "nllb": ("m2m_100", _nllb),
    "nllb-legacy": ("m2m_100", lambda folder: _nllb(folder, legacy=True)),
    "small100": ("m2m_100", _small100),
    "mbart50": ("mbart", _mbart),
    "mbart25": ("mbart", _mbart25),
    "plbart": ("plbart", _plbart),
}
