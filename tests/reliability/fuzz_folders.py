"""Changes files of model folders at random and reports the results of loading and generating.

`python tests/reliability/fuzz_folders.py KIND COUNT [SEED]` prints one JSON object: how many mutations were rejected
or still valid, and a list of the ones with any other result. Each mutation is loaded in a forked child with limits on
its CPU time and memory. For most mutations the manifest is updated, because a wrong checksum would be found at once.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "parity")]

import torch  # noqa: E402
from foreign_families import make_folder  # noqa: E402
from foreign_models import random_model, written  # noqa: E402
from foreign_t5 import T5_FOLDERS, make_t5_folder  # noqa: E402
from foreign_tokenizers import write_bart, write_m2m100, write_marian  # noqa: E402
from marian_folders import FOLDER, copy_folder, write_zip  # noqa: E402
from tampered_folders import replace_file  # noqa: E402
from tiny import SIZES, SOURCES, TARGETS  # noqa: E402

from attendo import model_files  # noqa: E402
from attendo.errors import AttendoError  # noqa: E402
from attendo.interop import exported_files  # noqa: E402
from attendo.interop.argos import LanguagePair  # noqa: E402
from attendo.interop.certify import CertificateSentences  # noqa: E402
from attendo.interop.compared_systems import TransformersSystem  # noqa: E402
from attendo.interop.export import export  # noqa: E402
from attendo.interop.import_model import from_folder, read_import  # noqa: E402
from attendo.interop.load import load  # noqa: E402
from attendo.model.config import ModelConfig  # noqa: E402
from attendo.model.transformer import Transformer  # noqa: E402
from attendo.model_folder import StoredModel  # noqa: E402
from attendo.text.config import TokenizerConfig  # noqa: E402
from attendo.text.factory import build_tokenizers  # noqa: E402
from attendo.text_model import TextModel  # noqa: E402

PROCESSOR_SECONDS = 60  # an unchanged folder needs less than 1 s
MEMORY = 6 * 1024**3  # bytes, in addition to the memory that the parent has mapped
MAX_MESSAGE = 500  # characters of a message
RUNTIME_FILES = (".onnx", ".bin")  # parsed by native code; their checksum is never updated
EXTREME_VALUES: list[Any] = [
    *(None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, -1e-300, float("nan"), float("inf"), "", "x", "\ud800"),
    *("\x00", "y" * 20_000, [], {}, [[]], {"a": None}, ["<s>"] * 3_000, "../../etc/passwd"),
]


def model_with(kind: str, joint: bool = False, **sizes: Any) -> TextModel:
    config = TokenizerConfig(kind=kind, joint=joint, **({} if kind == "bytes" else {"size": 320}))  # type: ignore[arg-type]
    source, target = build_tokenizers(SOURCES * 9, TARGETS * 9, config)
    both = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    network = Transformer(ModelConfig(**{**both, **SIZES, **sizes}), torch.Generator().manual_seed(1))
    sample = list(zip(SOURCES, TARGETS, strict=True))
    about = {"task": "translation", "source_language": "en"}
    return TextModel(StoredModel(network, source, target, {"beam": 2, "max_length_extra": 7}, {}, sample, about))


def own_folder(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        model_with(kind).save(folder / "m")
        return folder / "m"

    return make


def exported_folder(to: Any, **sizes: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        out = folder / ("m.argosmodel" if to == "argos" else "m")
        model = model_with("bpe", joint=bool(sizes), **sizes)
        export(
            model,
            out,
            to,
            sentences=CertificateSentences([[5, 6], [7]]),
            languages=LanguagePair("en", "zh") if to == "argos" else None,
        )
        return out

    return make


def foreign_folder(kind: str, write: Callable[[Path], dict[str, int]], more: int = 0) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "m").mkdir()
        size = len(write(folder / "m")) + more
        special_ids = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1} if kind == "marian" else {}
        return written(random_model(kind, vocab_size=size, decoder_layers=1, **special_ids), folder / "m")

    return make


def family_folder(name: str) -> Callable[[Path], Path]:
    return lambda folder: make_folder(name, folder / "m", max_position_embeddings=64)


def t5_folder(name: str) -> Callable[[Path], Path]:
    return lambda folder: make_t5_folder(name, folder / "m", d_model=16, d_ff=8, num_layers=1, num_decoder_layers=1)


def load_and_generate(path: Path, dice: random.Random) -> None:
    load(path, "cpu").generate(["I love NLP"], max_length=3)


def import_folder(path: Path, dice: random.Random) -> None:
    imported = from_folder(path)
    imported.build_text_model().generate(["ab cd"], max_length=3)
    if dice.random() < 0.25:
        TransformersSystem.from_import(imported)


def import_from_marian(path: Path, dice: random.Random) -> None:
    """A path that no longer looks like a model of Marian is refused as a folder of transformers."""
    read_import(path).build_text_model().generate(["the cat sees a dog"], max_length=3)


def zip_marian(folder: Path) -> Path:
    return write_zip("separate", folder / "m.zip")


def copy_firefox(folder: Path) -> Path:
    """A folder as Firefox has it, without decoder.yml."""
    (folder / "m").mkdir()
    for name, kept in (("intgemm8.bin", "model.ende.bin"), ("joint.spm", "vocab.ende.spm")):
        shutil.copy(FOLDER / "student" / name, folder / "m" / kept)
    return folder / "m"


def check_package(path: Path, dice: random.Random) -> None:
    """attendo overwrites such a package, but does not run it."""
    exported_files._check_file(path)
    load(path, "cpu")


FAMILIES = ("mbart25", "nllb-legacy", "small100", "plbart", "mvp", "blenderbot")
MARIAN = {"norm": "post", "position_layout": "halves"}
PEGASUS = {"norm": "pre", "position_layout": "halves"}
KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path, random.Random], None]]] = {
    **{
        kind: (own_folder(kind), load_and_generate)
        for kind in ("words", "characters", "decomposed", "spaced", "bytes", "bpe", "unigram")
    },
    "onnx": (exported_folder("onnx"), load_and_generate),
    "ctranslate2": (exported_folder("ctranslate2"), load_and_generate),
    "argos": (exported_folder("argos"), check_package),
    "hf": (exported_folder("hf", **MARIAN), import_folder),
    "pegasus": (exported_folder("hf", **PEGASUS), import_folder),
    "marian": (foreign_folder("marian", write_marian), import_folder),
    "bart": (foreign_folder("bart", write_bart), import_folder),
    "m2m100": (foreign_folder("m2m_100", write_m2m100, 108), import_folder),
    **{
        kind: (family_folder(name), import_folder)
        for kind, name in {"pegasus_spm": "pegasus", **{name: name for name in FAMILIES}}.items()
    },
    "native_marian": (lambda folder: copy_folder("tied_all", folder / "m"), import_from_marian),
    "untied_marian": (lambda folder: copy_folder("untied", folder / "m"), import_from_marian),
    "marian_vocabularies": (
        lambda folder: copy_folder("separate", folder / "m", "source.spm", "target.spm"),
        import_from_marian,
    ),
    "marian_spm": (lambda folder: copy_folder("sentencepiece", folder / "m"), import_from_marian),
    "marian_zip": (zip_marian, import_from_marian),
    "firefox": (copy_firefox, import_from_marian),
    **{name: (t5_folder(name), import_folder) for name in T5_FOLDERS},
}


def change(folder: Path, dice: random.Random) -> str:
    """Change one file of a folder, or the file itself. Returns a description of the change."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else [folder]
    path = dice.choice(files)
    content, description = _mutate(path, files, dice)
    update_manifest = path.suffix not in RUNTIME_FILES and dice.random() < 0.9
    if content is None:
        path.unlink()
    elif folder.is_dir() and update_manifest:
        replace_file(folder, str(path.relative_to(folder)), content)
    else:
        path.write_bytes(content)
    return f"{path.name}: {description}{', sealed' if update_manifest else ''}"


