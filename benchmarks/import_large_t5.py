"""Measures the peak memory of importing a T5 with 3 billion parameters, with random weights in bf16.

    python benchmarks/import_large_t5.py [--work runs/large] [--layers 24] [--sentences 8] [--parts keep,proof] [--keep]

The folder has the sizes of T5-3B (Raffel et al. 2020, table 14) and a small SentencePiece model; the other rows have no
piece. The weights take 5.7 GB in six files. The script imports the folder as a user does, once with `--dtype keep` and
once in float32, and generates in bf16 with the first, on a GPU if there is one. Then it imports with a proof on
`--sentences` random sentences. These are fewer than the 200 of `attendo import`: the time depends on them, the memory
does not.
`--parts` names the imports to run. `--keep` leaves the folders.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from sentencepiece import SentencePieceTrainer
from torch import Tensor

WIDTH, HEAD, HEADS, INNER, ROWS = 1024, 128, 32, 16_384, 32_128
SHARD_BYTES = 10**9
# `attendo import --dtype keep` with fewer sentences.
PROOF = """
import sys
from attendo.interop.import_model import import_model, read_import
certificate = import_model(read_import(sys.argv[1], keep_dtype=True), sys.argv[2], min_sentences=int(sys.argv[3]))
print(certificate.as_table())
"""


def main() -> None:
    arguments = _arguments()
    work = Path(arguments.work)
    folder = work / "t5-3b"
    shutil.rmtree(work, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = time.perf_counter()
    count, size = write_weights(folder, arguments.layers)
    write_other_files(folder, arguments.layers)
    print(f"{count:,} parameters, {size:,} bytes written in {time.perf_counter() - begin:.0f} s", flush=True)
    for dtype in [part for part in ("keep", "float32") if part in arguments.parts.split(",")]:
        out = work / dtype
        report(f"import --dtype {dtype}", ["import", str(folder), str(out), "--dtype", dtype, "--no-proof"], size)
        print(f"  {sum(path.stat().st_size for path in out.iterdir()):,} bytes written")
        if dtype == "keep":
            words = ["generate", str(out), "--precision", "bf16", "--beam", "1", "--max-length", "20"]
            report("generate", words, size, "the cat\n")
        if not arguments.keep:
            shutil.rmtree(out)
    if "proof" in arguments.parts.split(","):
        words = [str(folder), str(work / "proven"), str(arguments.sentences)]
        report("import --dtype keep with a proof", words, size, program=["-c", PROOF])
    if not arguments.keep:
        shutil.rmtree(work)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="runs/large")
    parser.add_argument("--layers", type=int, default=24, help="per stack")
    parser.add_argument("--sentences", type=int, default=8, help="of the proof")
    parser.add_argument("--parts", default="keep,float32,proof")
    parser.add_argument("--keep", action="store_true")
    return parser.parse_args()


def write_weights(folder: Path, layers: int) -> tuple[int, int]:
    """Write the shards one after the other. Return the number of parameters and of bytes."""
    dice, shard, files = torch.Generator().manual_seed(1), dict[str, Tensor](), dict[str, str]()
    total = numbers = 0
    for name, shape in weight_shapes(layers).items():
        scale = 1.0 if len(shape) == 1 else shape[-1] ** -0.5
        shard[name] = (torch.randn(shape, generator=dice) * scale).bfloat16()
        numbers += shard[name].numel()
        if sum(weight.nbytes for weight in shard.values()) > SHARD_BYTES:
            total += write_shard(folder, shard, files)
    total += write_shard(folder, shard, files)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}), "utf-8")
    return numbers, total


def write_shard(folder: Path, shard: dict[str, Tensor], files: dict[str, str]) -> int:
    size = sum(weight.nbytes for weight in shard.values())
    file = f"model-{len(set(files.values())):05}.safetensors"
    save_file(shard, folder / file, {"format": "pt"})
    files.update(dict.fromkeys(shard, file))
    shard.clear()
    return size


def weight_shapes(layers: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"shared.weight": (ROWS, WIDTH)}
    for stack in ("encoder", "decoder"):
        attentions = ["SelfAttention", "EncDecAttention"][: 1 if stack == "encoder" else 2]
        for block in (f"{stack}.block.{layer}" for layer in range(layers)):
            for number, part in enumerate(attentions):
                name = f"{block}.layer.{number}"
                shapes |= {f"{name}.{part}.{each}.weight": (HEADS * HEAD, WIDTH) for each in "qkv"}
                shapes |= {f"{name}.{part}.o.weight": (WIDTH, HEADS * HEAD), f"{name}.layer_norm.weight": (WIDTH,)}
            last = f"{block}.layer.{len(attentions)}"
            shapes[f"{last}.DenseReluDense.wi.weight"] = (INNER, WIDTH)
            shapes |= {f"{last}.DenseReluDense.wo.weight": (WIDTH, INNER), f"{last}.layer_norm.weight": (WIDTH,)}
        shapes[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (32, HEADS)
        shapes[f"{stack}.final_layer_norm.weight"] = (WIDTH,)
    return shapes


def write_other_files(folder: Path, layers: int) -> None:
    config = {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": ROWS,
        "d_model": WIDTH,
        "d_kv": HEAD,
        "num_heads": HEADS,
        "d_ff": INNER,
        "num_layers": layers,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "a dog ran home"] * 20),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=5,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}', "utf-8")


def report(
    name: str, words: list[str], size: int, text: str | None = None, program: Sequence[str] = ("-m", "attendo")
) -> None:
    """Run a program and print its peak memory and time."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *program, *words], stdin=subprocess.PIPE if text else subprocess.DEVNULL, text=True
    )
    if text and process.stdin is not None:
        process.stdin.write(text)
        process.stdin.close()
    _, status, used = os.wait4(process.pid, 0)
    peak = used.ru_maxrss * 1024
    seconds = time.perf_counter() - begin
    print(
        f"{name}: peak {peak / 2**30:.2f} GiB, {peak / size:.2f} x the files, {seconds:.0f} s, exit {status}",
        flush=True,
    )


if __name__ == "__main__":
    main()
