"""Training speed of the demo's network beside a torch.nn.Transformer of the same size, on the same batches, in one run.

    python benchmarks/train_beside_torch.py [--compile] [--device cuda] [--dropout 0.1]

Both take turns on every batch, so that whatever else the machine does falls on both; the ratio is what counts.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from itertools import islice

import torch
from torch import Tensor, nn

from attendo import ModelConfig, Transformer
from attendo.data.batch import Batch, Example
from attendo.data.buckets import bucketed
from attendo.recipes.corpus import read_corpus
from attendo.recipes.demo import demo_config
from attendo.recipes.run import build_tokenizers
from attendo.train.loss import summed_loss


class Rival(nn.Module):
    """torch.nn.Transformer with the same embeddings, positions, tying and masks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width = config.d_model
        self.source = nn.Embedding(config.source_vocab_size, config.d_model)
        self.target = nn.Embedding(config.target_vocab_size, config.d_model)
        self.core = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.d_ff,
            config.dropout,
            config.activation,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("table", _sinusoids(512, config.d_model))
        for name in ("source", "target"):
            nn.init.normal_(getattr(self, name).weight, std=config.d_model**-0.5)

    def forward(self, source_ids: Tensor, target_ids: Tensor, source_mask: Tensor | None) -> Tensor:
        padding = None if source_mask is None else ~source_mask
        causal = nn.Transformer.generate_square_subsequent_mask(target_ids.size(1), device=target_ids.device)
        x = self.core(
            self._embed(self.source, source_ids),
            self._embed(self.target, target_ids),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return x @ self.target.weight.T

    def _embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(table(ids) * math.sqrt(self.width) + self.table[: ids.size(1)])


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
            # Who goes first changes from batch to batch: neither always finds the other's warm cache.
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
    corpus = read_corpus(settings.data, settings.seed)
    source, target = build_tokenizers(corpus.sample, settings.tokenizer)
    pairs = next(corpus.epochs())
    examples = (Example(source.encode(left), target.encode(right)) for left, right in pairs)
    batches = list(islice(bucketed(examples, settings.train.batch_tokens, settings.seed), count))
    config = settings.network(source.vocab_size, target.vocab_size)
    return batches, config.replace(dropout=dropout, attention_dropout=None)


def _stepper(network: nn.Module, compiled: bool, label_smoothing: float) -> Callable[[Batch], None]:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(network, dynamic=True) if compiled else network

    def step(batch: Batch) -> None:
        logits = forward(batch.source_ids, batch.target_ids, batch.source_mask)
        loss = summed_loss(logits, batch.labels, label_smoothing) / batch.target_ids.numel()
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


def _sinusoids(length: int, width: int) -> Tensor:
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


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
