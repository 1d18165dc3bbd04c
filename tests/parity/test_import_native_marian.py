"""Models in Marian's own files give the scores and n-best lists that Marian itself gave (`marian_models/make.py`)."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from marian_folders import FOLDER, NAMES, load_marian, write_zip

from attendo.decode.config import GenerationConfig
from attendo.decode.presets import preset
from attendo.interop.import_model import import_model, is_marian, read_import
from attendo.interop.marian.imported import ImportedMarian
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD, UNK
from attendo.text_model import TextModel, load

OURS = {
    "beam-size": "beam",
    "normalize": "length_penalty",
    "word-penalty": "word_penalty",
    "max-length-factor": "max_length_factor",
    "allow-unk": "allow_unk",
}
SEARCHES = 7


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def imported(name: str) -> ImportedMarian:
    return load_marian(name)


@pytest.fixture(scope="module")
def answers(name: str) -> Any:
    return json.loads((FOLDER / name / "answers.json").read_text("utf-8"))


def test_word_scores_are_those_of_marian(imported: ImportedMarian, answers: Any) -> None:
    longest = 0
    for pair in answers["scores"]:
        source = imported.source_tokenizer.encode(pair["source"])
        target = imported.target_tokenizer.encode(pair["target"])
        longest = max(longest, min(len(source), len(target)))
        scores = token_scores(imported, source, target)
        expected = torch.tensor(pair["scores"])
        assert scores.shape == expected.shape
        assert float((scores - expected).abs().max()) < 1e-5
    assert longest > 130


@torch.no_grad()
def token_scores(imported: ImportedMarian, source: list[int], target: list[int]) -> torch.Tensor:
    logits = imported.network(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))[0]
    return logits.log_softmax(-1).gather(1, torch.tensor([[*target, EOS]]).T)[:, 0]


@pytest.mark.parametrize("number", range(SEARCHES))
def test_n_best_lists_are_those_of_marian(imported: ImportedMarian, answers: Any, number: int) -> None:
    if not imported.decodes_as_it_scores:
        assert answers["searches"] == []
        return
    search = answers["searches"][number]
    options = {OURS[key]: value for key, value in search["options"].items()}
    model, texts = imported.build_text_model(), list(search["hypotheses"])
    beam = options["beam"]
    found = model.generate(texts, preset="marian", n_best=beam, **options)
    for result, expected in zip(found, search["hypotheses"].values(), strict=True):
        ours = [(names(imported, each.ids), each.score) for each in result.hypotheses]
        theirs = [(pieces.split(), score) for pieces, _, score in expected]
        assert [pieces for pieces, _ in ours] == [pieces for pieces, _ in theirs]
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], rel=1e-4, abs=1e-4)


def names(imported: ImportedMarian, ids: tuple[int, ...]) -> list[str]:
    entries = [*CONTROL_PIECES, *imported.target_tokenizer.entries]  # type: ignore[attr-defined]
    return [entries[each] for each in ids if each not in (PAD, BOS, EOS)]


def test_a_zip_file_gives_the_same_model_as_its_folder(tmp_path: Path) -> None:
    for name, prefix in (("tied_all", ""), ("separate", "opus-2020/"), ("sentencepiece", "../../")):
        path = write_zip(name, tmp_path / f"{name}.zip", prefix)
        zipped, plain = read_import(path), load_marian(name)
        assert isinstance(zipped, ImportedMarian)
        weights = dict(plain.network.named_parameters())
        assert all(torch.equal(each, weights[key]) for key, each in zipped.network.named_parameters())
        assert zipped.source_tokenizer == plain.source_tokenizer
        assert zipped.generation == plain.generation
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sentencepiece.zip", "separate.zip", "tied_all.zip"]


def test_weights_of_a_compressed_npz_file_are_the_same(tmp_path: Path) -> None:
    for path in (FOLDER / "untied").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    new_file = zipfile.ZipFile(tmp_path / "model.npz", "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(FOLDER / "untied" / "model.npz") as old, new_file as new:
        for member in reversed(old.infolist()):
            new.writestr(member.filename, old.read(member))
    found = dict(read_import(tmp_path).network.named_parameters())
    assert all(torch.equal(found[key], each) for key, each in load_marian("untied").network.named_parameters())


def test_the_decoder_settings_become_the_defaults() -> None:
    imported = load_marian("tied_all")
    assert imported.generation == {
        "beam": 6,
        "stop": "shrinking",
        "allow_unk": False,
        "max_length_factor": 3.0,
        "max_length_extra": 3,
        "at_limit": "any",
    }
    expected = preset("marian", {"beam": 6, "length_penalty": 1.0})
    assert GenerationConfig(**imported.generation) == expected


def test_language_labels_are_symbols() -> None:
    for name in ("tied_all", "separate", "untied"):
        tokenizer = load_marian(name).source_tokenizer
        assert tokenizer.symbols[:2] == (">>deu<<", ">>rev<<")
        first, second, *_ = tokenizer.encode(">>rev<< the cat")
        assert tokenizer.pieces([first, second]) == [">>rev<<", "the"]


def test_a_model_is_saved_and_generates_from_text(tmp_path: Path) -> None:
    model = imported_folder(tmp_path, "tied_all")
    for search in json.loads((FOLDER / "tied_all" / "answers.json").read_text("utf-8"))["searches"]:
        if search["options"] == {"beam-size": 6, "normalize": 1.0}:  # those of decoder.yml
            for text, hypotheses in search["hypotheses"].items():
                expected = hypotheses[0][0].replace(" ", "").replace("▁", " ").strip()
                assert model.generate([text])[0].text == expected


def imported_folder(tmp_path: Path, name: str) -> TextModel:
    assert import_model(load_marian(name), tmp_path / "model", prove=False) is None
    return load(tmp_path / "model", "cpu")


def test_tied_tables_and_positions_are_those_of_marian() -> None:
    configs = {name: load_marian(name).network.config for name in NAMES}
    assert {name: config.tie for name, config in configs.items()} == {
        "tied_all": "all",
        "separate": "output",
        "untied": "none",
        "sentencepiece": "all",
        "pre_norm": "all",
        "rms_norm": "inputs",
        "student": "all",
    }
    assert {config.position_layout for config in configs.values()} == {"fairseq"}
    assert {config.norm_epsilon for config in configs.values()} == {1e-6}
    assert configs["pre_norm"].norm == "pre"
    assert configs["rms_norm"].norm_kind == "rms"
    assert configs["untied"].embedding_norm
    network = load_marian("tied_all").network
    assert network.target.tokens.weight[BOS].abs().max() == 0
    assert UNK == 1


@pytest.mark.parametrize(
    ("path", "expected"), [(FOLDER / "untied", True), (FOLDER / "untied" / "decoder.yml", True), (FOLDER, False)]
)
def test_a_model_of_marian_is_recognised(path: Path, expected: bool) -> None:
    assert is_marian(path) == expected
