"""Tokenizer settings: settings without effect are rejected, and dumped settings load again."""

from pathlib import Path

import pytest
from error_codes import has_code

from attendo.errors import UsageError
from attendo.text.config import TokenizerConfig


def test_a_size_for_bytes_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("byte_vocabulary_size_fixed", size=8000)):
        TokenizerConfig(kind="bytes", size=8000)
    assert TokenizerConfig(kind="bytes").kind == "bytes"


def test_dumped_settings_load_equal() -> None:
    for config in (TokenizerConfig(kind="bytes", symbols=("<x>",)), TokenizerConfig(), TokenizerConfig(size=300)):
        assert TokenizerConfig(**config.model_dump()) == config
        assert TokenizerConfig(**config.model_dump(mode="json")) == config
    assert TokenizerConfig().model_dump()["size"] == 8000
    assert "size" not in TokenizerConfig(kind="bytes").model_dump(mode="json")


def test_dropout_needs_bpe() -> None:
    with pytest.raises(UsageError, check=has_code("dropout_without_merges", kind="words")):
        TokenizerConfig(kind="words", dropout=0.1)
    assert TokenizerConfig(kind="bpe", dropout=0.1).dropout == 0.1


def test_symbols_are_checked() -> None:
    with pytest.raises(UsageError, check=has_code("symbol_is_control_piece", symbol="'</s>'")):
        TokenizerConfig(symbols=("</s>",))
    with pytest.raises(UsageError, check=has_code("symbol_duplicate")):
        TokenizerConfig(symbols=("<x>", "<x>"))
    assert TokenizerConfig(symbols=["<2de>", "<2fr>"]).symbols == ("<2de>", "<2fr>")


def test_a_joint_vocabulary_needs_one_kind() -> None:
    config = TokenizerConfig(kind="characters", target_kind="spaced")
    assert config.kinds == {"characters", "spaced"}
    with pytest.raises(
        UsageError, check=has_code("joint_vocabulary_kinds_differ", kind="characters", target_kind="spaced")
    ):
        config.replace(joint=True)
    with pytest.raises(UsageError, check=has_code("dropout_without_merges", kind="spaced")):
        TokenizerConfig(kind="bpe", target_kind="spaced", dropout=0.1)
    assert TokenizerConfig(kind="bytes", target_kind="words", size=300).size == 300


def test_an_own_file_excludes_training_settings() -> None:
    with pytest.raises(UsageError, check=has_code("tokenizer_file_setting_conflict", option="size")):
        TokenizerConfig(file=Path("a.model"), size=300)
    with pytest.raises(UsageError, check=has_code("target_file_without_file")):
        TokenizerConfig(target_file=Path("a.model"))
    with pytest.raises(UsageError, check=has_code("joint_vocabulary_two_files")):
        TokenizerConfig(file=Path("a.model"), target_file=Path("b.model"), joint=True)
    config = TokenizerConfig(file=Path("a.model"), target_file=Path("b.model"))
    assert TokenizerConfig(**config.model_dump(mode="json")) == config
    assert "kind" not in config.model_dump()
