"""Parallel text files, valid and damaged."""

import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from error_codes import fragment

from attendo.data.corpus_files import read_lines, read_raw_pairs
from attendo.errors import DataError


def test_pairs_are_read_line_by_line(tmp_path: Path) -> None:
    source, target = write_files(tmp_path, b"I love NLP\nGuten Tag\n", "我 爱 NLP\n你好\n".encode())
    assert read_pairs(source, target) == [("I love NLP", "我 爱 NLP"), ("Guten Tag", "你好")]


def test_a_final_line_feed_is_optional(tmp_path: Path) -> None:
    source, target = write_files(tmp_path, b"a\nb", b"c\nd\n")
    assert read_pairs(source, target) == [("a", "c"), ("b", "d")]


def test_empty_lines_and_spaces_are_kept(tmp_path: Path) -> None:
    source, target = write_files(tmp_path, b"\n a \n\n", b"x\n\ny\n")
    assert read_pairs(source, target) == [("", "x"), (" a ", ""), ("", "y")]


def test_a_carriage_return_before_the_line_feed_is_removed(tmp_path: Path) -> None:
    source, target = write_files(tmp_path, b"a\r\n\r\nb\rc\r\n", b"x\ny\nz\n")
    assert [left for left, _ in read_pairs(source, target)] == ["a", "", "b\rc"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x00"])
def test_other_separators_inside_a_line_are_text(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "text"
    path.write_bytes(f"a{separator}b\nc\n".encode())
    assert list(read_lines(path)) == [f"a{separator}b", "c"]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files_read_as_plain_ones(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(compress("我\nb\n".encode()))
    assert list(read_lines(path)) == ["我", "b"]


def test_compressed_and_plain_files_form_pairs(tmp_path: Path) -> None:
    source, target = tmp_path / "source.gz", tmp_path / "target"
    source.write_bytes(gzip.compress(b"a\n"))
    target.write_bytes(b"b\n")
    assert read_pairs(source, target) == [("a", "b")]


@pytest.mark.parametrize(
    ("left", "right", "short", "lines"), [(b"a\nb\n", b"c\n", "target", 1), (b"", b"c\n", "source", 0)]
)
def test_unequal_line_counts_are_rejected(tmp_path: Path, left: bytes, right: bytes, short: str, lines: int) -> None:
    message = read_error(*write_files(tmp_path, left, right))
    assert message.startswith(fragment("file_line_counts_differ", short=tmp_path / short, short_lines=lines))


def test_empty_files_are_rejected(tmp_path: Path) -> None:
    assert read_error(*write_files(tmp_path, b"", b"")).startswith(f"{tmp_path / 'source'} is empty")


def test_an_invalid_utf8_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("x\nGr\xfc\xdfe\nz\n".encode("latin-1"))
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(fragment("line_not_utf8", path=path, line=2))


def test_a_byte_order_mark_at_the_start_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\n\ufeffb\n".encode())
    assert list(read_lines(path)) == ["a", "\ufeffb"]


@pytest.mark.parametrize("name", ["missing", "missing.gz", "missing.xz", "folder", "folder.gz"])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str) -> None:
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    source, _ = write_files(tmp_path, b"a\n", b"b\n")
    assert str(tmp_path / name) in read_error(source, tmp_path / name)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_truncated_file_is_an_error(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    compressed = compress("".join(f"{random.Random(n).random()}\n" for n in range(300)).encode())
    for length in (len(compressed) - 1, len(compressed) - 8, len(compressed) // 2, 20, 5):
        path = tmp_path / f"text{suffix}"
        path.write_bytes(compressed[:length])
        assert str(path) in read_error(path, path)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_damaged_file_is_an_error(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    compressed = compress("".join(f"{random.Random(n).random()}\n" for n in range(300)).encode())
    generator = random.Random(suffix)
    for _ in range(60):
        bit = generator.randrange(
            10 * 8, len(compressed) * 8
        )  # the first ten bytes of .gz contain a timestamp, which may change
        damaged = bytearray(compressed)
        damaged[bit // 8] ^= 1 << bit % 8
        path = tmp_path / f"text{suffix}"
        path.write_bytes(damaged)
        assert str(path) in read_error(path, path), f"bit {bit}"


def test_plain_text_with_a_compressed_suffix_is_an_error(tmp_path: Path) -> None:
    for name in ("text.gz", "text.xz"):
        (tmp_path / name).write_text("plain\n")
        assert str(tmp_path / name) in read_error(tmp_path / name, tmp_path / name)


def write_files(folder: Path, left: bytes, right: bytes) -> tuple[Path, Path]:
    source, target = folder / "source", folder / "target"
    source.write_bytes(left)
    target.write_bytes(right)
    return source, target


def read_pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    return [(left.decode(), right.decode()) for left, right in read_raw_pairs(source, target)]


def read_error(source: Path, target: Path) -> str:
    """The one-line error for these files."""
    with pytest.raises(DataError) as caught:
        read_pairs(source, target)
    assert "\n" not in str(caught.value)
    return str(caught.value)
