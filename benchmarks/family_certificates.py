"""Prints the table of certificates in docs/exchange/families.md: one row for each family of models.

    python benchmarks/family_certificates.py [NAME ...]          # needs transformers

The models are the random ones of the tests, each in a folder as its authors publish it. A folder is imported as
`attendo import` does, and compared with transformers on 200 random sources. Marian is compared without Marian itself:
`tests/parity/marian_models` has models that Marian trained, with its own word scores and lists of hypotheses.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from foreign_families import FOLDERS, make_folder
from foreign_t5 import T5_FOLDERS, make_t5_folder
from foreign_t5gemma2 import make_t5gemma2_folder
from marian_folders import FOLDER, NAMES, load_marian

from attendo.interop.compared_systems import TorchSystem
from attendo.interop.import_model import from_folder, import_model
from attendo.interop.marian.imported import ImportedMarian
from attendo.interop.marian.marian_process import PACKAGE_VERSION
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD

HEADER = """\
| model | compared with | longest source, target | largest difference | greedy: equal | beam: equal |
|---|---|---|---|---|---|"""
OPTIONS = {  # of Marian, as settings of attendo
    "beam-size": "beam",
    "normalize": "length_penalty",
    "word-penalty": "word_penalty",
    "max-length-factor": "max_length_factor",
    "allow-unk": "allow_unk",
}
TITLES = {
    "tied_all": "Marian, `tied-embeddings-all`",
    "separate": "Marian, two vocabularies",
    "sentencepiece": "Marian, SentencePiece vocabulary",
    "untied": "Marian, `tied-embeddings-src`",
    "rms_norm": "Marian, RMSNorm",
    "pre_norm": "Marian, pre-norm",
    "student": "Firefox Translations",
    "marian": "`marian`",
    "bart": "`bart`",
    "mvp": "`mvp`",
    "blenderbot": "`blenderbot`",
    "pegasus": "`pegasus`",
    "m2m100": "`m2m_100`, M2M100",
    "nllb": "`m2m_100`, NLLB",
    "nllb-legacy": "`m2m_100`, NLLB with `legacy_behaviour`",
    "small100": "`m2m_100`, SMaLL-100",
    "mbart50": "`mbart`, mBART-50",
    "mbart25": "`mbart`, mBART-cc25",
    "plbart": "`plbart`",
    "t5": "`t5`, T5 1.0",
    "flan": "`t5`, T5 1.1 and FLAN-T5",
    "byt5": "`t5`, ByT5",
    "codet5": "`t5`, CodeT5",
    "madlad": "`t5`, MADLAD-400",
    "mt5": "`mt5`",
    "umt5": "`umt5`",
    "t5gemma2": "`t5gemma2`",
}


@dataclass(frozen=True)
class Row:
    name: str
    oracle: str
    longest: tuple[int, int]  # source and target of the compared scores, in tokens
    difference: float
    greedy: tuple[int, int] | None  # equal outputs of all
    beam: tuple[int, int] | None

    def __str__(self) -> str:
        shares = ["not compared" if each is None else "{} of {}".format(*each) for each in (self.greedy, self.beam)]
        cells = [
            self.name,
            self.oracle,
            "{}, {}".format(*self.longest),
            f"{self.difference:.1e}" if self.difference else "0",
            *shares,
        ]
        return f"| {' | '.join(cells)} |"


def main() -> None:
    torch.set_num_threads(1)
    makers = {
        **{name: partial(make_folder, name) for name in FOLDERS},
        **{name: partial(make_t5_folder, name) for name in T5_FOLDERS},
        "t5gemma2": partial(make_t5gemma2_folder, sliding_window=128, max_position_embeddings=1024),
    }
    wanted = sys.argv[1:] or [*NAMES, *makers]
    print(HEADER, flush=True)
    for name in wanted:
        row = measure_marian(name) if name in NAMES else measure_import(name, makers[name])
        print(row, flush=True)


def measure_import(name: str, make: "partial[Path]") -> Row:
    with tempfile.TemporaryDirectory() as temporary:
        imported = from_folder(make(Path(temporary) / "original"))
        certificate = import_model(imported, Path(temporary) / "model")
    assert certificate is not None
    assert certificate.largest_difference is not None
    noted = {note.code: note.values for note in certificate.notes}
    if "long_pairs_compared" in noted:
        longest = noted["long_pairs_compared"]["source"], noted["long_pairs_compared"]["target"]
    else:
        longest = (noted["long_pair_compared"]["length"],) * 2
    greedy, beam = ((each.same_answers, certificate.sentences) for each in certificate.searches)
    return Row(TITLES[name], certificate.theirs, longest, certificate.largest_difference, greedy, beam)


def measure_marian(name: str) -> Row:
    """Compare with the scores and hypotheses that Marian gave when the model was made."""
    imported, answers = load_marian(name), json.loads((FOLDER / name / "answers.json").read_text("utf-8"))
    pairs = [
        (imported.source_tokenizer.encode(each["source"]), imported.target_tokenizer.encode(each["target"]))
        for each in answers["scores"]
    ]
    scores = TorchSystem(imported.network, "marian").score_tokens(*zip(*pairs, strict=True))
    expected = [torch.tensor(each["scores"]) for each in answers["scores"]]
    difference = max(float((one - other).abs().max()) for one, other in zip(scores, expected, strict=True))
    longest = max(len(source) for source, _ in pairs), max(len(target) for _, target in pairs)
    found = [
        (search["options"]["beam-size"], same)
        for search in answers["searches"]
        for same in compare_hypotheses(imported, search)
    ]
    greedy, beam = ([same for size, same in found if (size == 1) == is_greedy] for is_greedy in (True, False))
    oracle = f"Marian {PACKAGE_VERSION}"
    return Row(TITLES[name], oracle, longest, difference, count_equal(greedy), count_equal(beam))


def compare_hypotheses(imported: ImportedMarian, search: dict[str, dict[str, object]]) -> Iterator[bool]:
    """Yield for each source whether the whole list of hypotheses is Marian's."""
    options = {OPTIONS[key]: value for key, value in search["options"].items()}
    model, texts = imported.build_text_model(), list(search["hypotheses"])
    results = model.generate(texts, preset="marian", n_best=options["beam"], **options)  # type: ignore[arg-type]
    entries = [*CONTROL_PIECES, *imported.target_tokenizer.entries]  # type: ignore[attr-defined]
    for result, expected in zip(results, search["hypotheses"].values(), strict=True):
        ours = [[entries[n] for n in each.ids if n not in (PAD, BOS, EOS)] for each in result.hypotheses]
        yield ours == [pieces.split() for pieces, *_ in expected]  # type: ignore[attr-defined]


def count_equal(same: Sequence[bool]) -> tuple[int, int] | None:
    return (sum(same), len(same)) if same else None


if __name__ == "__main__":
    main()
