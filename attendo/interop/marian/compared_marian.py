"""Marian as one side of a certificate.

Marian reads ids by the names of its vocabulary. The comparison gives it a vocabulary of its own, in which every id has
a name without spaces, so that any id can be compared, whatever the real vocabulary is.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attendo.errors import ModelError
from attendo.interop.certificate import SystemOutput
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.interop.marian.archive import ModelFiles, open_folder
from attendo.interop.marian.bin_file import open_bin
from attendo.interop.marian.marian_process import MarianTranslator, marian_name, run_marian, start_translator
from attendo.interop.marian.vocabulary import EOS_NAME, UNK_NAME
from attendo.interop.marian.weight_file import SETTINGS_TENSOR
from attendo.interop.marian.write_model import WEIGHTS_FILE, MarianVocabularies
from attendo.text import EOS, UNK
from attendo.text_model import TextModel

_WORKSPACE_MB = "256"
_SOURCE, _TARGET = "source.txt", "target.txt"
_SCORED = ("scored.source", "scored.target")
_SCORED_AT_ONCE = 32  # sentences
_MAX_TOKENS = "2000"  # of a sentence; longer ones would be skipped


class MarianSystem:
    """A model in a folder with two vocabularies of names. `orders` convert the ids."""

    def __init__(
        self,
        folder: Path,
        model: str,
        translator: MarianTranslator,
        orders: tuple[VocabularyPermutation, VocabularyPermutation],
    ) -> None:
        self._folder, self._model, self._translator = folder, model, translator
        self._source, self._target = orders
        self._names = tuple(map(_names, orders))
        self._ids = {name: number for number, name in enumerate(self._names[1])}

    @property
    def name(self) -> str:
        return marian_name()

    def logits(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Return None: Marian does not show its logits."""

    def score_tokens(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the log-probability of each token of each target and of its eos. Marian rounds them to 5 digits."""
        for side, (name, rows) in enumerate(zip(_SCORED, (sources, targets), strict=True)):
            (self._folder / name).write_text("".join(f"{self._to_line(side, each)}\n" for each in rows), "utf-8")
        batch = ["--mini-batch", str(_SCORED_AT_ONCE), "--maxi-batch", "1", "--max-length", _MAX_TOKENS]
        model = ["-m", self._model, "-v", _SOURCE, _TARGET, "-t", *_SCORED]
        lines = run_marian(["score", *model, *batch, "--word-scores", *_machine_options()], self._folder)
        scores = [_parse_scores(line) for line in lines]
        if [len(each) for each in scores] != [len(target) + 1 for target in targets]:
            raise ModelError("marian_failed", reason=f"{len(scores)} lines of scores for {len(targets)} sentences")
        return scores

    def generate(self, sources: Sequence[Sequence[int]], beam: int, max_length: int) -> list[SystemOutput]:
        """Return the best hypotheses. Marian's limit is a factor of the longest source of the batch, with its eos."""
        longest = max(map(len, sources)) + 1
        options = {
            "beam-size": beam,
            "max-length-factor": (max_length - 0.5) / longest,
            "n-best": True,
            "mini-batch": len(sources),
        }
        lines = self._translator.translate([self._to_line(0, each) for each in sources], options)
        best: dict[int, SystemOutput] = {}
        for line in lines:
            number, text, _, score = line.split(" ||| ")
            ids = (self._ids[name] for name in text.split())
            best.setdefault(int(number), SystemOutput(tuple(self._target.to_ours(ids)), float(score)))
        return [best[number] for number in range(len(sources))]

    def _to_line(self, side: int, ids: Sequence[int]) -> str:
        order = (self._source, self._target)[side]
        return " ".join(self._names[side][each] for each in order.to_theirs(ids))


@contextmanager
def open_marian(
    files: ModelFiles, weights: str, orders: tuple[VocabularyPermutation, VocabularyPermutation]
) -> Iterator[MarianSystem]:
    """Open a model in Marian."""
    with tempfile.TemporaryDirectory(prefix="attendo-marian-") as temporary:
        folder = Path(temporary)
        model = _write_weights(files, weights, folder)
        for name, order in zip((_SOURCE, _TARGET), orders, strict=True):
            (folder / name).write_text("".join(f"{each}\n" for each in _names(order)), "utf-8")
        options = ["-m", model, "-v", _SOURCE, _TARGET, "--maxi-batch", "1", "--max-length", _MAX_TOKENS]
        with start_translator([*options, *_machine_options(), "--quiet-translation"], folder) as translator:
            yield MarianSystem(folder, model, translator, orders)


def _write_weights(files: ModelFiles, weights: str, folder: Path) -> str:
    """Write the weights for Marian and return the file's name. Quantised weights are written in float32.

    Marian rounds activations too if weights are integers. Its scores are then those of another computation.
    """
    if weights.endswith(".npz"):
        files.copy(weights, folder / "model.npz")
        return "model.npz"
    with open_bin(files, weights) as file:
        if not file.is_quantized:
            files.copy(weights, folder / "model.bin")
            return "model.bin"
        settings = np.frombuffer(file.read_bytes(SETTINGS_TENSOR), np.int8)
        names = sorted(file.shapes(), key=lambda each: file.headers[each].position)
        arrays = {name: torch.cat([rows for _, rows in file.iter_rows(name)]).numpy() for name in names}
        np.savez(folder / "model.npz", allow_pickle=False, **{SETTINGS_TENSOR: settings}, **arrays)
    return "model.npz"


@contextmanager
def open_exported_model(model: TextModel, folder: Path) -> Iterator[MarianSystem]:
    """Open the model that `write_marian` has written into the folder."""
    vocabularies = MarianVocabularies.of(model)
    orders = vocabularies.source, vocabularies.target
    with open_marian(open_folder(folder), WEIGHTS_FILE, orders) as system:
        yield system


def _names(order: VocabularyPermutation) -> list[str]:
    """Return a name for each of Marian's ids."""
    eos, unk = order.to_theirs((EOS, UNK))
    names = {eos: EOS_NAME, unk: UNK_NAME}
    return [names.get(number, f"t{number}") for number in range(order.their_size - 1)]


def _machine_options() -> list[str]:
    return ["--cpu-threads", str(torch.get_num_threads()), "--workspace", _WORKSPACE_MB, "--quiet"]


def _parse_scores(line: str) -> Tensor:
    _, _, words = line.partition("WordScores= ")
    numbers = [float(each) for each in words.split()]
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ModelError("marian_failed", reason=f"scores {words[:60]!r}")
    return torch.tensor(numbers)
