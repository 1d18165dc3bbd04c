"""Folders in two versions, written and read by the public functions."""

from collections.abc import Callable
from pathlib import Path

import torch
from small_run import run_config, write_text

from attendo.data.prepare import prepare
from attendo.data.prepared import open_prepared
from attendo.explore.alignment_head import store_alignment_head
from attendo.explore.head_stats import HeadReport, HeadStats
from attendo.interop.exported_files import MANIFEST_FORMAT, MANIFEST_VERSION, new_export
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel, check_manifest, load_model, save_model, write_manifest
from attendo.runs.corpora import make_corpora
from attendo.text.words import Words

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}


def write_model(folder: Path, version: int) -> None:
    words = Words.build(["one two three"])
    config = ModelConfig(vocab_size=words.vocab_size, **SIZES)
    network = Transformer(config, torch.Generator().manual_seed(version))
    save_model(folder, StoredModel(network, words, words, scores={"version": version}))


def write_alignment_head(folder: Path, version: int) -> None:
    if not folder.exists():
        write_model(folder, 1)
    numbers = (0.5,) * 6
    head = HeadStats("decoder.0.cross", version - 1, *numbers, agreement=0.8, error_rate=0.25)
    store_alignment_head(folder, HeadReport((head,), 1, 1, 1, 5))


def write_export(folder: Path, version: int) -> None:
    with new_export(folder) as new:
        for name in ("model.bin", "vocabulary.json"):
            (new / name).write_text(f"{name} {version}")
        write_manifest(new, MANIFEST_FORMAT, MANIFEST_VERSION, {"to": "ctranslate2"})


def write_prepared_data(folder: Path, version: int) -> None:
    text = folder.parents[1] / f"text-{version}"  # its path is part of the index
    config = run_config(write_text(text, pairs=40, seed=version))
    training, valid = make_corpora(config.data, config.seed)
    for _ in prepare(training, valid, config.data, config.tokenizer, config.seed, folder):
        pass


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "model": write_model,
    "alignment head": write_alignment_head,
    "export": write_export,
    "prepared data": write_prepared_data,
}
READERS: dict[str, Callable[[Path], object]] = {
    "model": load_model,
    "alignment head": load_model,
    "export": lambda folder: check_manifest(folder, MANIFEST_FORMAT, MANIFEST_VERSION),
    "prepared data": lambda folder: open_prepared(folder, verify=True),
}
