"""Any value in any JSON file of an imported folder is accepted if it has no effect, or raises an error with a path."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment
from foreign_models import random_model, written
from foreign_tokenizers import write_bart, write_m2m100, write_marian
from late_import import needs

from attendo.errors import AttendoError
from attendo.interop.import_model import from_folder

pytestmark = needs("transformers")

STRANGE: list[Any] = ["x", 5, True, [1], ["x"], {"x": {}}, {"1": 2}]
FIELDS: dict[str, dict[str, list[str]]] = {
    "marian": {
        "config.json": ["architectures", "is_encoder_decoder", "quantization_config", "max_position_embeddings"],
        "generation_config.json": [
            "num_beams",
            "early_stopping",
            "do_sample",
            "top_k",
            "length_penalty",
            "repetition_penalty",
            "max_new_tokens",
            "min_length",
            "suppress_tokens",
            "begin_suppress_tokens",
            "bad_words_ids",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "sequence_bias",
            "eos_token_id",
        ],
    },
    "bart": {
        "tokenizer_config.json": ["add_prefix_space"],
        "generation_config.json": ["forced_bos_token_id"],
    },
    "m2m_100": {
        "tokenizer_config.json": ["language_codes", "added_tokens_decoder", "src_lang", "legacy_behaviour"],
        "added_tokens.json": ["__en__"],
        "tokenizer.json": ["added_tokens", "model"],
        "generation_config.json": ["forced_bos_token_id"],
    },
}
# Fields that have no effect on these models, so any value is accepted.
UNUSED: dict[str, set[str]] = {
    "marian": {"architectures", "forced_eos_token_id", "sequence_bias", "top_k"},
    "bart": set(),
    "m2m_100": {"model"},
}
WRITE: dict[str, tuple[Callable[[Path], dict[str, int]], int]] = {
    "marian": (write_marian, 0),
    "bart": (write_bart, 0),
    "m2m_100": (write_m2m100, 108),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FIELDS)
def test_unexpected_json_values_raise_attendo_errors(kind: str, tmp_path: Path) -> None:
    write, more = WRITE[kind]
    size = len(write(tmp_path)) + more
    special_ids = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1} if kind == "marian" else {}
    written(random_model(kind, vocab_size=size, decoder_layers=1, **special_ids), tmp_path)
    from_folder(tmp_path)  # the folder is valid before each change
    rejected: set[str] = set()
    for file, names in FIELDS[kind].items():
        path = tmp_path / file
        before = path.read_text("utf-8") if path.is_file() else None
        for name in names:
            for value in STRANGE:
                path.write_text(json.dumps({**json.loads(before or "{}"), name: value}), "utf-8")
                try:
                    from_folder(tmp_path)
                except AttendoError as error:
                    rejected.add(name)
                    text = str(error)
                    assert str(tmp_path) in text or fragment("language_not_in_model") in text, (file, name, value)
        path.unlink() if before is None else path.write_text(before, "utf-8")
    assert {name for names in FIELDS[kind].values() for name in names} - rejected == UNUSED[kind]
