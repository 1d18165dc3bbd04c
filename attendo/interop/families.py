"""The families of models that `attendo import` reads, and those that it refuses.

This table is the only list: the readers, the oracles, the error messages, `attendo families` and the documentation
follow it. A new family is one entry here and one reader in `import_model.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.errors import MessagePart, ModelError, cut_text, list_names


@dataclass(frozen=True)
class Family:
    """Models of one `model_type`."""

    model_type: str  # in config.json
    models: str
    network: str
    tokenizer: str  # files that the tokenizer is read from
    model_class: str | None = None  # of transformers; a certificate compares with it
    tokenizer_classes: tuple[str, ...] = ()  # of transformers; the first is the default
    has_languages: bool = False  # --source-language and --target-language apply
    oracle: str = "transformers"  # the system that a certificate compares with
    exports: tuple[str, ...] = ("hf", "ctranslate2", "onnx")


FAMILIES = (
    Family(
        "marian",
        "Marian, OPUS-MT",
        "post-norm, sines before cosines, a bias on the logits",
        "source.spm, target.spm and vocab.json (or target_vocab.json)",
        "MarianMTModel",
        ("MarianTokenizer",),
    ),
    Family(
        "bart",
        "BART",
        "post-norm, learned positions, a norm on the embedding",
        "vocab.json and merges.txt, or tokenizer.json",
        "BartForConditionalGeneration",
        ("BartTokenizer", "RobertaTokenizer"),
    ),
    Family(
        "m2m_100",
        "M2M100, NLLB, SMaLL-100",
        "pre-norm, fairseq's sines",
        "sentencepiece.bpe.model and vocab.json, or tokenizer.json",
        "M2M100ForConditionalGeneration",
        ("M2M100Tokenizer", "NllbTokenizer", "SMALL100Tokenizer"),
        has_languages=True,
    ),
    Family(
        "mbart",
        "mBART-50, mBART-cc25",
        "pre-norm, learned positions, a norm on the embedding",
        "sentencepiece.bpe.model, or tokenizer.json",
        "MBartForConditionalGeneration",
        ("MBartTokenizer", "MBart50Tokenizer"),
        has_languages=True,
    ),
    Family(
        "pegasus",
        "Pegasus, and pre-norm models that attendo exported",
        "pre-norm, sines before cosines, a bias on the logits",
        "spiece.model or tokenizer.json, or the files of Marian",
        "PegasusForConditionalGeneration",
        ("PegasusTokenizer", "MarianTokenizer"),
    ),
    Family(
        "plbart",
        "PLBART",
        "post-norm, learned positions, a norm on the embedding",
        "sentencepiece.bpe.model",
        "PLBartForConditionalGeneration",
        ("PLBartTokenizer",),
        has_languages=True,
        exports=("onnx",),
    ),
    Family(
        "mvp",
        "MVP without prompts",
        "post-norm, learned positions, a norm on the embedding",
        "vocab.json and merges.txt, or tokenizer.json",
        "MvpForConditionalGeneration",
        ("BartTokenizer", "MvpTokenizer", "RobertaTokenizer"),
    ),
    Family(
        "blenderbot",
        "Blenderbot",
        "pre-norm, learned positions",
        "vocab.json and merges.txt, or tokenizer.json",
        "BlenderbotForConditionalGeneration",
        ("BlenderbotTokenizer",),
    ),
    Family(
        "t5",
        "T5, T5 1.1, FLAN-T5, MADLAD-400, ByT5, CodeT5, UL2",
        "pre-norm without means and biases, relative positions",
        "spiece.model or tokenizer.json; CodeT5: vocab.json and merges.txt; ByT5: tokenizer_config.json",
        "T5ForConditionalGeneration",
        ("T5Tokenizer", "ByT5Tokenizer", "RobertaTokenizer"),
    ),
    Family(
        "mt5",
        "mT5",
        "as T5 1.1",
        "spiece.model or tokenizer.json",
        "MT5ForConditionalGeneration",
        ("T5Tokenizer", "MT5Tokenizer"),
    ),
    Family(
        "umt5",
        "umT5, Pile-T5",
        "as T5 1.1, with relative positions per layer",
        "spiece.model, tokenizer.model or tokenizer.json",
        "UMT5ForConditionalGeneration",
        ("T5Tokenizer", "LlamaTokenizer"),
    ),
    Family(
        "t5gemma2",
        "T5Gemma 2, without images",
        "sandwich norm, rotary positions, sliding windows, shared heads of keys, one softmax over source and target",
        "tokenizer.json",
        "T5Gemma2ForConditionalGeneration",
        ("GemmaTokenizer",),
        exports=(),
    ),
)
# Models without config.json.
MARIAN_FAMILIES = (
    Family(
        "native Marian",
        "OPUS-MT and Tatoeba-Challenge as published: a folder or a zip file",
        "post-norm or pre-norm, Marian's own sines",
        "vocabularies as yml, text or SentencePiece; source.spm and target.spm",
        oracle="Marian (pymarian)",
        exports=("marian", "ctranslate2", "onnx"),
    ),
    Family(
        "Firefox Translations",
        "students of Bergamot: model.*.bin with float32 or 8-bit integers",
        "post-norm, a recurrent decoder (SSRU)",
        "vocab.*.spm, or srcvocab.*.spm and trgvocab.*.spm",
        oracle="Marian (pymarian)",
        exports=("marian",),
    ),
)
FAMILY_BY_TYPE = {each.model_type: each for each in FAMILIES}
SUPPORTED = tuple(FAMILY_BY_TYPE)  # model types

# Encoder-decoder models that attendo refuses by name, with the message of the reason and of what to do.
REFUSED = {
    "codet5p": "refused_own_code",
    "led": "refused_sparse_attention",
    "longt5": "refused_sparse_attention",
    "bigbird_pegasus": "refused_sparse_attention",
    "pegasus_x": "refused_sparse_attention",
    "switch_transformers": "refused_experts",
    "nllb-moe": "refused_experts",
    "prophetnet": "refused_ngram_decoder",
    "xlm-prophetnet": "refused_ngram_decoder",
    "encoder-decoder": "refused_two_models",
    "fsmt": "refused_moses",
    "blenderbot-small": "refused_blenderbot_small",
}


def find_model_type(settings: Mapping[str, Any]) -> Any:
    """Return the model_type of a config.json. Google's umT5 models have none there, so their class names it."""
    names = settings.get("architectures")
    by_class = {each.model_class: each.model_type for each in FAMILIES if each.model_type.endswith("t5")}
    named = by_class.get(names[0]) if isinstance(names, list) and names and isinstance(names[0], str) else None
    return settings.get("model_type", named)


def refuse_unsupported(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise a `ModelError` if the config.json of a folder has a model type that attendo does not read."""
    kind = str(settings.get("model_type"))
    if kind in FAMILY_BY_TYPE:
        return
    if code := REFUSED.get(kind):
        raise ModelError("model_type_refused", path=path, kind=kind, reason=MessagePart(code))
    architectures = settings.get("architectures")
    names = architectures if isinstance(architectures, list) else [architectures or "nothing"]
    raise ModelError(
        "import_model_type_unsupported",
        path=path,
        kind=cut_text(kind),
        architectures=list_names(map(str, names)) or "nothing",
        known=", ".join(SUPPORTED),
    )
