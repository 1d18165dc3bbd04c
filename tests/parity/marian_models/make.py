"""Trains the small models of this folder with Marian, and records Marian's own scores and n-best lists.

    pip install pymarian==1.12.42        # 604 MB, Python 3.11 on Linux x86-64; only this script needs it
    python tests/parity/marian_models/make.py [NAME ...]

It uses only Marian and sentencepiece, so that the answers do not depend on attendo. Each model becomes a folder with
its weights, vocabularies, `decoder.yml` and `answers.json`.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

HERE = Path(__file__).parent
MARIAN = [sys.executable, "-c", "import sys, _pymarian; sys.exit(_pymarian.main(sys.argv[1:]))"]
QUIET = ["--cpu-threads", "1", "--quiet"]
NETWORK = (
    "--type transformer --dim-emb 16 --transformer-heads 4 --enc-depth 2 --dec-depth 1 "
    "--transformer-dropout 0.1 --label-smoothing 0.1 --max-length 60"
)
TRAINING = (
    "--mini-batch 32 --maxi-batch 10 --learn-rate 0.006 --lr-warmup 40 --optimizer-params 0.9 0.98 1e-09 --clip-norm 5 "
    "--sync-sgd --save-freq 10000 --seed 1 -w 128 --overwrite"
)
PRE_NORM = "--transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n"
SEARCHES: list[dict[str, Any]] = [
    {"beam-size": 1},
    {"beam-size": 4, "normalize": 0.0},
    {"beam-size": 6, "normalize": 1.0},
    {"beam-size": 4, "normalize": 0.6, "word-penalty": 0.5},
    {"beam-size": 12, "normalize": 1.0, "max-length-factor": 2.0},
    {"beam-size": 3, "max-length-factor": 1.0},
    {"beam-size": 4, "normalize": 1.0, "word-penalty": -0.3, "allow-unk": True},
]
SEARCHED = 6  # sources
ENGLISH = (
    "the|a|old|small|cat|dog|house|child|woman|man|sees|likes|has|buys|red|green|and|tree|book|walks|home|today|not|"
    "\"|'|:|#|1|yes|null|~|C:\\|it's"
)
GERMAN = (
    "der|ein|alt|klein|Katze|Hund|Haus|Kind|Frau|Mann|sieht|mag|hat|kauft|rot|grün|und|Baum|Buch|geht|heim|heute|nicht|"
    "\"|'|:|#|1|ja|null|~|C:\\|er's"
)
# As the models inside Firefox.
RECURRENT = "--transformer-decoder-autoreg rnn --dec-cell ssru --transformer-ffn-activation relu"
BIN_TYPES = ("float32", "intgemm8", "intgemm16")
LABELS = (">>deu<<", ">>rev<<")  # the second asks for the words in reverse order


@dataclass(frozen=True)
class Model:
    """How a model is trained: its vocabularies, and the options of its network."""

    vocabularies: str  # yml, sorted, text or spm
    options: tuple[str, ...]
    updates: int = 250
    d_ff: int = 24


MODELS = {
    "tied_all": Model("yml", ("--tied-embeddings-all",)),
    "separate": Model("text", ("--tied-embeddings", "--transformer-ffn-activation", "relu")),
    "untied": Model("sorted", ("--transformer-ffn-activation", "gelu", "--transformer-postprocess-emb", "nd")),
    "sentencepiece": Model("spm", ("--tied-embeddings-all", "--output-omit-bias")),
    "pre_norm": Model("yml", ("--tied-embeddings-all", *PRE_NORM.split())),
    "rms_norm": Model("yml", ("--tied-embeddings-src", "--transformer-postprocess", "dar"), updates=60),
    # Marian's conversion to integers needs widths that are multiples of 16.
    "student": Model("spm", ("--tied-embeddings-all", *RECURRENT.split()), d_ff=32),
}


def run(*arguments: str) -> str:
    ended = subprocess.run([*MARIAN, *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{ended.stderr[-2000:]}")
    return ended.stdout


def corpus(count: int) -> list[tuple[str, str]]:
    dice = random.Random(7)
    words, pairs = (ENGLISH.split("|"), GERMAN.split("|")), []
    for _ in range(count):
        numbers = [dice.randrange(len(words[0])) for _ in range(dice.randint(1, 9))]
        label = dice.choice(LABELS)
        ordered = numbers if label == LABELS[0] else numbers[::-1]
        source, target = (" ".join(words[side][n] for n in some) for side, some in enumerate((numbers, ordered)))
        pairs.append((f"{label} {source}", target))
    return pairs


def train_sentencepiece(folder: Path, name: str, lines: list[str], **options: Any) -> SentencePieceProcessor:
    path = folder / f"{name}.spm"
    with path.open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            minloglevel=5,
            **options,
        )
    return SentencePieceProcessor(model_file=str(path))


def split(processor: SentencePieceProcessor, text: str) -> str:
    """The pieces of a text, with its label before them, as OPUS-MT's preprocess.sh writes them."""
    label = next((each for each in LABELS if text.startswith(f"{each} ")), "")
    pieces = processor.encode(text.removeprefix(f"{label} ") if label else text, out_type=str)
    return " ".join([*([label] if label else []), *pieces])


