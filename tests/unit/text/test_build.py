"""From text and settings to tokenizers: the kind asked for, the same bytes each time, no copy of the text kept."""

import hashlib
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attendo.errors import DataError
from attendo.text import Bytes, Characters, SentencePiece, Words
from attendo.text.build import build_tokenizers
from attendo.text.config import TokenizerConfig
from attendo.text.sentencepiece_file import model_kind

SOURCES = ["the cat sat on the mat", "<2de> do you like cats?"] * 4
TARGETS = ["die Katze saß auf der Matte", "magst du Katzen?"] * 4
KINDS = ["bpe", "unigram", "words", "spaced", "characters", "decomposed", "bytes"]

BUILD = """
import sys
from pathlib import Path
from attendo.text.build import build_tokenizers
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
def test_the_tokenizers_are_of_the_kind_asked_for(kind: str, expected: type) -> None:
    source, target = build_tokenizers(SOURCES, TARGETS, config(kind, symbols=("<2de>",)))
    assert isinstance(source, expected)
    assert isinstance(target, expected)
    assert source.symbols == target.symbols == ("<2de>",)
    assert source.vocab_size <= 310
    assert source.decode(source.encode(SOURCES[1])) == SOURCES[1]
    assert target.decode(target.encode(TARGETS[0])) == TARGETS[0]
    if isinstance(source, SentencePiece):
        assert model_kind(source.model) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_joint_is_one_tokenizer_that_knows_both_sides(kind: str) -> None:
    source, target = build_tokenizers(iter(SOURCES), iter(TARGETS), config(kind, joint=True))
    assert source is target
    assert [source.unknown(text) for text in SOURCES + TARGETS] == [[]] * 16


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_apart_each_side_knows_its_own_text_alone(kind: str) -> None:
    source, target = build_tokenizers(SOURCES, TARGETS, config(kind))
    assert "ß" in "".join(source.unknown(TARGETS[0]))
    assert target.unknown(TARGETS[0]) == []


def test_the_same_text_gives_the_same_files_in_another_process(tmp_path: Path) -> None:
    seen = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", BUILD, folder], env=environment, check=True)
        seen.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    assert len(seen[0]) == 12
    assert seen[0] == seen[1]


@pytest.mark.short(1)
@pytest.mark.parametrize("kind", ["bpe", "unigram", "words", "characters"])
def test_the_text_is_not_kept(kind: str) -> None:
    def lines(count: int) -> Iterator[str]:
        words = ["cat", "mat", "hat", "dog", "sun"]
        return (" ".join(words[(number >> shift) % 5] for shift in range(40)) for number in range(count))

    build_tokenizers(lines(10), lines(10), config(kind, joint=True))  # what is imported and cached does not count
    tracemalloc.start()
    try:
        build_tokenizers(lines(1000), lines(1000), config(kind, joint=True))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < sum(map(len, lines(2000))) / 2  # other threads of the process allocate a little meanwhile


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words", "characters"])
def test_no_text_is_an_error(kind: str) -> None:
    with pytest.raises(DataError, match="no text"):
        build_tokenizers([], [], config(kind))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_fault_in_the_middle_of_the_text_comes_out_as_itself(kind: str) -> None:
    def lines() -> Iterator[str]:
        yield "the cat sat"
        raise DataError("line 2 is bad")

    with pytest.raises(DataError, match=r"^line 2 is bad$"):
        build_tokenizers(lines(), TARGETS, config(kind))


def test_each_side_gets_its_own_kind() -> None:
    asked = TokenizerConfig(kind="characters", target_kind="spaced", size=50)
    source, target = build_tokenizers(["cat"], ["k æ t"], asked)
    assert (source.kind, target.kind) == ("characters", "spaced")
    assert target.pieces(target.encode("æ t")) == ["æ", "t"]