def _mutate(path: Path, files: list[Path], dice: random.Random) -> tuple[bytes | None, str]:
    content = bytearray(path.read_bytes())
    kinds = (
        ["flip"] * 4 + ["insert"] * 2 + ["cut", "empty", "remove", "swap"] + ["value"] * 10 * (path.suffix == ".json")
    )
    kind = dice.choice(kinds)
    if kind == "value":
        return _replace_value(bytes(content), dice)
    if kind == "remove":
        return None, kind
    if kind == "swap":
        other = dice.choice(files)
        return other.read_bytes(), f"content of {other.name}"
    if kind == "empty" or not content:
        return b"", "empty"
    offset = dice.randrange(len(content))
    if kind == "cut":
        return bytes(content[:offset]), f"cut at {offset}"
    if kind == "insert":
        content[offset:offset] = dice.choice([b"\xff", b"\x00", b"{", b'"', b"\\ud800", b"9" * 400])
        return bytes(content), f"inserted at {offset}"
    for _ in range(dice.choice([1, 1, 1, 8])):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return bytes(content), f"bits flipped near {offset}"


def _replace_value(content: bytes, dice: random.Random) -> tuple[bytes, str]:
    document = json.loads(content)
    if dice.random() < 0.03:
        return b"[" * 50_000, "deep nesting"
    positions: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        inside = todo.pop()
        keys = list(inside) if isinstance(inside, dict) else list(range(min(len(inside), 9)))
        for key in keys[:400]:
            positions.append((inside, key))
            if isinstance(inside[key], dict | list):
                todo.append(inside[key])
    if not positions:
        return b"null", "null"
    inside, key = dice.choice(positions)
    inside[key] = value = dice.choice(EXTREME_VALUES)
    # The manifest's own checksum stays correct.
    if isinstance(document, dict) and "sha256" in document and key != "sha256":
        document["sha256"] = model_files.json_sha256(
            {name: each for name, each in document.items() if name != "sha256"}
        )
    return json.dumps(document).encode(), f"{str(key)[:30]} is {str(value)[:30]!r}"


