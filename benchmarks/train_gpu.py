"""Compares the training speed on a GPU with torch.nn.Transformer: same model, same batches, one run.

    python benchmarks/train_gpu.py multi30k --data FOLDER     the recipe, against a plain eager loop
    python benchmarks/train_gpu.py base                       1024 x (32 + 32) tokens, against the compiled rival

Every figure is the median of several rounds. Both take turns in each round.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from rival import Rival

from attendo import ModelConfig, Transformer
from attendo.data.batch import Batch
from attendo.data.prepared import open_prepared
from attendo.data.sampler import BatchStream
from attendo.nn.attention import without_cudnn_attention
from attendo.runs.config import RunConfig, read_run_file
from attendo.runs.run import Run
from attendo.train.config import TrainConfig
from attendo.train.update import Updater

RECIPE = Path(__file__).parents[1] / "recipes" / "multi30k_en_de.toml"


def main() -> None:
    arguments = _arguments()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    if arguments.task == "multi30k":
        multi30k(arguments)
    else:
        base(arguments)


def multi30k(arguments: argparse.Namespace) -> None:
    values = read_run_file(RECIPE)
    values["data"]["folder"] = arguments.data
    config = RunConfig(**values)
    work = Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    run = Run(config, work, torch.device("cuda"))
    for _ in run.prepare():
        pass
    data = open_prepared(run.data_folder)
    stream = BatchStream(data, config.train.batch_tokens, config.seed, config.tokenizer.dropout)
    placed = stream.batches(workers=2, pin=True)
    batches = [each.batch for each in islice(placed, arguments.batches)]
    placed.close()
    network = config.make_model_config(data.source_tokenizer.vocab_size, data.target_tokenizer.vocab_size)
    shapes = {(batch.source_ids.shape, batch.target_ids.shape) for batch in batches}
    print(f"{len(batches)} batches of at most {config.train.batch_tokens} positions a side, {len(shapes)} shapes")
    print(f"{_padding(batches):.1%} of the positions are padding")
    recipe = config.train.replace(compile=arguments.compile)
    plain = recipe.replace(r_drop=0.0, ema=0.0)  # one pass over each sentence and no weight average, as in tutorials
    half = torch.bfloat16
    loops = {
        "attendo, the recipe": _ours(network, recipe),
        "attendo without R-Drop and average": _ours(network, plain),
        "torch.nn.Transformer, fp32": _plain_loop(network, plain, torch.float32),
        "torch.nn.Transformer, fp32, R-Drop": _plain_loop(network, recipe, torch.float32),
        "torch.nn.Transformer, fp32, R-Drop, one pass": _plain_loop(network, recipe, torch.float32, one_pass=True),
        # Without cuDNN's attention, which builds a plan for every new shape. A plain loop keeps it and is slower.
        "torch.nn.Transformer, bf16": _plain_loop(network, plain, half, any_shape=True),
        "torch.nn.Transformer, bf16, R-Drop": _plain_loop(network, recipe, half, any_shape=True),
        "torch.nn.Transformer, bf16, R-Drop, one pass": _plain_loop(
            network, recipe, half, any_shape=True, one_pass=True
        ),
    }
    _compare(loops, batches, arguments.rounds)


def base(arguments: argparse.Namespace) -> None:
    vocabulary, rows, length = arguments.vocabulary, 1024, 32
    config = ModelConfig(vocab_size=vocabulary, tie="all")
    generator = torch.Generator().manual_seed(1)
    batches = [
        Batch(
            *(torch.randint(4, vocabulary, (rows, length), generator=generator).pin_memory(),),
            None,
            *(torch.randint(4, vocabulary, (rows, length), generator=generator).pin_memory() for _ in range(2)),
        )
        for _ in range(8)
    ]
    settings = TrainConfig(compile=arguments.compile)
    ours = _ours(config, settings)
    rivals = {
        f"torch.nn.Transformer, compiled, {name}": _plain_loop(
            config, settings, torch.bfloat16, compiled=True, fused=name == "fused AdamW"
        )
        for name in ("AdamW", "fused AdamW")
    }
    _compare({"attendo": ours, **rivals}, batches, arguments.rounds)
    if arguments.profile:
        _profile(lambda: ours(batches[0]))


def _ours(config: ModelConfig, settings: TrainConfig) -> Callable[[Batch], object]:
    learner = Updater(Transformer(config).cuda(), settings)
    return lambda batch: learner.update([batch])


def _plain_loop(
    config: ModelConfig,
    settings: TrainConfig,
    precision: torch.dtype,
    compiled: bool = False,
    fused: bool = False,
    any_shape: bool = False,
    one_pass: bool = False,
) -> Callable[[Batch], object]:
    """The loop that tutorials show: move the batch, forward, loss, backward, clip, step.

    R-Drop reads every batch twice, or in one pass over twice the rows.
    """
    network = Rival(config).cuda().train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=fused or None)
    half = torch.autocast("cuda", precision) if precision != torch.float32 else nullcontext()

    def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = settings.label_smoothing
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=smoothing)

    def compute_loss(batch: Batch) -> torch.Tensor:
        if not settings.r_drop:
            return cross_entropy(network(batch.source_ids, batch.target_ids, batch.source_mask), batch.labels)
        if one_pass:
            twice = batch.repeat(2)
            first, second = network(twice.source_ids, twice.target_ids, twice.source_mask).chunk(2)
        else:
            first, second = (network(batch.source_ids, batch.target_ids, batch.source_mask) for _ in range(2))
        both = cross_entropy(first, batch.labels) + cross_entropy(second, batch.labels)
        p, q = first.log_softmax(-1), second.log_softmax(-1)
        apart = sum(F.kl_div(x, y, log_target=True, reduction="none").sum(-1) for x, y in ((p, q), (q, p)))
        return (both + settings.r_drop * apart[batch.labels != 0].mean() / 2) / 2

    forward = torch.compile(compute_loss) if compiled else compute_loss

    def step(batch: Batch) -> None:
        batch = batch.to("cuda")
        with half, without_cudnn_attention() if any_shape else nullcontext():
            loss = forward(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm or 1e9)
        optimizer.step()

    return step


def _compare(loops: dict[str, Callable[[Batch], object]], batches: Sequence[Batch], rounds: int) -> None:
    """Time all loops and print their speed, each compared with the first loop."""
    ours = next(iter(loops))
    first = {name: _timed(loop, batches) for name, loop in loops.items()}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            times[name].append(_timed(loop, batches))
    tokens = sum(batch.tokens for batch in batches)
    for name, seconds in times.items():
        median = statistics.median(seconds)
        ratio = median / statistics.median(times[ours])
        print(
            f"{name:46} {tokens / median:12,.0f} target tokens/s  {1e3 * median / len(batches):7.2f} ms a step"
            f"  {ours} is {ratio:.2f} x as fast  (first round {first[name]:.1f} s)"
        )


def _timed(loop: Callable[[Batch], object], batches: Sequence[Batch]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for batch in batches:
        loop(batch)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _padding(batches: Sequence[Batch]) -> float:
    return sum(batch.padding for batch in batches) / sum(batch.positions for batch in batches)


def _profile(step: Callable[[], object], repeats: int = 5) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            step()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    print(f"{total / repeats / 1e3:.2f} ms of kernels a step; the longest:")
    for event in events[:25]:
        each = event.self_device_time_total
        print(f"{each / repeats / 1e3:8.2f} ms {each / total:6.1%} {event.count // repeats:5}x  {event.key[:80]}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("multi30k", "base"))
    parser.add_argument("--data", help="folder with the Multi30k files")
    parser.add_argument("--work", default="runs/benchmark", help="folder for prepared data")
    parser.add_argument("--batches", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--compile", choices=("auto", "on", "blocks", "off"), default="auto", help="train.compile")
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
