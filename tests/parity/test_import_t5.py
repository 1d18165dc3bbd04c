"""Imported T5, mT5 and umT5 models give the same logits and answers as transformers, also beyond 130 tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from foreign_models import assert_passed
from foreign_t5 import SIZES, random_t5, write_as_madlad, write_t5
from safetensors.torch import load_file, save_file

from attendo.errors import ModelError
from attendo.interop.certificate import Bounds
from attendo.interop.certify import certify, random_sources
from attendo.interop.compared_systems import TorchSystem, TransformersSystem
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.import_model import from_folder
from attendo.text import BOS, EOS, PAD, UNK

pytest.importorskip("transformers")

GATED: dict[str, Any] = {"feed_forward_proj": "gated-gelu"}
MADLAD = {**GATED, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
BOUNDS = Bounds(same_tokens=1.0, mean_difference=1e-5, largest_difference=1e-4)
VARIANTS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "t5 1.0": ("t5", True, {}),
    "t5 1.1": ("t5", False, GATED),
    "gated silu, as ul2": ("t5", False, {"feed_forward_proj": "gated-silu", "relative_attention_num_buckets": 16}),
    "gated relu": ("t5", False, {"feed_forward_proj": "gated-relu"}),
    "more encoder layers, as byt5": ("t5", False, {**GATED, "num_layers": 3, "num_decoder_layers": 1}),
    "another start token, as madlad": ("t5", False, MADLAD),
    "short distances": ("t5", True, {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}),
    "mt5": ("mt5", False, GATED),
    "umt5": ("umt5", False, GATED),
    "umt5 with one table": ("umt5", True, GATED),
}


def compare(imported: ImportedModel, count: int = 4) -> None:
    """Compare answers to short sources."""
    sources = [source[:3] for source in random_sources(imported.source.size, count)]
    ours, theirs = TorchSystem(imported.network, "hf"), TransformersSystem.from_import(imported)
    assert_passed(certify(ours, theirs, sources, BOUNDS))


def compare_logits(imported: ImportedModel) -> None:
    """Compare the logits of a long pair, which reads all buckets of distances, and of a short one."""
    size, dice = imported.source.size, torch.Generator().manual_seed(3)
    ours, theirs = TorchSystem(imported.network, "hf"), TransformersSystem.from_import(imported)
    for lengths in ((160, 150), (1, 3)):
        source, target = (torch.randint(4, size, (length,), generator=dice).tolist() for length in lengths)
        first, second = (system.logits(source, target)[:, [UNK, *range(EOS, size)]] for system in (ours, theirs))
        assert float((first - second).abs().max()) < 1e-4


@pytest.mark.short(2)
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_the_same(tmp_path: Path, name: str) -> None:
    kind, tied, changes = VARIANTS[name]
    write_t5(tmp_path, random_t5(kind, tied, **changes))
    if "madlad" in name:
        write_as_madlad(tmp_path)
    found = from_folder(tmp_path, with_tokenizers=False)
    assert found.network.config.tie == ("all" if tied else "inputs")
    assert found.network.config.relative_bias == ("per_layer" if kind == "umt5" else "shared")
    compare_logits(found)
    if name in ("t5 1.0", "umt5"):
        compare(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_answers_are_the_same(tmp_path: Path, name: str) -> None:
    kind, tied, changes = VARIANTS[name]
    compare(from_folder(write_t5(tmp_path, random_t5(kind, tied, **changes)), with_tokenizers=False), count=40)


@pytest.mark.parametrize("tied", [True, False])
def test_folders_of_transformers_5_give_the_same_network(tmp_path: Path, tied: bool) -> None:
    """They say `tie_word_embeddings: true` in any case."""
    model = random_t5("t5", tied, **GATED)
    folders = [write_t5(tmp_path / str(old), model, as_google=old) for old in (True, False)]
    first, second = (from_folder(folder, with_tokenizers=False).network for folder in folders)
    assert first.config == second.config
    assert first.config.output_scale == (SIZES["d_model"] ** -0.5 if tied else 1)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_umt5_is_scaled_as_its_config_says(tmp_path: Path) -> None:
    """transformers 5 always scales it, so the certificate corrects transformers."""
    write_t5(tmp_path, random_t5("umt5", False, **GATED))
    assert "model_type" not in json.loads((tmp_path / "config.json").read_text("utf-8"))
    found = from_folder(tmp_path, with_tokenizers=False)
    assert (found.folder.model_type, found.network.config.output_scale) == ("umt5", 1)
    compare_logits(found)


def test_an_mt5_model_with_one_table_is_noted(tmp_path: Path) -> None:
    """transformers 4 and 5 compute different logits for it."""
    write_t5(tmp_path, random_t5("mt5", True, **GATED))
    assert from_folder(tmp_path, with_tokenizers=False).network.config.output_scale == 1


def test_a_dead_weight_of_old_files_is_ignored(tmp_path: Path) -> None:
    write_t5(tmp_path, random_t5("t5", True))
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    weights["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(32, 6)
    save_file(weights, path, {"format": "pt"})
    compare_logits(from_folder(tmp_path, with_tokenizers=False))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_shards_are_read_and_kept_on_request(tmp_path: Path, dtype: torch.dtype) -> None:
    model = random_t5("t5", False, **GATED).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    single = from_folder(tmp_path, with_tokenizers=False).network
    half = from_folder(tmp_path, with_tokenizers=False, keep_dtype=True).network
    for one, other in zip(single.parameters(), half.parameters(), strict=True):
        assert (one.dtype, other.dtype) == (
            torch.float32,
            dtype if other.dim() > 1 or dtype == other.dtype else one.dtype,
        )
        assert torch.equal(one.to(other.dtype), other)
    compare_logits(from_folder(tmp_path, with_tokenizers=False))


def test_control_tokens_get_our_ids(tmp_path: Path) -> None:
    write_t5(tmp_path, random_t5("t5", True))
    found = from_folder(tmp_path, with_tokenizers=False)
    assert found.target.rows[: EOS + 1] == (0, 2, 0, 1)
    table, bias = found.network.target.tokens.weight, found.network.output.bias
    assert table.size(0) == SIZES["vocab_size"] + 1
    assert torch.equal(table[BOS], table[PAD])
    assert bias is not None
    assert bias[BOS] < -1000
    assert bias[UNK] == 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an encoder": ({"architectures": ["T5EncoderModel"]}, "t5_has_no_decoder"),
    "a classifier": ({"architectures": ["T5ForSequenceClassification"]}, "t5_has_another_head"),
    "chronos": ({"chronos_config": {"n_tokens": 4096}}, "t5_reads_numbers"),
    "another class": ({"architectures": ["ChronosBoltModelForForecasting"]}, "t5_class_unknown"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_classes_are_refused_by_name(tmp_path: Path, name: str) -> None:
    changes, reason = REFUSED[name]
    write_t5(tmp_path, random_t5("t5", True), **changes)
    with pytest.raises(ModelError, check=has_code("t5_class_unsupported", reason=has_code(reason))):
        from_folder(tmp_path, with_tokenizers=False)


def test_codet5p_2b_is_refused_by_name(tmp_path: Path) -> None:
    changes = {"model_type": "codet5p", "architectures": ["CodeT5pEncoderDecoderModel"]}
    write_t5(tmp_path, random_t5("t5", True), **changes)
    with pytest.raises(ModelError, check=has_code("model_type_refused", kind="codet5p")):
        from_folder(tmp_path, with_tokenizers=False)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown activation": ({"feed_forward_proj": "gated-quick_gelu"}, "imported_model_incompatible"),
    "a width as text": ({"d_ff": "40"}, "config_values_invalid"),
    "more rows than weights": ({"vocab_size": 10**6}, "vocab_size_exceeds_weights"),
    "other layers": ({"num_layers": 4}, "weights_config_mismatch"),
    "fewer layers": ({"num_layers": 1}, "weights_config_mismatch"),
    "other heads": ({"num_heads": 4}, "weights_config_mismatch"),
    "other buckets": ({"relative_attention_num_buckets": 16}, "weights_config_mismatch"),
    "an odd number of buckets": ({"relative_attention_num_buckets": 31}, "imported_model_incompatible"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_settings_that_do_not_fit_are_rejected(tmp_path: Path, name: str) -> None:
    changes, code = FAULTS[name]
    write_t5(tmp_path, random_t5("t5", True), **changes)
    with pytest.raises(ModelError, check=has_code(code)):
        from_folder(tmp_path, with_tokenizers=False)


def test_two_input_tables_are_rejected(tmp_path: Path) -> None:
    write_t5(tmp_path, random_t5("t5", True))
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    save_file({**weights, "encoder.embed_tokens.weight": weights["shared.weight"] + 1}, path, {"format": "pt"})
    with pytest.raises(ModelError, check=has_code("weights_config_mismatch")):
        from_folder(tmp_path, with_tokenizers=False)
