"""Compares the time of one batch for networks that predict all tokens at once and for greedy search, in turns.

    python benchmarks/parallel_latency.py --preset base --precision fp16 --batch 1,64,256 [--compiled]

Weights are random, so the work is the same for all sources: 32 source tokens, and 32 target tokens for the
autoregressive and the masked network. The length of a graph's or CTC's output does not change its work. Every round
calls all systems once, in another order. The ratio is the median over rounds of the time of greedy search divided by
that of the system. Decoding uses CUDA graphs on a GPU.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch

from attendo.bench.random_network import make_random_network
from attendo.bench.systems import DTYPES, UNLIMITED_POSITIONS, Workload, prepare_generation
from attendo.decode.config import GenerationConfig
from attendo.decode.engines import CachedEngine, FastEngine
from attendo.decode.parallel import ParallelEngine
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import SuppressTokens
from attendo.decode.strategies import Greedy
from attendo.model.config import ModelConfig
from attendo.model.parallel import LENGTH_CLASSES, ParallelTransformer
from attendo.nn.attention import without_cudnn_attention

Call = Callable[[], Any]
_WARM_UP = 5  # calls: a CUDA graph is captured at the fourth one

# Name, settings of the model, settings of the decoding.
SYSTEMS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("graph λ=4 lookahead", {"kind": "graph", "upsample": 4}, {}),
    ("graph λ=4 viterbi", {"kind": "graph", "upsample": 4}, {"graph_search": "viterbi"}),
    ("graph λ=8 lookahead", {"kind": "graph", "upsample": 8}, {}),
    ("ctc λ=3", {"kind": "ctc", "upsample": 3}, {}),
    ("masked, 4 passes, 1 length", {"kind": "masked"}, {"passes": 4, "length_candidates": 1}),
    ("masked, 10 passes, 5 lengths", {"kind": "masked"}, {"passes": 10, "length_candidates": 5}),
)


def main() -> None:
    arguments = _parse_arguments()
    device = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    for batch in map(int, arguments.batch.split(",")):
        calls = dict(_make_calls(arguments, device, batch))
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(_WARM_UP + arguments.rounds):
            for name in list(calls)[:: 1 if number % 2 else -1]:
                seconds = _time_call(calls[name], device)
                if number >= _WARM_UP:
                    times[name].append(seconds)
        greedy = times["greedy"]
        for name, each in times.items():
            found = {
                "batch": batch,
                "system": name,
                "ms_p50": round(1000 * median(each), 3),
                "times_faster": round(median(one / other for one, other in zip(greedy, each, strict=True)), 3),
                "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                "torch": torch.__version__,
            }
            print(json.dumps(found, ensure_ascii=False), flush=True)


def _make_calls(arguments: argparse.Namespace, device: torch.device, batch: int) -> Iterator[tuple[str, Call]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, arguments.vocabulary, (batch, arguments.tokens - 1), generator=generator)
    sources = [tuple(row) for row in ids.tolist()]  # EOS is added to them
    network = make_random_network(arguments.preset, arguments.vocabulary).to(device, DTYPES[arguments.precision])
    yield "greedy", _make_greedy_call(network, sources, arguments.tokens, False)
    if arguments.compiled and device.type == "cuda":
        yield "greedy, compiled", _make_greedy_call(network, sources, arguments.tokens, True)
    for name, model, decoding in SYSTEMS:
        settings = {"vocab_size": arguments.vocabulary, "tie": "all", "dropout": 0.0, **model}
        parallel = ParallelTransformer(ModelConfig.preset(arguments.preset, **settings), generator).eval()
        if parallel.length_head is not None:
            _fix_lengths(parallel)
        parallel = parallel.to(device, DTYPES[arguments.precision])
        engine = ParallelEngine(parallel, GenerationConfig(**decoding), UNLIMITED_POSITIONS, device.type == "cuda")
        yield name, _make_parallel_call(engine, sources)


def _make_greedy_call(network: Any, sources: list[tuple[int, ...]], tokens: int, compiled: bool) -> Call:
    on_gpu = network.device.type == "cuda"
    engine = (
        FastEngine(network, UNLIMITED_POSITIONS, compiled=compiled, max_sentences=len(sources))
        if on_gpu
        else CachedEngine(network, UNLIMITED_POSITIONS)
    )
    return prepare_generation(engine, Workload(sources, 1, len(sources), tokens, tokens))


def _make_parallel_call(engine: ParallelEngine, sources: list[tuple[int, ...]]) -> Call:
    requests = [DecodeRequest(number, source, 2 * len(source)) for number, source in enumerate(sources)]

    def call() -> Any:
        with without_cudnn_attention():
            return list(engine.generate(requests, Greedy(), (SuppressTokens(),)))

    return call


@torch.no_grad()
def _fix_lengths(network: ParallelTransformer) -> None:
    """Predict the source's length, then the lengths next to it."""
    assert network.length_head is not None
    network.length_head.weight.zero_()
    network.length_head.bias.copy_(-(torch.arange(LENGTH_CLASSES) - LENGTH_CLASSES // 2).abs().float())


def _time_call(call: Call, device: torch.device) -> float:
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), default="fp32")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--tokens", type=int, default=32, help="source tokens, EOS included, and target tokens")
    parser.add_argument("--batch", default="1,64,256")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device")
    parser.add_argument("--compiled", action="store_true", help="also measure greedy search with torch.compile")
    return parser.parse_args()


if __name__ == "__main__":
    main()
