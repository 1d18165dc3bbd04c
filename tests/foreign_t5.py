"""Random T5, mT5 and umT5 models of the transformers library in folders, with tokenizers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import written
from foreign_tokenizers import pieces_model, some_lines, write_bart
from safetensors.torch import load_file, save_file
from torch import Tensor

SIZES: dict[str, Any] = {
    "vocab_size": 172,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 6,
    "decoder_start_token_id": 0,
}
CLASSES = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
NUM_SENTINELS = 8
BYTE_ROWS = 384


def random_t5(kind: str = "t5", tied: bool = False, seed: int = 0, **changes: Any) -> Any:
    """All weights are random. `tied` False gives the output layer its own table, as in T5 1.1."""
    transformers = pytest.importorskip("transformers")
    name = CLASSES[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = getattr(transformers, f"{name}Config")(**{**SIZES, **changes})
        model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
        with torch.no_grad():
            for key, weight in model.named_parameters():
                weight.copy_(_scale_weight(key, torch.randn_like(weight)))
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(_scale_weight("lm_head", torch.randn_like(model.lm_head.weight)))
    return model.eval()


def _scale_weight(key: str, values: Tensor) -> Tensor:
    """Gains have random signs, so that tied tables do not copy the source. Relative positions change the answers."""
    if values.dim() == 1:
        return values.sign() * (1 + 0.2 * values.abs())
    if "relative_attention_bias" in key:
        return 2 * values
    if "shared" in key or "lm_head" in key:
        return values * (1 if "shared" in key else values.size(1) ** -0.5)
    return values * values.size(1) ** -0.5


def write_t5(folder: Path, model: Any, as_google: bool = True, **changes: Any) -> Path:
    """Save the model. `as_google` writes config.json as before transformers 5, which adds scale_decoder_outputs."""
    tied = model.lm_head.weight is model.shared.weight
    written(model, folder)
    path = folder / "config.json"
    settings = json.loads(path.read_text("utf-8"))
    if as_google:
        settings.pop("scale_decoder_outputs", None)
        settings["tie_word_embeddings"] = tied
        if model.config.model_type == "umt5":
            del settings["model_type"]
    elif model.config.model_type == "t5":
        settings |= {"tie_word_embeddings": True, "scale_decoder_outputs": tied}
    path.write_text(json.dumps({**settings, **changes}), "utf-8")
    return folder


def write_as_madlad(folder: Path) -> None:
    """Rename the input table as in MADLAD-400, whose files have no `shared`."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["decoder.embed_tokens.weight"] = weights.pop("shared.weight")
    save_file(weights, path, {"format": "pt"})


def write_spiece(folder: Path, size: int = 160, sentinels: int = NUM_SENTINELS, **settings: Any) -> bytes:
    """A SentencePiece model with T5's control ids."""
    controls: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    model = pieces_model(some_lines(), "unigram", size, **{**controls, **settings})
    (folder / "spiece.model").write_bytes(model)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "T5Tokenizer", "extra_ids": sentinels})
    return model


def write_byt5(folder: Path) -> None:
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "ByT5Tokenizer"})


def write_codet5(folder: Path) -> dict[str, int]:
    """Byte pairs with CodeT5's ids: pad 0, `<s>` 1, `</s>` 2, unk 3, and sentinels behind the pieces."""
    names = [name for name in write_bart(folder) if name not in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")]
    vocabulary = {name: n for n, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", "<mask>", *names])}
    write_json(folder / "vocab.json", vocabulary)
    sentinels = {f"<extra_id_{n}>": len(vocabulary) + 3 - n for n in range(4)}
    write_json(folder / "added_tokens.json", sentinels)
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": list(sentinels)})
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"})
    return {**vocabulary, **sentinels}


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


def make_t5_folder(name: str, folder: Path, **changes: Any) -> Path:
    """Write the folder of one of `T5_FOLDERS`, with a tokenizer, as its authors published it."""
    folder.mkdir(parents=True, exist_ok=True)
    kind, tied, write, settings = T5_FOLDERS[name]
    write(folder)
    write_t5(folder, random_t5(kind, tied, **{**settings, **changes}))
    if name == "madlad":
        write_as_madlad(folder)
    return folder


_BYTES = {"byte_fallback": True, "size": 420, "sentinels": 0}
_TAGS = {"user_defined_symbols": ["<2de>", "<2fr>"], "pad_id": -1, "bos_id": 1, "eos_id": 2, "unk_id": 0}
_CODET5_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GATED = {"feed_forward_proj": "gated-gelu"}
T5_FOLDERS: dict[str, tuple[str, bool, Callable[[Path], Any], dict[str, Any]]] = {
    "t5": ("t5", True, write_spiece, {"vocab_size": 172}),
    "flan": ("t5", False, write_spiece, {"vocab_size": 172, **_GATED}),
    "byt5": ("t5", False, write_byt5, {"vocab_size": BYTE_ROWS, **_GATED, "num_decoder_layers": 1}),
    "codet5": ("t5", True, write_codet5, {"vocab_size": 350, **_CODET5_IDS}),
    "madlad": (
        "t5",
        False,
        lambda folder: write_spiece(folder, **_BYTES, **_TAGS),
        {"vocab_size": 424, "pad_token_id": 1, "eos_token_id": 2, **_GATED},
    ),
    "mt5": ("mt5", False, lambda folder: write_spiece(folder, **_BYTES), {"vocab_size": 424, **_GATED}),
    "umt5": ("umt5", False, lambda folder: write_spiece(folder, **_BYTES), {"vocab_size": 424, **_GATED}),
}
