"""`attendo export --to marian`: an import of the export is the same model, and Marian gives the same answers."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from marian_folders import FOLDER, NAMES, load_marian
from tiny import SIZES, SOURCES, TARGETS

from attendo.errors import ModelError, UsageError
from attendo.interop.certify import collect_sentences
from attendo.interop.export import export
from attendo.interop.import_model import import_model
from attendo.interop.marian import marian_process
from attendo.interop.marian.marian_process import MODULE
from attendo.interop.marian.read_model import read_marian
from attendo.interop.marian.write_model import without_pad_and_bos, write_marian
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import BOS, PAD
from attendo.text.config import TokenizerConfig
from attendo.text.factory import build_tokenizers
from attendo.text_model import TextModel

POST_NORM = tuple(name for name in NAMES if name != "pre_norm")
TEXTS = [">>deu<< the cat sees a dog", ">>rev<< today", "not a label"]
needs_marian = pytest.mark.skipif(find_spec(MODULE) is None, reason="pymarian is not installed")


def trained_model(kind: Any = "bpe", joint: bool = True, **changes: Any) -> TextModel:
    """A network like one trained in attendo: the vector of bos is not zero, and pad and bos have a probability."""
    source, target = build_tokenizers(SOURCES * 9, TARGETS * 9, TokenizerConfig(kind=kind, joint=joint, size=320))
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    like_marian = {"norm": "post", "position_layout": "fairseq", "norm_epsilon": 1e-6, "tie": "all"}
    generator = torch.Generator().manual_seed(1)
    network = Transformer(ModelConfig(**{**sizes, **SIZES, **like_marian, **changes}), generator)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter * 1.5 if parameter.dim() > 1 else parameter + 0.3 * noise)
    return TextModel(StoredModel(network.eval(), source, target, {"beam": 2}))


KINDS: dict[str, dict[str, Any]] = {
    "bpe": {},
    "words": {"kind": "words", "joint": False, "tie": "output", "final_norm": True},
    "characters": {"kind": "characters", "joint": False, "tie": "none", "norm_kind": "rms", "output_bias": True},
}


@pytest.mark.parametrize("name", POST_NORM)
def test_an_import_of_the_export_is_the_same_model(name: str, tmp_path: Path) -> None:
    first = load_marian(name)
    write_marian(first.build_text_model(), tmp_path, "float32")
    again = read_marian(tmp_path)
    weights = dict(again.network.named_parameters())
    assert again.network.config == first.network.config
    assert all(torch.equal(weights[key], each) for key, each in first.network.named_parameters())
    assert again.source_tokenizer.vocab_size == first.source_tokenizer.vocab_size
    for side in ("source_tokenizer", "target_tokenizer"):
        ours, theirs = getattr(first, side), getattr(again, side)
        assert [ours.encode(text) for text in TEXTS] == [theirs.encode(text) for text in TEXTS]
    assert again.generation == first.generation


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_attendo_has_the_same_probabilities_after_export_and_import(kind: str, tmp_path: Path) -> None:
    model = trained_model(**KINDS[kind])
    assert model.network.target.tokens.weight[BOS].abs().max() > 0
    write_marian(model, tmp_path, "float32")
    again = read_marian(tmp_path)
    expected, found = without_pad_and_bos(model.network), again.network
    assert model.source_tokenizer.vocab_size == again.source.size
    source = torch.randint(4, again.source.size, (3, 150), generator=torch.Generator().manual_seed(2))
    target = torch.randint(4, again.target.size, (3, 140), generator=torch.Generator().manual_seed(3))
    target[:, 0] = BOS
    with torch.no_grad():
        ours, theirs = (each(source, target).log_softmax(-1) for each in (expected, found))
    kept = [number for number in range(again.target.size) if number not in (PAD, BOS)]
    assert float((ours - theirs)[..., kept].abs().max()) < 2e-5
    assert float(theirs[..., [PAD, BOS]].max()) < -1000


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"norm": "pre"}, "norm"),
        ({"norm_epsilon": 1e-5}, "norm_epsilon"),
        ({"position_layout": "interleaved"}, "position_layout"),
        ({"position_offset": 2}, "position_offset"),
        ({"positions": "learned", "position_layout": "interleaved"}, "positions"),
        ({"activation": "swiglu"}, "activation"),
        ({"scale_embedding": False}, "scale_embedding"),
    ],
)
def test_a_network_that_marian_cannot_hold_is_refused_by_name(
    changes: dict[str, Any], setting: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, check=has_code("marian_export_unsupported")) as error:
        write_marian(trained_model(**changes), tmp_path, "float32")
    assert f"{setting} is" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_network_is_checked_before_marian_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marian_process, "find_spec", lambda name: None)
    with pytest.raises(ModelError, check=has_code("marian_export_unsupported")):
        export(trained_model(norm="pre"), tmp_path / "out", "marian")
    with pytest.raises(UsageError, check=has_code("export_proof_needs_marian", package="pymarian")):
        export(trained_model(), tmp_path / "out", "marian")
    assert list(tmp_path.iterdir()) == []


def test_other_precisions_and_prefixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("marian_precision_unsupported", precision="int8")):
        write_marian(trained_model(), tmp_path, "int8")
    with pytest.raises(ModelError, check=has_code("marian_export_unsupported")):
        write_marian(trained_model(embedding_norm=True), tmp_path, "float32")


def test_the_settings_are_written_and_the_others_are_listed(tmp_path: Path) -> None:
    model = trained_model()
    notes = write_marian(model, tmp_path, "float32")
    text = (tmp_path / "decoder.yml").read_text("utf-8")
    assert "beam-size: 2\n" in text
    assert "relative-paths: true\n" in text
    assert {note.values["name"] for note in notes if note.code == "marian_setting_not_exported"} >= {"stop", "at_limit"}
    assert "marian_removes_pad_and_bos" in {note.code for note in notes}


@needs_marian
@pytest.mark.slow
@pytest.mark.parametrize("name", [*POST_NORM, *KINDS])
def test_marian_gives_the_answers_of_an_export(name: str, tmp_path: Path) -> None:
    model = (
        trained_model(**KINDS[name]) if name in KINDS and name not in NAMES else load_marian(name).build_text_model()
    )
    certificate = export(model, tmp_path / "out", "marian", sentences=collect_sentences(model, min_count=40))
    assert certificate.passed
    assert certificate.token_scores is not None
    assert certificate.token_scores.largest_difference < 2e-5


@needs_marian
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_import_has_a_certificate_of_marian(name: str, tmp_path: Path) -> None:
    certificate = import_model(load_marian(name), tmp_path / "model")
    assert certificate is not None
    assert certificate.token_scores is not None
    assert certificate.token_scores.largest_difference < 1e-5
    assert certificate.token_scores.longest > 130
    assert len(certificate.searches) == (0 if name == "pre_norm" else 2)
    stored = json.loads((tmp_path / "model" / "certificate.json").read_text("utf-8"))
    assert stored["passed"]


@needs_marian
@pytest.mark.slow
def test_marian_reads_the_files_of_an_export_itself(tmp_path: Path) -> None:
    model = load_marian("tied_all").build_text_model()
    export(model, tmp_path / "out", "marian", sentences=collect_sentences(model, min_count=5))
    code = "import sys, _pymarian; sys.exit(_pymarian.main(sys.argv[1:]))"
    lines = []
    for folder in (tmp_path / "out", FOLDER / "tied_all"):
        options = ["decode", "-c", str(folder / "decoder.yml"), "--cpu-threads", "1", "-w", "64", "--quiet", "--n-best"]
        given = ">>rev<< ▁the ▁cat ▁sees\n>>deu<< ▁not\n"
        ended = subprocess.run([sys.executable, "-c", code, *options], input=given, capture_output=True, text=True)
        lines.append(ended.stdout)
    assert lines[0] == lines[1] != ""