def run_in_child(run: Callable[[Path, random.Random], None], path: Path, seed: int) -> str:
    """`valid`, `refused`, or `odd:` with the reason."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        result = _run_limited(run, path, seed)
        os.write(writing, result.encode("utf-8", "backslashreplace")[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read().decode("utf-8")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"odd: {'a hang' if name == 'SIGXCPU' else name}"
    return result


def _run_limited(run: Callable[[Path, random.Random], None], path: Path, seed: int) -> str:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    used = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + PROCESSOR_SECONDS, used + PROCESSOR_SECONDS + 5))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(path, random.Random(seed))
        return "valid"
    except AttendoError as error:
        message = str(error)
        if error.exit_code not in (2, 3, 4) or "\n" in message or len(message) > MAX_MESSAGE:
            return f"odd: {len(message)} characters, code {error.exit_code}: {message[:300]!r}"
        return "refused"
    except BaseException as error:
        import traceback

        where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        return f"odd: {type(error).__name__}: {str(error)[:200]} at {' '.join(where[-4:])}"


def fuzz(kind: str, count: int, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    make, run = KINDS[kind]
    found: dict[str, Any] = {"kind": kind, "mutations": count, "refused": 0, "valid": 0, "odd": []}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        good = make(Path(temporary))
        first = run_in_child(run, good, seed)
        assert first == "valid" or kind == "argos", f"the unchanged folder is not valid: {first}"
        for number in range(count):
            dice = random.Random(f"{kind} {seed} {number}")
            copy = Path(temporary) / f"c{good.suffix}"
            shutil.copytree(good, copy) if good.is_dir() else shutil.copy(good, copy)
            description = change(copy, dice)
            result = run_in_child(run, copy, number)
            if result in ("valid", "refused"):
                found[result] += 1
            else:
                found["odd"].append(f"{number}: {description}: {result}")
            shutil.rmtree(copy) if copy.is_dir() else copy.unlink(missing_ok=True)
    return found


def main() -> None:
    kinds, count, seed = sys.argv[1].split(","), int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0])
    for kind in kinds:
        with contextlib.redirect_stdout(sys.stderr):
            found = fuzz(kind, count, seed)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
