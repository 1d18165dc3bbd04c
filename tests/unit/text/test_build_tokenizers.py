"""build_tokenizers: the configured kind, reproducible files, and no copy of the text in memory."""

import hashlib
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment, has_code
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from attendo.errors import DataError
from attendo.text import Bytes, Characters, SentencePiece, Words
from attendo.text.config import TokenizerConfig
from attendo.text.factory import build_tokenizers
from attendo.text.sentencepiece import read_model_type
from attendo.text.tokenizer import display_piece

SOURCES = ["the cat sat on the mat", "<2de> do you like cats?"] * 4
TARGETS = ["die Katze saß auf der Matte", "magst du Katzen?"] * 4
KINDS = ["bpe", "unigram", "words", "spaced", "characters", "decomposed", "bytes"]

BUILD = """
import sys
from pathlib import Path
from attendo.text.factory import build_tokenizers
from attendo.text.config import TokenizerConfig
texts = [f"{word} the cat {word}s and the {number}" for number, word in enumerate("sat mat dog hat love cats".split())]
for kind in ("bpe", "unigram", "words", "characters"):
    source, target = build_tokenizers(texts, texts[::-1], TokenizerConfig(kind=kind, size=310, symbols=("<x>", "<y>")))
    source.save(Path(sys.argv[1]), f"{kind}-source")
    target.save(Path(sys.argv[1]), f"{kind}-target")
"""


def config(kind: str, **changes: Any) -> TokenizerConfig:
    return TokenizerConfig(kind=kind, **({} if kind == "bytes" else {"size": 310}), **changes)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bpe", SentencePiece),
        ("unigram", SentencePiece),
        ("words", Words),
        ("characters", Characters),
        ("bytes", Bytes),
    ],
)
def test_the_tokenizers_are_of_the_configured_kind(kind: str, expected: type) -> None:
    source, target = build_tokenizers(SOURCES, TARGETS, config(kind, symbols=("<2de>",)))
    assert isinstance(source, expected)
    assert isinstance(target, expected)
    assert source.symbols == target.symbols == ("<2de>",)
    assert source.vocab_size <= 310
    assert source.decode(source.encode(SOURCES[1])) == SOURCES[1]
    assert target.decode(target.encode(TARGETS[0])) == TARGETS[0]
    if isinstance(source, SentencePiece):
        assert read_model_type(source.model) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_joint_gives_one_tokenizer_for_both_sides(kind: str) -> None:
    source, target = build_tokenizers(iter(SOURCES), iter(TARGETS), config(kind, joint=True))
    assert source is target
    assert [source.unknown(text) for text in SOURCES + TARGETS] == [[]] * 16


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_separate_tokenizers_know_only_their_own_side(kind: str) -> None:
    source, target = build_tokenizers(SOURCES, TARGETS, config(kind))
    assert "ß" in "".join(source.unknown(TARGETS[0]))
    assert target.unknown(TARGETS[0]) == []


def test_the_same_text_gives_the_same_files_in_another_process(tmp_path: Path) -> None:
    checksums = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", BUILD, folder], env=environment, check=True)
        checksums.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    assert len(checksums[0]) == 12
    assert checksums[0] == checksums[1]


@pytest.mark.short(1)
@pytest.mark.parametrize("kind", ["bpe", "unigram", "words", "characters"])
def test_the_text_is_not_kept_in_memory(kind: str) -> None:
    def lines(count: int) -> Iterator[str]:
        words = ["cat", "mat", "hat", "dog", "sun"]
        return (" ".join(words[(number >> shift) % 5] for shift in range(40)) for number in range(count))

    build_tokenizers(lines(10), lines(10), config(kind, joint=True))  # excludes imports and caches from the measurement
    tracemalloc.start()
    try:
        build_tokenizers(lines(1000), lines(1000), config(kind, joint=True))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < sum(map(len, lines(2000))) / 2  # other threads of the process allocate a little


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words", "characters"])
def test_no_text_raises_data_error(kind: str) -> None:
    with pytest.raises(DataError, match="no text"):
        build_tokenizers([], [], config(kind))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_an_error_while_reading_text_is_passed_on(kind: str) -> None:
    def lines() -> Iterator[str]:
        yield "the cat sat"
        raise DataError("doctor_fault", line="line 2 is bad")

    with pytest.raises(DataError, check=has_code("doctor_fault", line="line 2 is bad")):
        build_tokenizers(lines(), TARGETS, config(kind))


def test_each_side_gets_its_own_kind() -> None:
    settings = TokenizerConfig(kind="characters", target_kind="spaced", size=50)
    source, target = build_tokenizers(["cat"], ["k æ t"], settings)
    assert (source.kind, target.kind) == ("characters", "spaced")
    assert target.pieces(target.encode("æ t")) == ["æ", "t"]


@pytest.fixture(scope="module")
def own_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """SentencePiece models with the defaults of its trainer, so other control ids. The first folds case."""
    folder = tmp_path_factory.mktemp("own")
    for name, texts, normalization in (("en", SOURCES, "nmt_nfkc_cf"), ("de", TARGETS, "nmt_nfkc")):
        SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_prefix=str(folder / name),
            vocab_size=40,
            hard_vocab_limit=False,
            normalization_rule_name=normalization,
            minloglevel=5,
        )
    return folder / "en.model", folder / "de.model"


def test_own_sentencepiece_models_tokenize_as_the_library_does(own_models: tuple[Path, Path]) -> None:
    config = TokenizerConfig(file=own_models[0], target_file=own_models[1])
    tokenizers = build_tokenizers((), (), config)
    for tokenizer, path, text in zip(tokenizers, own_models, (SOURCES[0], TARGETS[0]), strict=True):
        library = SentencePieceProcessor(model_file=str(path))
        ids = tokenizer.encode(text)
        assert tokenizer.pieces(ids) == [
            display_piece(piece.replace("▁", " ")) for piece in library.encode(text, out_type=str)
        ]
        assert tokenizer.decode(ids) == text


def test_an_own_model_keeps_its_normalization_and_accepts_symbols(own_models: tuple[Path, Path]) -> None:
    source, target = build_tokenizers((), (), TokenizerConfig(file=own_models[0], joint=True, symbols=("<2de>",)))
    assert source is target
    assert source.encode("The CAT") == source.encode("the cat")
    tag, *rest = source.encode("<2de> the cat")
    assert tag == 4
    assert source.decode(rest) == "the cat"


def test_an_invalid_sentencepiece_file_raises_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.model").write_bytes(b"not a model")
    for name, reason in (("a.model", fragment("not_a_sentencepiece_model")), ("b.model", "cannot be read")):
        with pytest.raises(DataError, match=rf"tokenizer\.file.*{name}.*{reason}"):
            build_tokenizers((), (), TokenizerConfig(file=tmp_path / name))