def write_vocabularies(folder: Path, kind: str, sides: list[list[str]], processors: list[Any]) -> list[str]:
    """Write the vocabulary files and return the name of the source's and of the target's."""
    if kind == "spm":
        return ["joint.spm", "joint.spm"]
    if kind == "text":
        names = ["opus.src.vocab", "opus.trg.vocab"]
        for name, processor in zip(names, processors, strict=True):
            pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
            (folder / name).write_text("\n".join([*pieces, *LABELS]) + "\n", "utf-8")
        return names
    both = "".join(f"{line}\n" for lines in sides for line in lines)
    ended = subprocess.run([*MARIAN, "vocab"], input=both, capture_output=True, text=True, check=True)
    if kind == "yml":
        (folder / "opus.vocab.yml").write_text(ended.stdout, "utf-8")
        return ["opus.vocab.yml"] * 2
    names = ["source.vocab.yml", "target.vocab.yml"]  # sorted by text, as OPUS-MT's vocab2yaml.py writes them
    for name, lines in zip(names, sides, strict=True):
        tokens = sorted({"</s>", "<unk>", *LABELS, *(token for line in lines for token in line.split())})
        quoted = ["'" + token.replace("'", "''") + "'" for token in tokens]
        (folder / name).write_text("".join(f"{token}: {n}\n" for n, token in enumerate(quoted)), "utf-8")
    return names


def make(name: str) -> None:
    model, folder = MODELS[name], HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pairs = corpus(700)
    texts = [[pair[side] for pair in pairs] for side in (0, 1)]
    plain = [[text.split(" ", 1)[1] for text in texts[0]], texts[1]]
    if model.vocabularies == "spm":
        options = {"vocab_size": 110, "eos_id": 0, "unk_id": 1, "bos_id": -1, "user_defined_symbols": list(LABELS)}
        processors = [train_sentencepiece(folder, "joint", plain[0] + plain[1], byte_fallback=False, **options)] * 2
        sides = texts
    else:
        processors = [
            train_sentencepiece(folder, side, lines, vocab_size=70)
            for side, lines in zip(("source", "target"), plain, strict=True)
        ]
        sides = [[split(processor, text) for text in lines] for processor, lines in zip(processors, texts, strict=True)]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        names = write_vocabularies(folder, model.vocabularies, sides, processors)
        for side, lines in zip(("source", "target"), sides, strict=True):
            (work / side).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        vocabularies = [str(folder / each) for each in names]
        data = ["-t", str(work / "source"), str(work / "target"), "-v", *vocabularies, "-m", str(work / "model.npz")]
        run(
            "train",
            *data,
            *NETWORK.split(),
            "--transformer-dim-ffn",
            str(model.d_ff),
            *model.options,
            *TRAINING.split(),
            "--after-batches",
            str(model.updates),
            *QUIET,
        )
        shutil.copy(work / "model.npz", folder / "model.npz")
        for each in BIN_TYPES if name == "student" else ():
            run("convert", "-f", str(work / "model.npz"), "-t", str(folder / f"{each}.bin"), "-g", each)
        answers = {
            "marian": run("--version").strip(),
            "options": list(model.options),
            "scores": scores(folder, vocabularies, work, texts, sides),
            "searches": [] if name == "pre_norm" else searches(folder, vocabularies, texts[0], sides[0], model),
        }
    listing = "".join(f"{key}:\n  - {value}\n" for key, value in (("models", "model.npz"),))
    listing += "vocabs:\n" + "".join(f"  - {each}\n" for each in names)
    settings = "beam-size: 6\nnormalize: 1\nword-penalty: 0\nmini-batch: 1\nmaxi-batch: 1\nmaxi-batch-sort: src\n"
    (folder / "decoder.yml").write_text(f"relative-paths: true\n{listing}{settings}", "utf-8")
    (folder / "answers.json").write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n", "utf-8")
    print(name, sum(path.stat().st_size for path in folder.iterdir()), "bytes")


