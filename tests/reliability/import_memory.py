"""Imports a folder and prints the growth of the peak memory in bytes: `python import_memory.py FOLDER OUT DTYPE`.

The folder needs only config.json and weights: the tokenizer has one piece for each row.
"""

import sys
from pathlib import Path

import torch

from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.import_model import from_folder, import_model
from attendo.text.words import Words


def peak_memory() -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    folder, out, dtype = sys.argv[1:]
    torch.set_num_threads(1)
    tokenizers: dict[int, Words] = {}
    before = peak_memory()
    found = from_folder(folder, with_tokenizers=False, keep_dtype=dtype == "keep")
    for side in ("source", "target"):
        size = getattr(found, side).size
        tokenizers.setdefault(size, Words(tuple(f"w{number}" for number in range(size - 4))))
    sides = [tokenizers[getattr(found, side).size] for side in ("source", "target")]
    import_model(ImportedModel(found.folder, found.network, found.source, found.target, *sides), out, prove=False)
    print(peak_memory() - before)


if __name__ == "__main__":
    main()
