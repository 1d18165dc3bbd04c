"""Generation for a corpus: windows, parts, the manifest, and what another call may not change."""

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code

from attendo.data.text_shards import ShardFields, read_sources
from attendo.errors import DataError, UsageError
from attendo.recipes import corpus_generation
from attendo.recipes.corpus_generation import CorpusGeneration, Window, WindowReader
from attendo.recipes.corpus_manifest import Counts

SETTINGS = {"model": "1", "options": {"beam": 2, "constraints": ("a",)}}


class KilledError(Exception):
    """Raised where a real process would be killed."""


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_generation, "WINDOW_LINES", 4)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, lines in (("a.txt", 9), ("b.jsonl", 8), ("c.txt", 0), ("d.txt", 1)):
        rows = [f"{name} {number}" if number % 3 else "" for number in range(lines)]
        text = [json.dumps({"source": row}) if name.endswith("jsonl") else row for row in rows]
        (folder / name).write_text("".join(f"{row}\n" for row in text))
    return sorted(folder.iterdir())


class Upper:
    """A model that writes every text in capitals. It dies in window number `dies_at`."""

    def __init__(self, work: CorpusGeneration, dies_at: int = -1, in_order: bool = True) -> None:
        self.work, self.dies_at, self.in_order = work, dies_at, in_order
        self.reader = WindowReader(work.shards, work.fields)
        self.windows: list[Window] = []

    def __call__(self, windows: Iterator[Window]) -> Iterable[tuple[Window, Counts]]:
        ordered = windows if self.in_order else random.Random(1).sample(found := list(windows), len(found))
        for window in ordered:
            if len(self.windows) == self.dies_at:
                raise KilledError
            self.windows.append(window)
            texts = self.reader.read(window)
            counts = Counts(len(texts), sum(map(len, texts)), 0, 1)
            self.work.write_part(window, [text.upper() for text in texts], counts)
            yield window, counts


def plan(folder: Path, shards: list[Path], **changes: Any) -> CorpusGeneration:
    folder.mkdir(exist_ok=True)
    return CorpusGeneration(folder, shards, ShardFields(), {**SETTINGS, **changes})


def generate(folder: Path, shards: list[Path], dies_at: int = -1, in_order: bool = True, **changes: Any) -> Upper:
    work = plan(folder, shards, **changes)
    list(work.begin())
    model = Upper(work, dies_at, in_order)
    try:
        list(work.run(model))
    except KilledError:
        assert dies_at >= 0
    return model


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_shard_has_an_output_and_a_line_of_the_manifest(tmp_path: Path, shards: list[Path]) -> None:
    model = generate(tmp_path / "out", shards)
    assert sorted(contents(tmp_path / "out")) == [*(path.name for path in shards), "manifest.jsonl"]
    assert (tmp_path / "out/a.txt").read_text() == (shards[0].read_text()).upper()
    assert json.loads((tmp_path / "out/b.jsonl").read_text().splitlines()[1])["output"] == "B.JSONL 1"
    assert (tmp_path / "out/c.txt").read_bytes() == b""
    header, *lines = map(json.loads, (tmp_path / "out/manifest.jsonl").read_text().splitlines())
    assert header["settings"]["options"] == {"beam": 2, "constraints": ["a"]}
    assert [line["shard"] for line in lines] == [path.name for path in shards]
    assert [line["input"]["lines"] for line in lines] == [line["output"]["lines"] for line in lines] == [9, 8, 0, 1]
    assert len(model.windows) == 3 + 2 + 0 + 1
    texts = [source for path in shards for source in read_sources(path, ShardFields())]
    assert model.work.sum_outputs() == Counts(18, sum(map(len, texts)), cut=0, unknown=6)


def test_order_of_windows_does_not_matter(tmp_path: Path, shards: list[Path]) -> None:
    generate(tmp_path / "one", shards)
    generate(tmp_path / "two", shards, in_order=False)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize("dies_at", range(6))
