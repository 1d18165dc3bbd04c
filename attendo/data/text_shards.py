"""Shards of a corpus: files of texts that are read in order, and written again with an output beside every text.

    .txt       one text per line; the output is a line, or several
    .jsonl     the text is a field of the object; the output becomes another field
    .tsv       the text is a column; the output becomes the last column
    .parquet   the same, for a column of strings

All but Parquet may be compressed: .gz, .xz or .zst. Memory does not depend on the size of a shard.
"""

import gzip
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Literal

from attendo.data.corpus_files import BadLineError, decode_lines, open_binary, parse_jsonl, parse_tsv
from attendo.data.zstd_files import compress_zstd, require_zstd
from attendo.errors import DataError, LocalizedText, UsageError, list_names, require_package

Output = str | Sequence[Any] | Mapping[str, Any]  # of a .txt shard: the lines; else a text, or a value of JSON
Row = tuple[str, str | None]  # the line of a file and its source; the line with the names of columns has none

FAMILIES = {".txt": "text", ".jsonl": "jsonl", ".tsv": "tsv", ".parquet": "parquet"}
COMPRESSIONS = (".gz", ".xz", ".zst")
_BATCH_ROWS = 2048  # rows of Parquet that are read together
_GROUP_ROWS = 65_536  # rows of a row group that is written


@dataclass(frozen=True)
class ShardFields:
    """Where the source of a shard is and how the output beside it is called. Text has neither."""

    source: str | None = None  # field, name of a column or its number from 1; default: source, of .tsv 1
    output: str = "output"
    errors: Literal["strict", "replace"] = "strict"  # for bytes that are not UTF-8


def list_shards(given: str) -> list[Path]:
    """Return the shards in a folder, or those that match a pattern such as `corpus/*.txt.gz`, in order of their names.

    In a folder, files with other suffixes are left out.
    """
    path = Path(given)
    if path.is_dir():
        found = [each for each in path.iterdir() if find_family(each) and not each.name.startswith(".")]
    else:
        pattern = path.relative_to(path.anchor)
        matches = [path] if path.is_file() else Path(path.anchor).glob(str(pattern))
        found = [each for each in matches if each.is_file()]
    if not found:
        raise DataError("shards_not_found", input=given, suffixes=list_names(FAMILIES))
    shards = sorted(found, key=lambda each: (each.name, str(each)))
    for shard, after in pairwise(shards):
        if shard.name == after.name:
            raise UsageError("shard_names_equal", first=shard, second=after)
    for shard in shards:
        _check_readable(shard)
    return shards


def find_family(path: Path) -> str | None:
    """Return the family of a shard by its suffix: text, jsonl, tsv or parquet; None for another file."""
    suffix = path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix
    return None if suffix == ".parquet" != path.suffix else FAMILIES.get(suffix)


def has_header(path: Path, fields: ShardFields) -> bool:
    """Whether the first line of a shard has the names of its columns."""
    return find_family(path) == "tsv" and not (fields.source or "1").isdecimal()


def _check_readable(shard: Path) -> None:
    """Raise a `UsageError` for an unknown suffix, or if the package that reads it is missing."""
    if find_family(shard) is None:
        suffixes = (list_names(FAMILIES), list_names(COMPRESSIONS))
        raise UsageError("shard_suffix_unknown", path=shard, suffixes=suffixes[0], compressions=suffixes[1])
    if shard.suffix == ".zst":
        require_zstd()
    if shard.suffix == ".parquet":
        require_package("pyarrow", "corpora", "a Parquet file")


def read_sources(path: Path, fields: ShardFields) -> Iterator[str]:
    """Yield the source of every row. A bad line raises a `DataError` with its number."""
    if path.suffix == ".parquet":
        yield from _read_column(path, fields)
    else:
        with open_binary(path) as file:
            yield from (source for _, source in _read_rows(path, file, fields) if source is not None)


def write_shard(path: Path, target: Path, fields: ShardFields, outputs: Iterator[Output]) -> None:
    """Write the rows of the shard `path` with their outputs to `target`, which has the same suffix."""
    if path.suffix == ".parquet":
        _write_table(path, target, fields, outputs)
    else:
        family = find_family(path)
        with open_binary(path) as file, _create(target) as new:
            for line, source in _read_rows(path, file, fields):
                output = fields.output if source is None else _next_output(outputs, path)
                new.write(_join(family, line, fields.output, output).encode("utf-8"))
    if next(outputs, None) is not None:
        raise DataError("shard_changed", path=path)


