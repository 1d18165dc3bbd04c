"""R3: `attendo prepare` that is killed and called again writes the bytes of an undisturbed call. Memory is bounded."""

import hashlib
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from children import Children
from repeated_kills import kill_and_continue

DISK_CALLS = 30  # about those of one call


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora of several windows, with bad lines and duplicates."""
    folder, dice = tmp_path_factory.mktemp("text"), random.Random(1)
    words = [f"w{number}" for number in range(200)]
    corpora = ""
    for name, lines in (("a", 9000), ("b", 5000)):
        texts = [" ".join(dice.choices(words, k=dice.randrange(1, 5))) for _ in range(2 * lines)]
        texts[7] = ""
        pairs = [f"{source}\t{target}\n" for source, target in zip(texts[::2], texts[1::2], strict=True)]
        (folder / f"{name}.tsv").write_text("".join([*pairs, *pairs[:500]]))
        corpora += f'[[data.corpora]]\nfile = "{folder / name}.tsv"\ntag = "<{name}>"\n'
    path = folder / "run.toml"
    path.write_text(
        f"[data]\ndrop_duplicates = true\ndrop_copies = true\ntemperature = 2.0\n{corpora}"
        '[tokenizer]\nkind = "bpe"\nsize = 300\njoint = true\n'
    )
    return path


def checksums(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.slow
def test_1_2_and_4_workers_write_equal_bytes(children: Children, run_file: Path, tmp_path: Path) -> None:
    for workers in (1, 2, 4):
        ended = children.attendo("prepare", run_file, "--workers", str(workers), "--out", tmp_path / str(workers))
        assert ended.code == 0, ended.errors
    found = [checksums(tmp_path / str(workers)) for workers in (1, 2, 4)]
    assert len(found[0]) >= 6
    assert found[0] == found[1] == found[2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "4"]


@pytest.mark.parametrize(
    ("workers", "kills"), [(1, 5), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 60), (2, 8)))]
)
def test_R3_killed_preparation_continues_with_equal_bytes(
    children: Children, run_file: Path, tmp_path: Path, workers: int, kills: int
) -> None:
    command = ("prepare", run_file, "--workers", str(workers), "--out")

    def check(out: Path, whole: Path) -> None:
        assert checksums(out) == checksums(whole)

    kill_and_continue(children, command, tmp_path, kills, DISK_CALLS, workers, check)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".parts")] == []


MEASURE_DUPLICATES = """
import resource, sys
from pathlib import Path
import numpy as np
from attendo.data import duplicates
duplicates.BUCKET_PAIRS = 1_000_000
pairs, folder = int(sys.argv[1]), Path(sys.argv[2])
sizes = range(0, pairs, 4096)
def block(first):
    numbers = np.arange(first, min(first + 4096, pairs), dtype=np.uint64)
    return first, numbers % np.uint64(pairs - pairs // 10) * np.uint64(0x9E3779B97F4A7C15)  # odd: no two are equal
duplicates.mark_duplicates(map(block, sizes), pairs, folder / "marks")
marks = duplicates.DuplicateMarks(folder / "marks")
print(sum(int(marks.read(first, min(4096, pairs - first)).sum()) for first in sizes))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MEASURE_PREPARATION = """
import resource, sys
from dataclasses import dataclass
from pathlib import Path
from attendo.data.config import DataConfig
from attendo.data.corpus_files import CorpusRow
from attendo.data.preparation import LocalWorker
from attendo.data.prepare import prepare
from attendo.text import Words
from attendo.text.config import TokenizerConfig
@dataclass
class Simulated:
    pairs: int
    name: str = "simulated"
    weight: float = 1.0
    def rows(self):
        for n in range(1, self.pairs + 1):
            yield CorpusRow(n, f"a {n % (self.pairs - self.pairs // 10)}", "u v", None)
words = Words.build(["a u v"])
settings = DataConfig(task="builtin", drop_duplicates=True)
corpus = Simulated(int(sys.argv[1]))
for _ in prepare([corpus], Simulated(9), settings, (words, words), 1, Path(sys.argv[2]) / "data", LocalWorker()):
    pass
from attendo.data.prepared import open_prepared
print(open_prepared(Path(sys.argv[2]) / "data").corpora[0].bad["duplicate"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "pairs", "most_mib"),
    [(MEASURE_DUPLICATES, (2_000_000, 20_000_000), 40), (MEASURE_PREPARATION, (100_000, 1_000_000), 90)],
)
def test_memory_does_not_grow_with_the_corpus(
    tmp_path: Path, program: str, pairs: tuple[int, int], most_mib: int
) -> None:
    peaks = []
    for count in pairs:
        (folder := tmp_path / str(count)).mkdir()
        printed = subprocess.run(
            [sys.executable, "-c", program, str(count), str(folder)], check=True, capture_output=True, text=True
        ).stdout.split()
        assert int(printed[0]) == count // 10
        peaks.append(int(printed[1]) / 1024)
        shutil.rmtree(folder)
    print("peak MiB:", peaks)
    assert peaks[1] - peaks[0] < most_mib