def scores(folder: Path, vocabularies: list[str], work: Path, texts: Any, sides: Any) -> list[dict[str, Any]]:
    """Scores of right targets, of targets of other sources, and of sources and targets beyond 130 tokens."""
    dice = random.Random(3)
    pairs = [(number, number) for number in range(8)] + [(number, number + 1) for number in range(20, 26)]
    chosen = [[texts[side][pair[side]] for pair in pairs] for side in (0, 1)]
    split_lines = [[sides[side][pair[side]] for pair in pairs] for side in (0, 1)]
    for _ in range(2):
        numbers = dice.sample(range(700), 30)
        for lists, lines in ((chosen, texts), (split_lines, sides)):
            words = [lines[0][number].split(" ", 1)[1] for number in numbers]  # one label, at the start
            lists[0].append(" ".join([LABELS[0], *words]))
            lists[1].append(" ".join(lines[1][number] for number in reversed(numbers)))
    for side, lines in zip(("source", "target"), split_lines, strict=True):
        (work / f"scored.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = [str(work / f"scored.{side}") for side in ("source", "target")]
    model = ["-m", str(folder / "model.npz"), "-v", *vocabularies, "-t", *files]
    lines = run("score", *model, "--word-scores", "--mini-batch", "1", "-w", "64", *QUIET).splitlines()
    found = [[float(each) for each in line.split("WordScores= ")[1].split()] for line in lines]
    return [
        {"source": source, "target": target, "scores": row} for source, target, row in zip(*chosen, found, strict=True)
    ]


def searches(folder: Path, vocabularies: list[str], texts: list[str], lines: list[str], model: Model) -> list[Any]:
    """N-best lists, with the sum of log-probabilities and the score by which Marian ranks."""
    found = []
    for options in SEARCHES:
        given = [
            part for key, value in options.items() for part in (f"--{key}", *([] if value is True else [str(value)]))
        ]
        fixed = ["--n-best", "--mini-batch", "1", "--maxi-batch", "1", "-w", "64", "--quiet-translation", *QUIET]
        pieces = ["--no-spm-decode"] if model.vocabularies == "spm" else []
        command = [*MARIAN, "decode", "-m", str(folder / "model.npz"), "-v", *vocabularies, *given, *fixed, *pieces]
        given_lines = "".join(f"{line}\n" for line in lines[:SEARCHED])
        ended = subprocess.run(command, input=given_lines, capture_output=True, text=True, check=True)
        hypotheses: list[list[Any]] = [[] for _ in range(SEARCHED)]
        for line in ended.stdout.splitlines():
            number, pieces_text, log_prob, score = line.split(" ||| ")
            hypotheses[int(number)].append([pieces_text.strip(), float(log_prob.removeprefix("F0= ")), float(score)])
        found.append({"options": options, "hypotheses": dict(zip(texts[:SEARCHED], hypotheses, strict=True))})
    return found


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        make(each)