def _read_rows(path: Path, file: Iterable[bytes], fields: ShardFields) -> Iterator[Row]:
    """Yield every line with its source. A blank line has a blank source."""
    lines, family = decode_lines(file, path, fields.errors), find_family(path)
    first, name, parse = 1, fields.source or "source", parse_jsonl
    if family == "tsv":
        parse, name = parse_tsv, fields.source or "1"
        if has_header(path, fields):
            header = next(lines, "")
            name, first = _find_column(path, header.split("\t"), fields), 2
            yield header, None
    for number, line in enumerate(lines, start=first):
        if family == "text" or not line.strip():
            yield line, line if family == "text" else ""
            continue
        try:
            yield line, parse([name], line)[0]
        except (BadLineError, UnicodeError) as error:
            fault = LocalizedText(str(error) if isinstance(error, BadLineError) else "not UTF-8")
            raise DataError("shard_line_invalid", path=path, line=number, fault=fault, field=name) from None
        if family == "jsonl" and fields.output in line and fields.output in json.loads(line):
            raise UsageError("shard_field_exists", path=path, field=fields.output)


def _find_column(path: Path, columns: Sequence[str], fields: ShardFields) -> str:
    """Return the number of the column with the sources. Raise if there is none, or one with the name of the output."""
    source = fields.source or "source"
    if source not in columns:
        raise DataError("table_column_not_found", path=path, column=source, columns=list_names(columns))
    if fields.output in columns:
        raise UsageError("shard_field_exists", path=path, field=fields.output)
    return str(columns.index(source) + 1)


def _join(family: str | None, line: str, name: str, output: Output) -> str:
    """Return the text of a row with its output. Blank lines stay as they are, and so do the other fields."""
    if family == "text":
        return "".join(f"{each}\n" for each in ([output] if isinstance(output, str) else output))
    if not line.strip():
        return f"{line}\n"
    if family == "tsv":
        return f"{line}\t{_to_text(output).replace(chr(9), ' ')}\n"
    field = f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(output, ensure_ascii=False)}"
    return f"{line.rstrip()[:-1].rstrip()}, {field}}}\n"


def _to_text(output: Output) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _next_output(outputs: Iterator[Output], path: Path) -> Output:
    output = next(outputs, None)
    if output is None:
        raise DataError("shard_changed", path=path)
    return output


@contextmanager
def _create(target: Path) -> Iterator[Any]:
    """Yield a file that is compressed by the suffix of its name. Equal contents give equal bytes."""
    with ExitStack() as stack:
        file = stack.enter_context(target.open("wb"))
        if target.suffix == ".gz":
            yield stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        elif target.suffix == ".xz":
            yield stack.enter_context(lzma.LZMAFile(file, "wb"))
        else:
            yield stack.enter_context(compress_zstd(file)) if target.suffix == ".zst" else file


def _open_table(path: Path) -> Any:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise DataError("file_read_failed", path=path, reason=" ".join(str(error).split())) from None


def _read_column(path: Path, fields: ShardFields) -> Iterator[str]:
    from pyarrow import ArrowException

    with _open_table(path) as table:
        columns = table.schema_arrow.names
        name = columns[int(_find_column(path, columns, fields)) - 1]
        numbers = count(1)
        try:
            for batch in table.iter_batches(_BATCH_ROWS, columns=[name], use_threads=False):
                for text in batch.column(0).to_pylist():
                    number = next(numbers)
                    if not isinstance(text, str | None):
                        fault = LocalizedText("field is not text")
                        raise DataError("shard_line_invalid", path=path, line=number, fault=fault, field=name)
                    yield text or ""
        except (OSError, ArrowException) as error:
            raise DataError("file_read_failed", path=path, reason=" ".join(str(error).split())) from None


def _write_table(path: Path, target: Path, fields: ShardFields, outputs: Iterator[Output]) -> None:
    """Write the rows of a Parquet file with one more column, which has text or JSON."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    with _open_table(path) as table:
        schema = table.schema_arrow.append(pyarrow.field(fields.output, pyarrow.string()))
        with ParquetWriter(target, schema) as new:
            for batch in table.iter_batches(_GROUP_ROWS, use_threads=False):
                texts = [_to_text(_next_output(outputs, path)) for _ in range(batch.num_rows)]
                column = pyarrow.array(texts, pyarrow.string())
                new.write_batch(pyarrow.record_batch([*batch.columns, column], schema=schema))
