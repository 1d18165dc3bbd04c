"""Compares the training speed of the demo's network with a torch.nn.Transformer of the same size.

    python benchmarks/train_beside_torch.py [--compile] [--device cuda] [--dropout 0.1]

Both networks train on the same batches in one run. They take turns on every batch, so other load on the machine slows
both. The ratio is the result.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from rival import Rival
from torch import nn

from attendo import ModelConfig, Transformer
from attendo.data.batch import Batch, Example, collate
from attendo.data.bucketing import group_by_length
from attendo.runs.corpora import BuiltinCorpus
from attendo.runs.demo import demo_config
from attendo.text.factory import build_tokenizers
from attendo.train.loss import cross_entropy_sum

PAIRS = 8192


def main() -> None:
    arguments = _arguments()
    device = torch.device(arguments.device)
    settings = demo_config()
    batches, config = _batches(arguments.batches, arguments.dropout)
    batches = [batch.to(device) for batch in batches]
    networks: dict[str, nn.Module] = {"attendo": Transformer(config), "torch.nn.Transformer": Rival(config)}
    steps = {
        name: _stepper(network.to(device).train(), arguments.compile, settings.train.label_smoothing)
        for name, network in networks.items()
    }
    for batch in batches[: arguments.warmup]:
        for step in steps.values():
            step(batch)
    times: dict[str, list[list[float]]] = {name: [[] for _ in batches] for name in steps}
    for turn in range(arguments.repeats):
        for n, batch in enumerate(batches):
            # The order alternates from batch to batch, so neither network always finds the other's warm cache.
            for name in sorted(steps, reverse=bool((turn + n) % 2)):
                times[name][n].append(_timed(steps[name], batch, device))
    tokens = sum(batch.tokens for batch in batches)
    seconds = {name: sum(statistics.median(each) for each in rows) for name, rows in times.items()}
    print(f"{device}, {torch.get_num_threads()} threads, torch {torch.__version__}, compile {arguments.compile}")
    print(f"{len(batches)} batches, {tokens} target tokens, median of {arguments.repeats} turns each")
    for name, value in seconds.items():
        print(f"{name:22} {tokens / value:10,.0f} target tokens/s")
    print(f"{'attendo / torch':22} {seconds['torch.nn.Transformer'] / seconds['attendo']:10.3f}")


def _batches(count: int, dropout: float) -> tuple[list[Batch], ModelConfig]:
    settings = demo_config()
    pairs = [(row.source, row.target) for row in BuiltinCorpus(settings.seed, PAIRS).rows()]
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    source, target = build_tokenizers(sources, targets, settings.tokenizer)
    examples = [Example(source.encode(left), target.encode(right)) for left, right in pairs]
    groups = list(group_by_length(examples, settings.train.batch_tokens))
    random.Random(settings.seed).shuffle(groups)
    config = settings.make_model_config(source.vocab_size, target.vocab_size)
    return [collate(group) for group in groups[:count]], config.replace(dropout=dropout, attention_dropout=None)


def _stepper(network: nn.Module, compiled: bool, label_smoothing: float) -> Callable[[Batch], None]:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(network, dynamic=True) if compiled else network

    def step(batch: Batch) -> None:
        logits = forward(batch.source_ids, batch.target_ids, batch.source_mask)
        loss = cross_entropy_sum(logits, batch.labels, label_smoothing) / batch.target_ids.numel()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def _timed(step: Callable[[Batch], None], batch: Batch, device: torch.device) -> float:
    begin = time.perf_counter()
    step(batch)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--warmup", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