def test_second_call_goes_on_and_computes_no_window_twice(tmp_path: Path, shards: list[Path], dies_at: int) -> None:
    generate(tmp_path / "whole", shards)
    first = generate(tmp_path / "out", shards, dies_at)
    work = plan(tmp_path / "out", shards)
    list(work.begin())
    total, done = work.count_lines()
    assert (total, done) == (18, min(4 * dies_at, 9) if dies_at < 4 else 9 + 4 * (dies_at - 3))
    second = generate(tmp_path / "out", shards)
    assert len(first.windows) == dies_at
    assert not {*first.windows} & {*second.windows}
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert generate(tmp_path / "out", shards).windows == []


def test_unfinished_files_are_no_harm(tmp_path: Path, shards: list[Path]) -> None:
    generate(tmp_path / "whole", shards)
    out = tmp_path / "out"
    generate(out, shards, dies_at=2)
    (out / ".tmp-a.txt").write_text("half")
    (out / ".parts/a.txt/.tmp-7-000002.jsonl").write_text("half")
    with (out / "manifest.jsonl").open("a") as file:
        file.write('{"shard": "a.t')
    generate(out, shards)
    assert contents(out) == contents(tmp_path / "whole")


def test_removed_or_cut_output_is_computed_again(tmp_path: Path, shards: list[Path]) -> None:
    generate(tmp_path / "out", shards)
    before = contents(tmp_path / "out")
    (tmp_path / "out/a.txt").unlink()
    (tmp_path / "out/d.txt").write_bytes(b"")
    assert {window.shard for window in generate(tmp_path / "out", shards).windows} == {0, 3}
    assert contents(tmp_path / "out") == before


def test_other_settings_are_refused_by_name(tmp_path: Path, shards: list[Path]) -> None:
    generate(tmp_path / "out", shards, dies_at=2)
    for changes, name in (({"model": "2"}, "model"), ({"options": {"beam": 3, "constraints": ["a"]}}, "beam")):
        with pytest.raises(UsageError, check=has_code("corpus_settings_differ", settings=name)):
            generate(tmp_path / "out", shards, **changes)
    generate(tmp_path / "out", shards)


def test_changed_and_missing_inputs_are_refused(tmp_path: Path, shards: list[Path]) -> None:
    generate(tmp_path / "out", shards, dies_at=2)
    shards[0].touch()
    list(plan(tmp_path / "out", shards).begin())  # the same content
    text = shards[0].read_text()
    shards[0].write_text(text.replace("1", "2"))
    with pytest.raises(DataError, check=has_code("corpus_input_changed", path=shards[0])):
        generate(tmp_path / "out", shards)
    shards[0].write_text(text)
    with pytest.raises(DataError, check=has_code("corpus_input_missing", path=shards[0])):
        generate(tmp_path / "out", shards[1:])
    more = shards[0].with_name("e.txt")
    more.write_text("more\n")
    generate(tmp_path / "out", [*shards, more])
    assert (tmp_path / "out/e.txt").read_text() == "MORE\n"


def test_input_that_changes_during_the_work_is_refused(tmp_path: Path, shards: list[Path]) -> None:
    work = plan(tmp_path / "out", shards)
    list(work.begin())
    shards[0].write_text(shards[0].read_text().lower() + "more\n")
    with pytest.raises(DataError, check=lambda error: error.code in ("corpus_input_changed", "shard_changed")):
        list(work.run(Upper(work)))
    assert not (tmp_path / "out/a.txt").exists()


def test_files_of_others_are_not_replaced(tmp_path: Path, shards: list[Path]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "b.jsonl").write_text("mine")
    with pytest.raises(UsageError, check=has_code("corpus_output_exists", path=out / "b.jsonl")):
        generate(out, shards)
    with pytest.raises(UsageError, check=has_code("corpus_output_is_input")):
        generate(shards[0].parent, shards)
    assert (out / "b.jsonl").read_text() == "mine"


@pytest.mark.parametrize(("text", "line"), [("{}\n", 1), ("[1]\n", 1), ("no JSON\n", 1), (None, 2)])
def test_damaged_manifest_is_named(tmp_path: Path, shards: list[Path], text: str | None, line: int) -> None:
    out = tmp_path / "out"
    generate(out, shards)
    path = out / "manifest.jsonl"
    path.write_text(text or path.read_text().splitlines()[0] + '\n{"shard": "a.txt", "input": {}}\n')
    with pytest.raises(DataError, check=has_code("corpus_manifest_damaged", path=path, line=line)):
        generate(out, shards)
