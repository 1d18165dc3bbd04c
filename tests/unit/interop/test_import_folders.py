"""Folders that cannot be imported: the error names what was found and what is needed."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from foreign_models import random_model, written
from foreign_tokenizers import write_bart, write_m2m100, write_marian, write_vocabulary
from late_import import needs
from safetensors.torch import load_file, save_file

from attendo.errors import AttendoError, ModelError, UsageError
from attendo.interop.huggingface.read_weights import ACTIVATIONS
from attendo.interop.import_model import from_folder

pytestmark = needs("transformers")

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete Marian folder."""
    folder = tmp_path_factory.mktemp("marian")
    last = len(write_marian(folder)) - 1
    return written(random_model("marian", vocab_size=last + 1, pad_token_id=last, decoder_start_token_id=last), folder)


@pytest.fixture
def copied(marian: Path, tmp_path: Path) -> Path:
    for path in marian.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def settings(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")

    return change


def weights(**changes: torch.Tensor | None) -> Change:
    """Replace weights, by names with __ for dots. None removes a weight."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        found = load_file(path)
        for name, weight in changes.items():
            if weight is None:
                del found[name.replace("__", ".")]
            else:
                found[name.replace("__", ".")] = weight
        save_file(found, path)

    return change


def without(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def containing(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content) and None


def combine(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes] and None


def without_pieces(share: float) -> Change:
    """Remove a share of the vocabulary."""

    def change(folder: Path) -> None:
        path = folder / "vocab.json"
        vocabulary = json.loads(path.read_text("utf-8"))
        removed = list(vocabulary)[2 : 2 + int(share * len(vocabulary))]
        path.write_text(json.dumps({piece: n for piece, n in vocabulary.items() if piece not in removed}), "utf-8")

    return change


INVALID: dict[str, tuple[Change, str]] = {
    "no config.json": (without("config.json"), has_code("transformers_config_missing")),
    "no JSON": (
        containing("config.json", b"{"),
        has_code("json_syntax_invalid", fix="copy the folder again"),
    ),
    "no object": (containing("config.json", b"[]"), has_code("json_not_an_object")),
    "no model type": (settings(model_type=None), has_code("model_type_missing", value="None")),
    "another model type": (
        settings(model_type="bert", architectures=["BertModel"]),
        has_code("import_model_type_unsupported", kind="bert", architectures="BertModel"),
    ),
    "no weights": (without("model.safetensors"), has_code("weights_file_missing", weights="model.safetensors")),
    "a pickle": (
        combine(without("model.safetensors"), containing("pytorch_model.bin", b"x")),
        has_code("weights_format_unsafe", files="pytorch_model.bin"),
    ),
    "an npz": (
        combine(without("model.safetensors"), containing("model.npz", b"x")),
        has_code("weights_format_unsafe", files="model.npz"),
    ),
    "damaged weights": (containing("model.safetensors", b"x" * 20), has_code("safetensors_header_too_large")),
    "a shard is missing": (
        combine(
            without("model.safetensors"),
            containing("model.safetensors.index.json", b'{"weight_map": {"a": "b.safetensors"}}'),
        ),
        has_code("weight_files_missing", files="b.safetensors", index="model.safetensors.index.json"),
    ),
    "a shard outside": (
        combine(
            without("model.safetensors"),
            containing("model.safetensors.index.json", b'{"weight_map": {"a": "../b.safetensors"}}'),
        ),
        has_code("weight_index_damaged"),
    ),
    "a vocabulary larger than memory": (
        settings(vocab_size=10**12),
        has_code("config_values_invalid", faults="vocab_size = 1000000000000"),
    ),
    "a vocabulary that the weights do not have": (
        settings(vocab_size=10**9),
        has_code("vocab_size_exceeds_weights", setting="vocab_size", value=1000000000),
    ),
    "a width beyond 64 bits": (settings(d_model=10**30), has_code("config_values_invalid")),
    "no activation": (
        settings(activation_function=None),
        has_code("config_values_invalid", faults="activation_function = None"),
    ),
    "other heads": (
        settings(decoder_attention_heads=2),
        has_code("imported_model_incompatible", reason=has_code("head_counts_differ", encoder=4, decoder=2)),
    ),
    "other widths": (
        settings(encoder_ffn_dim=9),
        has_code("imported_model_incompatible", reason=has_code("feed_forward_widths_differ", encoder=9, decoder=24)),
    ),
    "another activation": (
        settings(activation_function="gelu_fast"),
        has_code(
            "imported_model_incompatible",
            reason=has_code("activation_unknown", name="gelu_fast", known=", ".join(ACTIVATIONS)),
        ),
    ),
    "more layers": (
        settings(decoder_layers=3),
        has_code("weights_config_mismatch"),
    ),
    "fewer layers": (settings(decoder_layers=1), has_code("weights_config_mismatch")),
    "another width": (settings(d_model=32), has_code("weights_config_mismatch")),
    "another shape": (
        weights(model__encoder__layers__0__fc1__weight=torch.zeros(3, 4)),
        has_code(
            "weights_config_mismatch",
            faults=has_code(
                "weight_shape_differs", name="encoder.layers.0.fc1.weight", found=[3, 4], expected=[24, 16]
            ),
        ),
    ),
    "an extra weight": (weights(classifier=torch.zeros(3)), has_code("weights_config_mismatch")),
    "tied, but not the same": (
        weights(lm_head__weight=torch.zeros(1, 1)),
        has_code("weights_config_mismatch"),
    ),
    "untied, but not there": (
        settings(tie_word_embeddings=False),
        has_code("weights_config_mismatch", faults=has_code("weight_missing", name="lm_head.weight")),
    ),
    "two end tokens": (
        settings(eos_token_id=[0, 4]),
        has_code("json_field_invalid", field="eos_token_id", value="[0, 4]", needed=has_code("needs_token")),
    ),
    "no vocabulary": (without("vocab.json"), has_code("required_file_missing", file="vocab.json", kind="marian")),
    "no pieces": (without("target.spm"), has_code("required_file_missing", file="target.spm", kind="marian")),
    "damaged pieces": (containing("source.spm", b"\xff"), has_code("sentencepiece_model_invalid")),
    "an invalid vocabulary": (containing("vocab.json", b'{"a": "b"}'), has_code("vocabulary_ids_invalid")),
    "a larger vocabulary": (
        lambda folder: write_vocabulary(folder / "vocab.json", [f"p{n}" for n in range(999)]) and None,
        has_code("vocabulary_exceeds_network", piece="'p998'", token_id="998"),
    ),
    "another vocabulary": (
        lambda folder: write_vocabulary(folder / "vocab.json", ["</s>", "<unk>", "a", "b", "<pad>"]) and None,
        has_code("sentencepiece_vocabulary_mismatch"),
    ),
    "values of another kind": (
        settings(d_model="16", encoder_layers=-1, tie_word_embeddings="yes", activation_function=["relu"], dropout="x"),
        has_code("config_values_invalid"),
    ),
    "heads that do not divide the width": (
        settings(encoder_attention_heads=3, decoder_attention_heads=3),
        has_code("imported_model_incompatible"),
    ),
    "tokens outside the vocabulary": (
        settings(pad_token_id=9999, decoder_start_token_id=9999),
        has_code("control_token_outside_vocabulary", tokens="pad has the id 9999; decoder_start has the id 9999"),
    ),
    "no length": (
        settings(max_length=-3),
        has_code("json_field_invalid", field="max_length", value="-3", needed=has_code("needs_count")),
    ),
    "no list of architectures": (
        settings(model_type="bert", architectures="B"),
        has_code("import_model_type_unsupported", kind="bert", architectures="B"),
    ),
    "architectures without names": (
        settings(model_type="bert", architectures=[1]),
        has_code("import_model_type_unsupported", kind="bert", architectures="1"),
    ),
    "NaN": (
        weights(model__encoder__layers__0__fc1__weight=torch.full((24, 16), torch.nan)),
        has_code("weights_config_mismatch", faults=has_code("weight_not_finite", name="encoder.layers.0.fc1.weight")),
    ),
    "integer weights": (
        weights(model__encoder__layers__0__fc1__weight=torch.ones(24, 16, dtype=torch.int8)),
        has_code("weights_not_floating_point", weight="model.encoder.layers.0.fc1.weight (torch.int8)"),
    ),
    "quantized weights": (
        settings(quantization_config={"load_in_8bit": True}),
        has_code("weights_quantized"),
    ),
    "no encoder": (
        settings(is_encoder_decoder=False),
        has_code("json_field_invalid", field="is_encoder_decoder", value="False"),
    ),
    "a network larger than memory": (
        settings(d_model=10**9, encoder_layers=10**6),
        has_code("weights_config_mismatch"),
    ),
    "a vocabulary that knows few pieces": (
        without_pieces(0.15),
        has_code("sentencepiece_vocabulary_mismatch"),
    ),
    "an invalid early_stopping": (
        settings(early_stopping="maybe"),
        has_code(
            "json_field_invalid",
            field="early_stopping",
            value="'maybe'",
            needed="one of False, True, 'never'",
        ),
    ),
    "a forced text token": (
        settings(forced_bos_token_id=40),
        has_code(
            "json_field_invalid",
            field="forced_bos_token_id",
            value="40",
            needed=has_code("needs_prefix_symbol", symbols="-"),
        ),
    ),
    "a model folder of attendo": (
        containing("manifest.json", b'{"format": "attendo.model"}'),
        has_code("import_of_attendo_model"),
    ),
    "an export of attendo": (
        combine(containing("manifest.json", b'{"format": "attendo.export"}'), without("model.safetensors")),
        has_code("import_of_exported_model"),
    ),
    "weights that Git did not fetch": (
        containing("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"),
        has_code("file_is_lfs_pointer"),
    ),
    "pieces that Git did not fetch": (
        containing("source.spm", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"),
        has_code("file_is_lfs_pointer"),
    ),
    "impossible defaults": (settings(num_beams=0), has_code("decoding_defaults_invalid")),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_folder_raises_with_the_reason(copied: Path, name: str) -> None:
    change, message = INVALID[name]
    change(copied)
    (copied / "generation_config.json").unlink()  # it would take precedence over config.json
    with pytest.raises(ModelError, check=message) as error:
        from_folder(copied)
    assert "\n" not in str(error.value)


def test_a_valid_folder_is_imported(copied: Path) -> None:
    model = from_folder(copied).build_text_model()
    assert model.generate(["ab"], max_length=3)[0].ids


def test_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, check=has_code("import_path_not_folder")):
        from_folder(tmp_path / "nowhere")


def test_without_tokenizers_there_is_no_text_model(marian: Path) -> None:
    found = from_folder(marian, with_tokenizers=False)
    with pytest.raises(ModelError, check=has_code("tokenizers_not_loaded")):
        found.build_text_model()


def test_languages_need_a_multilingual_model(marian: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("model_without_languages", kind="marian")):
        from_folder(marian, source_language="en")
    size = len(write_m2m100(tmp_path)) + 108
    written(random_model("m2m_100", vocab_size=size), tmp_path)
    with pytest.raises(UsageError, check=has_code("language_not_in_model", name="'xx'")):
        from_folder(tmp_path, source_language="xx")
    assert from_folder(tmp_path).missing_languages == ("source", "target")
    assert from_folder(tmp_path, target_language="de").missing_languages == ("source",)


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("content", "code"), [(b"#version: 0.2\na b c\n", "merge_not_a_pair"), (b"\xff\n", "model_file_not_utf8")]
)
def test_damaged_merges_are_rejected(tmp_path: Path, content: bytes, code: str) -> None:
    written(random_model("bart", vocab_size=len(write_bart(tmp_path))), tmp_path)
    (tmp_path / "merges.txt").write_bytes(content)
    with pytest.raises(AttendoError, check=has_code(code)):
        from_folder(tmp_path)


@pytest.mark.short(1)
@pytest.mark.parametrize("lacking", [1, 20])
def test_missing_merge_results_are_noted_or_rejected(tmp_path: Path, lacking: int) -> None:
    names = write_bart(tmp_path)
    written(random_model("bart", vocab_size=len(names)), tmp_path)
    path = tmp_path / "vocab.json"
    known: dict[str, int] = json.loads(path.read_text("utf-8"))
    made = [name for name in known if len(name) > 1 and not name.startswith("<")]
    assert len(made) > 20
    path.write_text(json.dumps({name: each for name, each in known.items() if name not in made[-lacking:]}), "utf-8")
    if lacking == 1:
        (note,) = (each for each in from_folder(tmp_path).notes if each.code == "merged_pieces_unknown")
        assert note.values["count"] == 1
    else:
        with pytest.raises(ModelError, check=has_code("merges_vocabulary_mismatch", count=20)):
            from_folder(tmp_path)


@pytest.mark.parametrize("name", ["model.pt", "it's a file.ckpt"])
def test_the_suggested_conversion_of_a_pickle_works(copied: Path, name: str) -> None:
    """The command in the message converts the file to one that can be read."""
    path = copied / "model.safetensors"
    torch.save(load_file(path), copied / name)
    path.unlink()
    with pytest.raises(ModelError, check=has_code("weights_format_unsafe")) as error:
        from_folder(copied)
    words = shlex.split(error.value.values["fix"].values["command"])
    assert words[:2] == ["python", "-c"]
    exec(words[2], {})
    from_folder(copied)


def test_the_suggested_command_is_quoted_for_a_shell(copied: Path) -> None:
    folder = copied / "it's one"
    folder.mkdir()
    (folder / "config.json").write_bytes((copied / "config.json").read_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ModelError) as error:
        from_folder(folder)
    words = shlex.split(error.value.values["fix"].values["command"])
    assert words[2].count(str(folder)) == 2
    compile(words[2], "command", "exec")
