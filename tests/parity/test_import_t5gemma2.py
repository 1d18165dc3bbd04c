"""Imported T5Gemma 2 models give the same logits and answers as transformers, also beyond the sliding window."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from foreign_models import assert_passed
from foreign_t5gemma2 import FULL, IMAGE_IDS, SLIDING, make_t5gemma2_folder, random_t5gemma2, write_t5gemma2
from safetensors.torch import load_file, save_file

from attendo import load
from attendo.errors import ModelError, UsageError
from attendo.interop.certificate import Bounds
from attendo.interop.certify import certify, random_sources
from attendo.interop.compared_systems import TorchSystem, TransformersSystem
from attendo.interop.ctranslate2.converter import incompatibilities as ctranslate2_incompatibilities
from attendo.interop.export import export
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.import_model import from_folder, import_model
from attendo.interop.onnx.graphs import incompatibilities as onnx_incompatibilities
from attendo.model.cpu_decoder_state import SharedCacheState
from attendo.text import BOS, EOS, PAD, UNK

pytest.importorskip("transformers")

LINEAR = {
    FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
    SLIDING: {"rope_type": "default", "rope_theta": 100.0},
}
BOUNDS = Bounds(same_tokens=1.0, mean_difference=1e-5, largest_difference=1e-4)
VARIANTS: dict[str, dict[str, Any]] = {
    "two heads a key": {},
    "one key for all heads": {"num_key_value_heads": 1},
    "a key for each head": {"num_key_value_heads": 4},
    "an odd window": {"sliding_window": 7},
    "a window beyond every text": {"sliding_window": 400},
    "full attention": {"layer_types": [FULL] * 3},
    "sliding windows only": {"layer_types": [SLIDING] * 3},
    "scaled positions": {"rope_parameters": LINEAR},
    "bounded logits": {"decoder": {"final_logit_softcapping": 3.0}},
    "fewer decoder layers": {"decoder": {"num_hidden_layers": 2, "layer_types": [SLIDING] * 2}},
    "silu": {"hidden_activation": "silu", "rms_norm_eps": 1e-3},
}


def import_random(folder: Path, **changes: Any) -> ImportedModel:
    return from_folder(write_t5gemma2(folder, random_t5gemma2(**changes)), with_tokenizers=False)


def compare_logits(imported: ImportedModel) -> None:
    """Compare the logits of a pair far beyond the window, and of a short one."""
    size, dice = imported.source.size, torch.Generator().manual_seed(3)
    ours, theirs = TorchSystem(imported.network, "hf"), TransformersSystem.from_import(imported)
    for lengths in ((160, 150), (1, 3)):
        source, target = (torch.randint(4, size, (length,), generator=dice).tolist() for length in lengths)
        first, second = (system.logits(source, target)[:, [UNK, *range(EOS, size)]] for system in (ours, theirs))
        assert float(first.abs().max()) > 1
        assert float((first - second).abs().max()) < 1e-4


def compare_answers(imported: ImportedModel, count: int = 20) -> None:
    sources = random_sources(imported.source.size, count)
    ours, theirs = TorchSystem(imported.network, "hf"), TransformersSystem.from_import(imported)
    assert_passed(certify(ours, theirs, sources, BOUNDS))


@pytest.mark.short(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_the_same(tmp_path: Path, name: str) -> None:
    compare_logits(import_random(tmp_path, **VARIANTS[name]))


@pytest.mark.short(2)
@pytest.mark.parametrize("name", VARIANTS)
def test_answers_are_the_same(tmp_path: Path, name: str) -> None:
    compare_answers(import_random(tmp_path, **VARIANTS[name]))


def test_the_config_has_the_settings_of_the_folder(tmp_path: Path) -> None:
    config = import_random(tmp_path, rope_parameters=LINEAR).network.config
    assert (config.num_heads, config.num_kv_heads, config.head_width) == (4, 2, 8)
    assert (config.sliding_window, config.sliding_window_pattern) == (6, 3)
    assert (config.rope_theta, config.rope_local_theta, config.rope_scaling) == (1e6, 100.0, 4.0)
    assert config.gemma_settings.keys() >= {"num_kv_heads", "qk_norm", "merged_attention", "sliding_window"}
    assert (config.norm, config.tie, config.attention_scale) == ("sandwich", "all", 10**-0.5)


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("cache", ["growing", "static", "shared"])
def test_steps_have_the_logits_of_one_pass(tmp_path: Path, cache: str, width: int) -> None:
    """With padded sources, rows that change places, and targets beyond the window."""
    network = import_random(tmp_path).network
    dice = torch.Generator().manual_seed(5)
    source, target = (torch.randint(4, 64, (2, length), generator=dice) for length in (12, 20))
    mask = torch.ones_like(source, dtype=torch.bool)
    mask[1, 7:] = False
    rows, order = torch.arange(2).repeat_interleave(width), torch.arange(2 * width).view(2, width).flip(1).flatten()
    start = network.start(network.encode(source, mask))
    state: Any = start
    if cache == "static":
        state = network.allocate_state(2, 12, width, 24)
        state.insert(torch.arange(2), torch.arange(2 * width), start)
    elif cache == "shared":
        state = SharedCacheState.empty(start, width)
    found = []
    for column in target[rows].split(1, dim=1):
        step, state = network.step(column, state)
        found.append(step)
        state = state.reorder(order) if width > 1 else state
    expected = network(source, target, mask)
    torch.testing.assert_close(torch.cat(found, dim=1), expected[rows], atol=2e-5, rtol=1e-5)
    explicit = network(source, target, mask, tap=lambda site, weights: None)
    torch.testing.assert_close(explicit, expected, atol=2e-5, rtol=1e-5)
    alone = network(source[1:, :7], target[1:])
    torch.testing.assert_close(alone, expected[1:], atol=2e-5, rtol=1e-5)


def test_an_output_table_of_its_own_is_kept(tmp_path: Path) -> None:
    write_t5gemma2(tmp_path, random_t5gemma2())
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    weights["lm_head.out_proj.weight"] = torch.randn(64, 32)
    save_file(weights, path, {"format": "pt"})
    change_config(tmp_path, {"tie_word_embeddings": False})
    assert from_folder(tmp_path, with_tokenizers=False).network.config.tie == "inputs"


def test_names_with_text_model_are_read(tmp_path: Path) -> None:
    """transformers leaves this part out of the names that it saves."""
    expected = import_random(tmp_path).network
    path = tmp_path / "model.safetensors"
    weights = {
        name if "vision" in name or "multi_modal" in name else name.replace("encoder.", "encoder.text_model."): each
        for name, each in load_file(path).items()
    }
    save_file(weights, path, {"format": "pt"})
    found = from_folder(tmp_path, with_tokenizers=False).network
    for one, other in zip(expected.parameters(), found.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_embedding_of_the_end_of_an_image_is_left_out(tmp_path: Path) -> None:
    """transformers gives this token a vector of its own. Texts do not contain it."""
    imported = import_random(tmp_path)
    assert imported.folder.weights["encoder.embed_tokens.eoi_embedding"].abs().max() > 0
    ours, theirs = TorchSystem(imported.network, "hf"), TransformersSystem.from_import(imported)
    ids = imported.source.to_ours([IMAGE_IDS["eoi_token_index"], 7])
    first, second = (system.logits(ids, ids)[:, EOS:] for system in (ours, theirs))
    assert float((first - second).abs().max()) < 1e-4


def test_control_tokens_get_our_ids(tmp_path: Path) -> None:
    found = import_random(tmp_path)
    assert found.target.rows[: EOS + 1] == (0, 3, 2, 1)
    assert not found.target.copies
    assert found.network.output.bias is None
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


def test_a_folder_with_a_tokenizer_is_certified(tmp_path: Path) -> None:
    found = from_folder(make_t5gemma2_folder(tmp_path / "original"))
    assert found.generation["source_prefix"] == ["<s>"]
    assert found.source_tokenizer is not None
    assert found.source_tokenizer.symbols == ("<mask>", "<start_of_turn>")
    certificate = import_model(found, tmp_path / "out", min_sentences=10)
    assert certificate is not None
    noted = {note.code for note in certificate.notes}
    assert noted >= {"texts_have_same_ids", "long_pairs_compared", "t5gemma2_reads_no_images"}
    model = load(tmp_path / "out")
    texts = ["a cat sat", "dogs <start_of_turn> ran é"]
    expected = [each.best.ids for each in model.generate(texts, max_length=9)]
    assert len({*expected}) == 2
    for engine in ("cached", "textbook"):
        assert [each.best.ids for each in model.generate(texts, max_length=9, engine=engine)] == expected
    trace = model.trace(texts[0])
    assert trace.source_pieces[0] == "<s>"
    assert "</s>" not in trace.source_pieces
    both = trace.cross.sum(-1) + trace.decoder_self.sum(-1)
    torch.testing.assert_close(both, torch.ones_like(both))


def test_half_precision_is_read_as_float32_and_not_kept(tmp_path: Path) -> None:
    """A gain of 1 + w has more digits than w."""
    write_t5gemma2(tmp_path, random_t5gemma2().to(torch.bfloat16))
    compare_logits(from_folder(tmp_path, with_tokenizers=False))
    with pytest.raises(ModelError, check=has_code("t5gemma2_gains_need_float32")):
        from_folder(tmp_path, with_tokenizers=False, keep_dtype=True)


def test_other_formats_and_the_page_refuse_the_network(tmp_path: Path) -> None:
    model = from_folder(make_t5gemma2_folder(tmp_path / "original")).build_text_model()
    config = model.network.config
    for incompatibilities in (onnx_incompatibilities, ctranslate2_incompatibilities):
        names = {str(each.values.get("name")) for each in incompatibilities(config)}
        assert names >= {"num_kv_heads", "qk_norm", "merged_attention", "sliding_window", "rope_theta"}
    for to in ("hf", "marian"):
        with pytest.raises(ModelError, match="merged_attention"):
            export(model, tmp_path / to, to)  # type: ignore[arg-type]
    with pytest.raises(UsageError, check=has_code("page_lacks_setting")):
        model.trace("a cat", "a dog").show()
    with pytest.raises(UsageError, check=has_code("merged_attention_feature_unsupported")):
        model.require_cross_attention("an attention map")
    with pytest.raises(UsageError, check=has_code("fp16_with_sandwich_norm")):
        config.check_fp16()


def change_config(folder: Path, changes: dict[str, Any], stacks: bool = False) -> None:
    path = folder / "config.json"
    settings = json.loads(path.read_text("utf-8"))
    for part in (settings["decoder"], settings["encoder"]["text_config"]) if stacks else (settings,):
        part |= changes
    path.write_text(json.dumps(settings), "utf-8")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bounded scores": ({"attn_logit_softcapping": 50.0}, "setting_differs"),
    "biases": ({"attention_bias": True}, "setting_differs"),
    "another activation": ({"hidden_activation": "tanh"}, "setting_differs"),
    "an order of layers": ({"layer_types": [FULL, SLIDING, SLIDING]}, "layer_types_irregular"),
    "yarn": ({"rope_parameters": {FULL: {"rope_type": "yarn", "factor": 2.0}}}, "setting_differs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_networks_are_refused_by_name(tmp_path: Path, name: str) -> None:
    changes, code = REFUSED[name]
    write_t5gemma2(tmp_path, random_t5gemma2())
    change_config(tmp_path, changes, stacks=True)
    with pytest.raises(ModelError, check=has_code("imported_model_incompatible", reason=has_code(code))):
        from_folder(tmp_path, with_tokenizers=False)


@pytest.mark.parametrize("changes", [{"num_key_value_heads": 1}, {"sliding_window": 5}, {"rms_norm_eps": 1e-5}])
def test_stacks_with_other_settings_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_t5gemma2(tmp_path, random_t5gemma2(decoder=changes))
    refused = has_code("imported_model_incompatible", reason=has_code("stack_settings_differ"))
    with pytest.raises(ModelError, check=refused):
        from_folder(tmp_path, with_tokenizers=False)


@pytest.mark.parametrize(
    "changes", [{"hidden_size": 4_000_000}, {"num_hidden_layers": 100_000}, {"vocab_size": 2**30}, {"head_dim": "8"}]
)
def test_wrong_sizes_are_found_before_memory_is_allocated(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_t5gemma2(tmp_path, random_t5gemma2())
    change_config(tmp_path, changes, stacks=True)
    with pytest.raises(ModelError) as caught:
        from_folder(tmp_path, with_tokenizers=False)
    assert len(str(caught.value)) < 1500
