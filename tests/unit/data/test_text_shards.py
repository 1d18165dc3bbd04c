"""Shards of a corpus: every format is read and written again, and errors name the file and the line."""

import gzip
import json
import lzma
import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code
from late_import import LateModule, needs

from attendo.data import text_shards
from attendo.data.text_shards import ShardFields, find_family, list_shards, read_sources, write_shard
from attendo.errors import DataError, UsageError

pyarrow: Any = LateModule("pyarrow")
parquet: Any = LateModule("pyarrow.parquet")
zstandard: Any = LateModule("zstandard")

TEXT = "\ufeffthe cat\r\n\n  \na\u2028dog"
SOURCES = ["the cat", "", "  ", "a\u2028dog"]
OUTPUTS = ["猫", "", "", "狗\t1"]
BY_DEFAULT = ShardFields()


def write_table(path: Path, **columns: Any) -> Path:
    parquet.write_table(pyarrow.table(columns), path)
    return path


def rewrite(path: Path, fields: ShardFields = BY_DEFAULT, outputs: list[Any] = OUTPUTS) -> Path:
    target = path.with_name(f"new-{path.name}")
    write_shard(path, target, fields, iter(outputs))
    return target


@pytest.mark.parametrize(
    ("suffix", "module"),
    [
        (".txt", None),
        (".txt.gz", gzip),
        (".txt.xz", lzma),
        pytest.param(".txt.zst", zstandard, marks=needs("zstandard")),
    ],
)
def test_text_stays_text_in_its_compression(tmp_path: Path, suffix: str, module: Any) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(TEXT.encode() if module is None else module.compress(TEXT.encode()))
    assert list(read_sources(path, BY_DEFAULT)) == SOURCES
    written = rewrite(path)
    assert list(read_sources(written, BY_DEFAULT)) == ["猫", "", "", "狗\t1"]
    assert rewrite(path).read_bytes() == written.read_bytes(), "equal contents give equal bytes"


def test_several_lines_per_text_are_kept_together(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n")
    assert rewrite(path, outputs=[["0 ||| x", "0 ||| y"], ["1 ||| z"]]).read_text() == "0 ||| x\n0 ||| y\n1 ||| z\n"


def test_jsonl_gets_a_field_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1.50, "source": "the cat" }\n\n{"source": "", "x": [1e400]}\n', "utf-8")
    assert list(read_sources(path, BY_DEFAULT)) == ["the cat", "", ""]
    assert rewrite(path, outputs=["猫", "", {"text": "狗"}]).read_text("utf-8").splitlines() == [
        '{"id": 1.50, "source": "the cat", "output": "猫"}',
        "",
        '{"source": "", "x": [1e400], "output": {"text": "狗"}}',
    ]
    other = ShardFields("x", "翻译")
    path.write_text('{"x": "a"}\n')
    assert json.loads(rewrite(path, other, ["b"]).read_text("utf-8")) == {"x": "a", "翻译": "b"}


def test_tsv_gets_a_last_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("the cat\t1\n\na dog\t2\n")
    assert list(read_sources(path, BY_DEFAULT)) == ["the cat", "", "a dog"]
    assert list(read_sources(path, ShardFields("2"))) == ["1", "", "2"]
    assert rewrite(path, outputs=["猫\t1", "", ["狗"]]).read_text("utf-8") == 'the cat\t1\t猫 1\n\na dog\t2\t["狗"]\n'


def test_tsv_columns_may_have_names(tmp_path: Path) -> None:
    path, fields = tmp_path / "a.tsv", ShardFields("en", "zh")
    path.write_text("id\ten\n1\tthe cat\n")
    assert list(read_sources(path, fields)) == ["the cat"]
    assert rewrite(path, fields, ["猫"]).read_text("utf-8") == "id\ten\tzh\n1\tthe cat\t猫\n"
    with pytest.raises(UsageError, check=has_code("shard_field_exists", field="id")):
        list(read_sources(path, ShardFields("en", "id")))
    with pytest.raises(DataError, check=has_code("table_column_not_found", column="de")):
        list(read_sources(path, ShardFields("de")))


@needs("pyarrow")
def test_parquet_gets_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_shards, "_BATCH_ROWS", 2)
    monkeypatch.setattr(text_shards, "_GROUP_ROWS", 3)
    path = write_table(tmp_path / "a.parquet", id=[1, 2, 3, 4], source=["the cat", None, "  ", "a dog"])
    assert list(read_sources(path, BY_DEFAULT)) == ["the cat", "", "  ", "a dog"]
    found = parquet.read_table(rewrite(path, outputs=["猫", "", "", {"text": "狗"}])).to_pydict()
    assert found["output"] == ["猫", "", "", '{"text": "狗"}']
    assert (found["id"], found["source"]) == ([1, 2, 3, 4], ["the cat", None, "  ", "a dog"])


