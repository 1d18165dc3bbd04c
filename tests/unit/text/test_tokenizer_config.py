"""Settings of a tokenizer: what does nothing is refused, and what is written can be read back."""

from pathlib import Path

import pytest

from attendo.errors import UsageError
from attendo.text.config import TokenizerConfig


def test_bytes_have_no_size_to_set() -> None:
    with pytest.raises(UsageError, match=r"^tokenizer\.size 8000 means nothing with kind bytes"):
        TokenizerConfig(kind="bytes", size=8000)
    assert TokenizerConfig(kind="bytes").kind == "bytes"


def test_what_is_written_down_reads_back_to_the_same() -> None:
    for config in (TokenizerConfig(kind="bytes", symbols=("<x>",)), TokenizerConfig(), TokenizerConfig(size=300)):
        assert TokenizerConfig(**config.model_dump()) == config
        assert TokenizerConfig(**config.model_dump(mode="json")) == config
    assert TokenizerConfig().model_dump()["size"] == 8000
    assert "size" not in TokenizerConfig(kind="bytes").model_dump(mode="json")


def test_only_bpe_has_merges_to_refuse() -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.dropout refuses merges, which kind words does not have"):
        TokenizerConfig(kind="words", dropout=0.1)
    assert TokenizerConfig(kind="bpe", dropout=0.1).dropout == 0.1


def test_symbols_are_checked() -> None:
    with pytest.raises(UsageError, match=r"^tokenizer\.symbols: '</s>' is a control piece"):
        TokenizerConfig(symbols=("</s>",))
    with pytest.raises(UsageError, match="twice"):
        TokenizerConfig(symbols=("<x>", "<x>"))
    assert TokenizerConfig(symbols=["<2de>", "<2fr>"]).symbols == ("<2de>", "<2fr>")


def test_the_sides_may_be_of_two_kinds_but_not_in_one_vocabulary() -> None:
    config = TokenizerConfig(kind="characters", target_kind="spaced")
    assert config.kinds == {"characters", "spaced"}
    with pytest.raises(UsageError, match=r"kind characters and target_kind spaced are two; set joint to false"):
        config.replace(joint=True)
    with pytest.raises(UsageError, match=r"which kind spaced does not have"):
        TokenizerConfig(kind="bpe", target_kind="spaced", dropout=0.1)
    assert TokenizerConfig(kind="bytes", target_kind="words", size=300).size == 300


def test_an_own_file_excludes_settings_of_learned_tokenizers() -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.file is a tokenizer already: leave tokenizer\.size out"):
        TokenizerConfig(file=Path("a.model"), size=300)
    with pytest.raises(UsageError, match=r"name tokenizer\.file too"):
        TokenizerConfig(target_file=Path("a.model"))
    with pytest.raises(UsageError, match=r"leave tokenizer\.target_file out"):
        TokenizerConfig(file=Path("a.model"), target_file=Path("b.model"), joint=True)
    config = TokenizerConfig(file=Path("a.model"), target_file=Path("b.model"))
    assert TokenizerConfig(**config.model_dump(mode="json")) == config
    assert "kind" not in config.model_dump()
