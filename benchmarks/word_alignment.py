"""Alignment error rates of heads, of merged directions and of eflomal, on the built-in task and on hand-aligned pairs.

    python benchmarks/word_alignment.py FOLDER [--eflomal eflomal-align]

Trains four models with the settings of `attendo demo` into FOLDER, unless they are there: English to Chinese and back,
each with and without guided alignment. A row is a method, with error rate, precision and recall on 1,000 held-out pairs
of the built-in task and on the 60 pairs of benchmarks/hand_aligned, and the pairs aligned per second. eflomal reads the
60,000 training pairs and the test pairs.
"""

import argparse
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from attendo.data.corpus_files import read_parallel_lines
from attendo.data.pharaoh import Link, parse_links
from attendo.demo_task import AlignedPair, BuiltinTask
from attendo.explore.head_stats import measure_heads
from attendo.metrics.alignment_error import LinkCounts
from attendo.runs.config import RunConfig
from attendo.runs.demo import demo_config, gold_sentences
from attendo.runs.run import Run
from attendo.text_model import TextModel, load
from attendo.text_model.alignment import ALIGNMENT_HEAD
from attendo.text_model.symmetrisation import Symmetrisation, symmetrise
from attendo.text_model.word_alignment import PairWords

TRAINING_PAIRS, TEST_PAIRS = 60_000, 1_000
MODELS = {
    "unguided": (False, False),
    "guided": (False, True),
    "reverse-unguided": (True, False),
    "reverse-guided": (True, True),
}
METHODS: tuple[Symmetrisation, ...] = ("intersection", "grow-diag", "grow-diag-final-and", "union")
Gold = tuple[frozenset[Link], frozenset[Link]]
Pairs = list[tuple[PairWords, Gold]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--eflomal", help="the program eflomal-align")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = {name: make_model(arguments.folder / name, *kind) for name, kind in MODELS.items()}
    sets = {"built-in": builtin_pairs(), "by hand": hand_aligned_pairs()}
    choose_head(models["unguided"])
    print(f"{'method':42}" + "".join(f"{name:>10} {'prec.':>6} {'recall':>6}" for name in sets) + f"{'pairs/s':>9}")
    for kind in ("unguided", "guided"):
        model, reverse = models[kind], models[f"reverse-{kind}"]
        if kind == "unguided":
            copy_head(model, reverse)
        show(f"{kind}: rows", sets, partial(align, model, None, None))
        for method in METHODS:
            show(f"{kind}: rows and columns, {method}", sets, partial(align, model, None, method))
        for method in METHODS:
            show(f"{kind}: both directions, {method}", sets, partial(align, model, reverse, method))
    if arguments.eflomal:
        eflomal = Eflomal(arguments.eflomal, arguments.folder)
        for name in ("forward", "reverse", *METHODS):
            show(f"eflomal: {name}", sets, partial(eflomal.align, name))


def show(name: str, sets: dict[str, Pairs], align_all: Callable[[Sequence[PairWords]], list[Sequence[Link]]]) -> None:
    line, speeds = f"{name:42}", []
    for pairs in sets.values():
        begin = time.perf_counter()
        found = align_all([pair for pair, _ in pairs])
        speeds.append(len(pairs) / (time.perf_counter() - begin))
        counts = LinkCounts()
        for links, (_, gold) in zip(found, pairs, strict=True):
            counts += LinkCounts.from_links(links, *gold)
        line += f"{counts.error_rate:10.3f} {counts.precision:6.3f} {counts.recall:6.3f}"
    print(f"{line}{speeds[0]:9,.0f}", flush=True)


def align(
    model: TextModel, reverse: TextModel | None, method: Symmetrisation | None, pairs: Sequence[PairWords]
) -> list[Sequence[Link]]:
    return [each.links for each in model.align_words(pairs, reverse, method)]


def choose_head(model: TextModel) -> None:
    """Choose the head of an unguided model by the gold links of other held-out pairs than the tested ones."""
    pairs = BuiltinTask().heldout(2 * TEST_PAIRS)[TEST_PAIRS:]
    model.scores[ALIGNMENT_HEAD] = measure_heads(model, gold_sentences(pairs)).alignment_head


def copy_head(model: TextModel, reverse: TextModel) -> None:
    """Choose the head of the reverse model by the same pairs, swapped."""
    from attendo.explore.gold_alignment import GoldLinks
    from attendo.explore.head_stats import Sentence

    pairs = BuiltinTask().heldout(2 * TEST_PAIRS)[TEST_PAIRS:]
    swapped = [
        Sentence(
            each.target,
            each.source,
            GoldLinks(frozenset((t, s) for s, t in each.alignment), frozenset(), each.target_words, each.source_words),
        )
        for each in pairs
    ]
    reverse.scores[ALIGNMENT_HEAD] = measure_heads(reverse, swapped).alignment_head
    print(f"heads chosen: {model.scores[ALIGNMENT_HEAD]} and, reverse, {reverse.scores[ALIGNMENT_HEAD]}")


def builtin_pairs() -> Pairs:
    return [
        (
            PairWords(each.source, each.target, each.source_words, each.target_words),
            (frozenset(each.alignment), frozenset()),
        )
        for each in BuiltinTask().heldout(TEST_PAIRS)
    ]


def hand_aligned_pairs() -> Pairs:
    folder = Path(__file__).parent / "hand_aligned"
    lines = read_parallel_lines(*(folder / f"pairs.{name}" for name in ("en", "zh", "align")))
    return [(PairWords.split(source, target), parse_links(links, folder.name)) for source, target, links in lines]


class Eflomal:
    """Aligns the training pairs and test pairs with eflomal's default settings, once for each test set."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._found: dict[int, list[list[frozenset[Link]]]] = {}  # forward and reverse links, by the size of the set

    def align(self, name: str, pairs: Sequence[PairWords]) -> list[Sequence[Link]]:
        if len(pairs) not in self._found:
            self._found[len(pairs)] = self._run(pairs)
        forward, reverse = self._found[len(pairs)]
        if name in ("forward", "reverse"):
            return [sorted(each) for each in (forward if name == "forward" else reverse)]
        return [sorted(symmetrise(*both, name)) for both in zip(reverse, forward, strict=True)]  # type: ignore[arg-type]

    def _run(self, pairs: Sequence[PairWords]) -> list[list[frozenset[Link]]]:
        texts = [(each.source_words, each.target_words) for each in islice(BuiltinTask().train(), TRAINING_PAIRS)]
        texts += [(each.source_words, each.target_words) for each in pairs]
        names = ("0", "1", "forward", "reverse")
        files = [str((self._folder / f"eflomal.{each}").absolute()) for each in names]
        for side in (0, 1):
            content = "".join(" ".join(pair[side]).lower() + "\n" for pair in texts)
            Path(files[side]).write_text(content, "utf-8")
        options = [word for flag, file in zip(("-s", "-t", "-f", "-r"), files, strict=True) for word in (flag, file)]
        begin = time.perf_counter()
        subprocess.run([self._program, *options, "--overwrite"], check=True, capture_output=True)
        print(f"eflomal: {len(texts) / (time.perf_counter() - begin):,.0f} pairs/s")
        return [
            [parse_links(line, file)[0] for line in Path(file).read_text("utf-8").splitlines()[-len(pairs) :]]
            for file in files[2:]
        ]


def make_model(folder: Path, is_reverse: bool, is_guided: bool) -> TextModel:
    """Train a model, or load it."""
    if not (folder / "model" / "manifest.json").exists():
        settings = demo_config().model_dump(exclude_unset=True)
        data: dict[str, object] = {"task": "builtin"} if not is_reverse else write_reversed(folder.with_suffix(".text"))
        if is_guided and not is_reverse:
            data["alignments"] = "builtin"
        if not is_guided:
            data = {name: value for name, value in data.items() if "alignments" not in name}
        about = {"source_language": "zh", "target_language": "en"} if is_reverse else settings["about"]
        run = Run.begin(RunConfig(**{**settings, "data": data, "about": about}), folder, torch.device("cpu"))
        for _ in (*run.prepare(), *run.train()):
            pass
        run.finish()
    return load(folder / "model", "cpu")


def write_reversed(folder: Path) -> dict[str, object]:
    """Write the pairs of the built-in task with the sides and the alignments swapped."""
    folder.mkdir(parents=True, exist_ok=True)
    task = BuiltinTask()
    parts: dict[str, Sequence[AlignedPair]] = {
        "": list(islice(task.train(), TRAINING_PAIRS)),
        "valid_": task.heldout(TEST_PAIRS),
    }
    data: dict[str, object] = {}
    for part, pairs in parts.items():
        lines = {
            "source": [each.target for each in pairs],
            "target": [each.source for each in pairs],
            "alignments": [" ".join(f"{t}-{s}" for s, t in sorted(each.text_alignment)) for each in pairs],
        }
        for name, texts in lines.items():
            path = folder / f"{part}{name}.txt"
            path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
            data[f"{part}{name}"] = path
    return data


if __name__ == "__main__":
    main()
