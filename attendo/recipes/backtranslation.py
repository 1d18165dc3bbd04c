"""Back-translation (Sennrich et al., 2016): a model of the other direction makes the sources of monolingual text.

    OUT/  backtranslate.json        the command's settings: another command cannot continue it
          text/NNNNN.txt            the text, without blank lines
          outputs/NNNNN.txt         its translations, with their manifest (`corpus_generation.py`)
          source.txt, target.txt    the result: translations and text, line by line

The translations come from a beam, from sampling, or from a beam with noise (Edunov et al., 2018). A tag at the start of
every source tells the network that the source is synthetic (Caswell et al., 2019).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from attendo import atomic_files, keyed_random
from attendo.data.corpus_files import read_lines, read_parallel_lines
from attendo.data.text_shards import ShardFields, find_family, list_shards, read_sources
from attendo.errors import DataError, UsageError
from attendo.model_files import format_json, read_json
from attendo.recipes.files import list_differences, write_text_file
from attendo.text.scripts import SCRIPTS_WITHOUT_SPACES, main_script

Method = Literal["beam", "sample", "noised-beam"]
SHARD_LINES = 65_536
BLANK = "<BLANK>"  # replaces a word
# Section 3 of Edunov et al. (2018): a word is deleted or replaced with probability 0.1, and moves by 3 places at most.
_DELETED, _REPLACED, _MAX_MOVE = 0.1, 0.1, 3


@dataclass(frozen=True)
class BackTranslation:
    """The folder of a back-translation, with its settings."""

    folder: Path
    texts: Sequence[Path]
    field: str | None  # of the text in .jsonl, .tsv and .parquet files
    method: Method
    tag: str | None
    seed: int

    @property
    def text_folder(self) -> Path:
        return self.folder / "text"

    @property
    def output_folder(self) -> Path:
        return self.folder / "outputs"

    @property
    def results(self) -> tuple[Path, Path]:
        """The two files of the result."""
        return self.folder / "source.txt", self.folder / "target.txt"

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write the settings, or check that they are those of an earlier call that has copied the text."""
        path = self.folder / "backtranslate.json"
        before = read_json(path) if self.text_folder.exists() else settings
        if other := list_differences(before, settings):
            raise UsageError("backtranslation_settings_differ", folder=self.folder, settings=", ".join(other))
        write_text_file(path, format_json(dict(settings)))

    def split(self) -> None:
        """Write the text in shards, without blank lines, unless it is there."""
        if self.text_folder.exists():
            return
        lines = (line for path in self.texts for line in self._read(path) if line.strip())
        with atomic_files.new_folder(self.text_folder) as new:
            for number, shard in enumerate(iter(lambda: list(islice(lines, SHARD_LINES)), [])):
                (new / f"{number:05d}.txt").write_text("".join(f"{line}\n" for line in shard), "utf-8", newline="\n")
            if not any(new.iterdir()):
                raise DataError("file_is_empty", path=self.texts[0])

    def merge(self) -> tuple[int, int]:
        """Write source.txt and target.txt. Return the number of pairs, and of lines whose translation is blank."""
        pairs = blank = 0
        temporary = [atomic_files.temporary_path(path) for path in self.results]
        with temporary[0].open("w", encoding="utf-8") as sources, temporary[1].open("w", encoding="utf-8") as targets:
            for number, (output, text) in enumerate(self._read_pairs()):
                output = output.replace("\0", "")  # a byte that a weak model may sample. Such lines are bad
                if not output.strip():
                    blank += 1
                    continue
                pairs += 1
                source = add_noise(output, self.seed, number) if self.method == "noised-beam" else output
                sources.write(f"{self.tag} {source}\n" if self.tag else f"{source}\n")
                targets.write(f"{text}\n")
        for new, path in zip(temporary, self.results, strict=True):
            atomic_files.move_into_place(new, path)
        return pairs, blank

    def _read_pairs(self) -> Iterator[tuple[str, ...]]:
        for path in sorted(self.text_folder.iterdir()):
            yield from read_parallel_lines(self.output_folder / path.name, path)

    def _read(self, path: Path) -> Iterator[str]:
        """Yield the lines of a file of text, whatever its suffix, or the texts of a table."""
        lines = read_sources(path, ShardFields(self.field)) if find_family(path) else read_lines(path)
        for line in lines:
            yield line.replace("\r", " ").replace("\n", " ")


def list_texts(given: Sequence[str]) -> list[Path]:
    """Return files as they are given, and the shards of folders and patterns."""
    return [path for each in given for path in ([Path(each)] if Path(each).is_file() else list_shards(each))]


def add_noise(text: str, seed: int, number: int) -> str:
    """Delete, replace and shuffle words of the line `number`. At least one word remains.

    A text without spaces, in a script that has none, is a sequence of characters.
    """
    spaced = len(text.split()) > 1 or main_script([text]) not in SCRIPTS_WITHOUT_SPACES
    words = text.split() if spaced else list(text.strip())
    places = np.arange(len(words), dtype=np.uint64)
    drawn = {
        name: keyed_random.uniform(keyed_random.make_keys(seed, "noise", name, number, places))
        for name in ("delete", "replace", "move")
    }
    kept = drawn["delete"] >= _DELETED
    if not kept.any():
        kept[int(np.argmax(drawn["delete"]))] = True
    # A word is overtaken by those whose place plus a number below 4 is smaller, so it moves by 3 places at most.
    order = np.argsort(np.arange(kept.sum()) + drawn["move"][kept] * (_MAX_MOVE + 1), kind="stable")
    noised = [BLANK if drawn["replace"][place] < _REPLACED else words[place] for place in np.flatnonzero(kept)[order]]
    return (" " if spaced else "").join(noised)
