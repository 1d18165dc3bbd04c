"""Small SentencePiece models and vocabularies in the file formats of other systems."""

import io
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüßéñ"


def some_lines(seed: int = 0, count: int = 300) -> list[str]:
    dice = random.Random(seed)
    words = ["".join(dice.choices(LETTERS, k=dice.randint(2, 7))) for _ in range(120)]
    return [" ".join(dice.choices(words, k=dice.randint(2, 9))) for _ in range(count)]


def strange_texts(seed: int = 5, count: int = 60) -> list[str]:
    """Texts that mix words, punctuation, other scripts and spaces in unusual positions."""
    dice = random.Random(seed)
    parts = [
        *"aäeénszß  .,!?'-1²٣½Ⅷ",
        " ",
        "  ",
        "don't",
        "we'll",
        "I'D",
        "猫",
        "ﬁ",
        "é",
        "🙂",
        "́",
        "\u3000",
        "\t",
        "…",
        "x_y",
    ]
    texts = ["".join(dice.choices(parts, k=dice.randint(1, 14))) for _ in range(count)]
    return [*(text for text in texts if text.strip()), *some_lines(seed, 20)]


def pieces_model(lines: list[str], kind: str, size: int = 160, **settings: Any) -> bytes:
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=5,
        **settings,
    )
    return model.getvalue()


def piece_names(model: bytes) -> list[str]:
    from attendo.text.sentencepiece import iter_pieces

    return [piece.text for piece in iter_pieces(model)]


def write_marian(folder: Path, languages: bool = False) -> dict[str, int]:
    """Two SentencePiece models and one vocabulary, which lacks some of their pieces."""
    models = {side: pieces_model(some_lines(seed), "unigram") for seed, side in enumerate(("source", "target"))}
    codes = [">>de<<", ">>fr<<"] if languages else []
    names = dict.fromkeys(["</s>", "<unk>", *codes])
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
        names |= dict.fromkeys(piece_names(model)[3:-4])
    return write_vocabulary(folder / "vocab.json", [*names, "<pad>"])


def write_m2m100(folder: Path) -> dict[str, int]:
    model = pieces_model(some_lines(), "bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    return write_vocabulary(folder / "vocab.json", ["<s>", "<pad>", "</s>", "<unk>", *piece_names(model)[3:]])


def write_nllb(folder: Path, as_published: bool = False) -> int:
    """Write it as transformers does, `<mask>` before all languages, or as published, after them. Returns the size."""
    from transformers import NllbTokenizer

    languages = ["eng_Latn", "fra_Latn"]
    count = _write_with(NllbTokenizer, folder, "bpe", {}, src_lang="eng_Latn", extra_special_tokens=languages)
    if as_published:
        path = folder / "tokenizer.json"
        content = json.loads(path.read_text("utf-8"))
        *others, mask, english, french = content["added_tokens"]
        last = [{**token, "id": count - 3 + n} for n, token in enumerate((english, french, mask))]
        path.write_text(json.dumps({**content, "added_tokens": [*others, *last]}), "utf-8")
    return count


def write_mbart(folder: Path, **settings: Any) -> int:
    from transformers import MBart50Tokenizer

    return _write_with(MBart50Tokenizer, folder, "unigram", settings, src_lang="en_XX")


def _write_with(kind: Any, folder: Path, pieces: str, trained: dict[str, Any], **settings: Any) -> int:
    (folder / "sentencepiece.bpe.model").write_bytes(pieces_model(some_lines(), pieces, **trained))
    tokenizer = kind.from_pretrained(folder, **settings)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def write_bart(folder: Path) -> dict[str, int]:
    """Byte pairs learned from a few lines, without any optimisation."""
    from attendo.text.byte_level_bpe import _BYTE_TO_CHARACTER

    words = [
        [_BYTE_TO_CHARACTER[byte] for byte in f" {word}".encode()] for line in some_lines() for word in line.split()
    ]
    merges: list[tuple[str, str]] = []
    for _ in range(80):
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        words = [_merge_pair(word, best) for word in words]
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    letters = sorted(_BYTE_TO_CHARACTER)[:-2]
    names = ["<s>", "<pad>", "</s>", "<unk>", *letters, *("".join(pair) for pair in merges), "<mask>"]
    return write_vocabulary(folder / "vocab.json", list(dict.fromkeys(names)))


def write_vocabulary(path: Path, names: list[str]) -> dict[str, int]:
    vocabulary = {name: number for number, name in enumerate(names)}
    path.write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
    return vocabulary


def _merge_pair(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for piece in word:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def write_pegasus(folder: Path, in_one_file: bool = False) -> int:
    """As published, spiece.model and a tokenizer_config.json; or tokenizer.json alone. Returns the size."""
    from transformers import PegasusTokenizer

    model = pieces_model(some_lines(), "unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (folder / "spiece.model").write_bytes(model)
    tokenizer = PegasusTokenizer.from_pretrained(folder)
    if in_one_file:
        tokenizer.save_pretrained(folder)
        (folder / "spiece.model").unlink()
    else:
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PegasusTokenizer"}', "utf-8")
    return len(piece_names(model)) + 103


def write_mbart25(folder: Path, files: tuple[str, ...] = ("sentencepiece.bpe.model", "tokenizer.json")) -> int:
    """mBART-cc25: tokenizer.json, sentencepiece.bpe.model or both, and no file that names the class."""
    from transformers import MBartTokenizer

    count = _write_with(MBartTokenizer, folder, "unigram", {}, src_lang="en_XX")
    for name in {"sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"} - {*files}:
        (folder / name).unlink()
    return count


def write_plbart(folder: Path, codes: str = "base") -> int:
    from transformers import PLBartTokenizer

    model = pieces_model(some_lines(), "bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    settings = {"tokenizer_class": "PLBartTokenizer", "language_codes": codes, "src_lang": "python"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return int(PLBartTokenizer.from_pretrained(folder).vocab_size)


def write_blenderbot(folder: Path, in_one_file: bool = False) -> dict[str, int]:
    """Byte pairs. A tokenizer.json that adds EOS, as on the hub, or vocab.json and merges.txt."""
    vocabulary = write_bart(folder)
    names = ["<pad>", "<s>", "</s>", "<unk>", *[name for name, token in vocabulary.items() if token > 3]]
    vocabulary = write_vocabulary(folder / "vocab.json", names)
    if in_one_file:
        from tokenizers.processors import TemplateProcessing
        from transformers import BlenderbotTokenizer

        tokenizer = BlenderbotTokenizer.from_pretrained(folder)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
        tokenizer.save_pretrained(folder)
        (folder / "vocab.json").unlink()
        (folder / "merges.txt").unlink()
    return vocabulary