@needs("pyarrow")
def test_errors_of_parquet_name_file_and_row(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", source=["a"], number=[1], output=["b"])
    with pytest.raises(DataError, check=has_code("table_column_not_found", path=path, column="text")):
        list(read_sources(path, ShardFields("text")))
    with pytest.raises(UsageError, check=has_code("shard_field_exists", path=path, field="output")):
        list(read_sources(path, BY_DEFAULT))
    with pytest.raises(DataError, check=has_code("shard_line_invalid", path=path, line=1, field="number")):
        list(read_sources(path, ShardFields("number", "new")))
    path.write_bytes(b"PAR1 no table")
    with pytest.raises(DataError, check=has_code("file_read_failed", path=path)):
        list(read_sources(path, BY_DEFAULT))


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.jsonl", b'{"source": "a"}\n{"source": 1}\n', "field is not text"),
        ("a.jsonl", b'{"source": "a"}\n{"src": "a"}\n', "no such field"),
        ("a.jsonl", b'{"source": "a"}\n{"source": "a"\n', "not JSON"),
        ("a.jsonl", b'{"source": "a"}\n{"source": "\\ud800"}\n', "not UTF-8"),
    ],
)
def test_bad_line_names_file_and_line(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, check=has_code("shard_line_invalid", path=path, line=2, fault=fault)):
        list(read_sources(path, BY_DEFAULT))


def test_missing_column_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("en\tx\n1\t2\n3\n")
    with pytest.raises(DataError, check=has_code("shard_line_invalid", path=path, line=3, fault="no such column")):
        list(read_sources(path, ShardFields("x")))


def test_invalid_utf8_is_an_error_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, check=has_code("line_not_utf8", path=path, line=2)):
        list(read_sources(path, BY_DEFAULT))
    assert list(read_sources(path, ShardFields(errors="replace"))) == ["a", "\ufffd"]


@pytest.mark.parametrize("pack", [gzip, lzma, pytest.param(zstandard, marks=needs("zstandard"))])
def test_truncated_file_is_an_error(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / {"gzip": "a.txt.gz", "lzma": "a.txt.xz", "zstandard": "a.txt.zst"}[pack.__name__]
    path.write_bytes(pack.compress(b"the cat\n" * 9)[:-5])
    with pytest.raises(DataError, check=has_code("file_read_failed", path=path)):
        list(read_sources(path, BY_DEFAULT))


@needs("zstandard")
def test_zst_files_may_have_several_frames_and_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstandard.compress(b"a\n") + zstandard.compress(b"b\n") + zstandard.compress(b""))
    assert list(read_sources(path, BY_DEFAULT)) == ["a", "b"]
    path.write_bytes(b"no frame")
    with pytest.raises(DataError, check=has_code("file_read_failed", path=path)):
        list(read_sources(path, BY_DEFAULT))


@pytest.mark.parametrize(("name", "package"), [("a.parquet", "pyarrow"), ("a.txt.zst", "zstandard")])
def test_missing_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    (tmp_path / name).touch()
    monkeypatch.setattr("attendo.errors.find_spec", lambda name: None)
    with pytest.raises(UsageError, check=has_code("package_missing", package=package, extra="corpora")):
        list_shards(str(tmp_path))


def test_number_of_outputs_must_match(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n")
    for outputs in ["x"], ["x", "y", "z"]:
        with pytest.raises(DataError, check=has_code("shard_changed", path=path)):
            rewrite(path, outputs=list(outputs))


def test_shards_of_a_folder_or_a_pattern_come_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.jsonl.gz", "README.md", ".c.txt", "d.parquet.gz"):
        (tmp_path / name).touch()
    assert [path.name for path in list_shards(str(tmp_path))] == ["a.jsonl.gz", "b.txt"]
    assert [path.name for path in list_shards(f"{tmp_path}/b.*")] == ["b.txt"]
    monkeypatch.chdir(tmp_path)
    assert list_shards("b*") == list_shards("b.txt") == [Path("b.txt")]
    with pytest.raises(DataError, check=has_code("shards_not_found", input="x*")):
        list_shards("x*")
    with pytest.raises(UsageError, check=has_code("shard_suffix_unknown", path="README.md")):
        list_shards("*.md")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").touch()
    with pytest.raises(UsageError, check=has_code("shard_names_equal")):
        list_shards("**/b.txt")


def test_family_is_that_of_the_suffix() -> None:
    names = ["a.txt", "a.tsv.gz", "a.b.jsonl.zst", "a.parquet", "a.parquet.gz", "a.csv", "txt", "a.gz"]
    assert [find_family(Path(name)) for name in names] == ["text", "tsv", "jsonl", "parquet", None, None, None, None]


class SimulatedFile:
    """A file of equal lines, as `open_binary` returns it."""

    def __init__(self, lines: int) -> None:
        self.lines = lines

    def __enter__(self) -> Iterator[bytes]:
        return iter(b"the cat sat on the mat\n" for _ in range(self.lines))

    def __exit__(self, *error: object) -> None: ...


def copy_simulated_shard(folder: Path, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read and write a shard of that many lines."""
    monkeypatch.setattr(text_shards, "open_binary", lambda path: SimulatedFile(lines))
    assert sum(1 for _ in read_sources(folder / "a.txt", BY_DEFAULT)) == lines
    write_shard(folder / "a.txt", folder / "b.txt", BY_DEFAULT, (str(number % 10) for number in range(lines)))
    assert (folder / "b.txt").stat().st_size == 2 * lines


def test_memory_does_not_depend_on_the_number_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty times the lines, through reader and writer: the same memory to 50 kB."""
    peaks = []
    for lines in (2_000, 80_000):
        tracemalloc.start()
        copy_simulated_shard(tmp_path, lines, monkeypatch)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 50_000


@pytest.mark.slow
def test_20_million_lines_take_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_simulated_shard(tmp_path, 2_000, monkeypatch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    copy_simulated_shard(tmp_path, 20_000_000, monkeypatch)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 10_000  # kB
