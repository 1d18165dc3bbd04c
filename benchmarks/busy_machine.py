"""Compares the thread count that attendo chooses with fixed thread counts, while other processes use the CPU.

    python benchmarks/busy_machine.py [--seconds 1] [--rounds 30] [--works train_demo,generate] [--busy 1] [--json FILE]

There are three situations: idle cores, one busy process, and one busy process per core. Each way of choosing threads
runs in a separate process: attendo's choice, `--threads N` for several N, and all cores with OpenMP's passive waiting.
The processes take turns of `--seconds`, for `--rounds` rounds. The result of a way is the mean of its rounds. A median
would mislead: with one busy process per core, a thread has a whole core in one turn and half a core in the next. The
median would only show which of the two is more frequent.
`taskset -c 0,1 python ...` limits the benchmark to two cores.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any

WORKS = ("train_demo", "train_small", "validate", "generate", "generate_one", "score", "serve_one", "serve_eight")
CHOSEN = "attendo's choice"
WORDS = [f"w{number}" for number in range(1, 1500)]
LENGTH = 24  # tokens of the longest sentence, and of an answer
WARM_UP = 2  # units of work before the first turn


def main() -> None:
    arguments = _parse_arguments()
    if arguments.child:
        _work_in_turns(arguments.child)
        return
    from attendo.nn.cpu_threads import available_cores, thread_counts

    cores = available_cores()
    situations = {"idle": 0, "one busy process": 1, f"{cores} busy processes": cores}
    if arguments.busy is not None:
        situations = {f"{arguments.busy} busy processes": arguments.busy}
    ways: dict[str, dict[str, str]] = {CHOSEN: {}}
    ways |= {f"--threads {count}": {"OMP_NUM_THREADS": str(count)} for count in thread_counts(cores)}
    ways[f"{cores} threads, passive"] = {"OMP_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "passive"}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for situation, busy in situations.items():
        for work in arguments.works.split(","):
            with _keep_busy(busy):
                rates = _compare(work, ways, arguments.rounds, arguments.seconds)
            found.setdefault(work, {})[situation] = rates
            print(f"{work}, {situation}: {rates}", file=sys.stderr, flush=True)
    _print_table(found, list(ways))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))


def _compare(work: str, ways: dict[str, dict[str, str]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the units of work a second of each way, one value a round."""
    with ExitStack() as stack:
        # Start the processes one after the other: each chooses its threads by measuring, which the next would disturb.
        children = {way: stack.enter_context(_start_child(work, variables)) for way, variables in ways.items()}
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds):
            for way in list(ways)[:: 1 if number % 2 else -1]:
                rates[way].append(children[way](seconds))
    return rates


@contextmanager
def _start_child(work: str, variables: dict[str, str]) -> Iterator[Callable[[float], float]]:
    """Start a process for one work. Calling the result makes it work for some seconds and returns its rate."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment = {**kept, "CUDA_VISIBLE_DEVICES": "", **variables}
    command = [sys.executable, __file__, "--child", work]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None

        def call(seconds: float) -> float:
            print(seconds, file=stdin, flush=True)
            return float(stdout.readline())

        call(0.0)
        yield call
        stdin.close()


def _work_in_turns(work: str) -> None:
    """Each line of standard input is a number of seconds: work that long, then print the units of work a second."""
    with tempfile.TemporaryDirectory() as folder, globals()[f"_prepare_{work}"](Path(folder)) as do_unit:
        for _ in range(WARM_UP):
            do_unit()
        for line in sys.stdin:
            begin, units = time.perf_counter(), 0
            while (elapsed := time.perf_counter() - begin) < float(line):
                units += do_unit()
            print(units / elapsed if units else 0.0, flush=True)


@contextmanager
def _keep_busy(processes: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _print_table(found: dict[str, Any], ways: list[str]) -> None:
    print(f"| work, a second | situation | {' | '.join(ways)} | choice / best fixed |")
    print("|---" * (len(ways) + 3) + "|")
    for work, situations in found.items():
        for situation, rates in situations.items():
            means = {way: fmean(rates[way]) for way in ways}
            ratio = means[CHOSEN] / max(rate for way, rate in means.items() if way != CHOSEN)
            print(f"| {work} | {situation} | {' | '.join(f'{means[way]:,.0f}' for way in ways)} | {ratio:.2f} |")


@contextmanager
def _prepare_train_demo(folder: Path) -> Iterator[Callable[[], int]]:
    from attendo.runs.demo import demo_config

    config = demo_config()
    yield _train(config.replace(train=config.train.replace(**NO_VALIDATION)), folder)


@contextmanager
def _prepare_train_small(folder: Path) -> Iterator[Callable[[], int]]:
    from attendo.runs.config import RunConfig

    train = {"batch_tokens": 2048, **NO_VALIDATION}
    values = {"preset": "small", "data": {"task": "builtin"}, "tokenizer": {"kind": "words"}, "train": train}
    yield _train(RunConfig(**values), folder)


NO_VALIDATION = {"steps": 100_000, "validate_every": 100_000, "save_every": 100_000}


def _train(config: Any, folder: Path) -> Callable[[], int]:
    """Return a function that trains one step and returns its number of target tokens."""
    import torch

    from attendo.runs.run import Run
    from attendo.train.loop import Step

    run = Run.begin(config, folder / "run", torch.device("cpu"))
    for _ in run.prepare():
        pass
    steps = (report.tokens for report in run.train() if isinstance(report, Step))
    return lambda: next(steps)


@contextmanager
def _prepare_validate(folder: Path) -> Iterator[Callable[[], int]]:
    """Compute the loss of the demo's validation pairs and translate them, as the validation of a run does."""
    import torch

    from attendo.nn.cpu_threads import keep_threads
    from attendo.runs.demo import demo_config
    from attendo.runs.run import Run
    from attendo.train.validation import Validator

    config = demo_config()
    config = config.replace(train=config.train.replace(metrics=("bleu",), metric_pairs=128))
    run = Run.begin(config, folder / "run", torch.device("cpu"))
    for _ in run.prepare():
        pass
    run.build()
    validate = Validator(run.model, run.data.valid[:128], run.trainer.updater)
    with keep_threads():
        yield lambda: len(validate(0).samples) and 128


@contextmanager
def _prepare_generate(folder: Path) -> Iterator[Callable[[], int]]:
    model, texts = _make_model(), _make_texts(64)
    yield lambda: sum(len(each.ids) for each in model.generate(texts, max_length=LENGTH))


@contextmanager
def _prepare_generate_one(folder: Path) -> Iterator[Callable[[], int]]:
    model, texts = _make_model(), cycle(_make_texts(64))
    yield lambda: len(model.generate([next(texts)], max_length=LENGTH)[0].ids)


@contextmanager
def _prepare_score(folder: Path) -> Iterator[Callable[[], int]]:
    model, texts = _make_model(), _make_texts(64)
    yield lambda: len(model.score(texts, texts)) * LENGTH


@contextmanager
def _prepare_serve_one(folder: Path) -> Iterator[Callable[[], int]]:
    with _serve(folder) as ask:
        yield lambda: ask(0)


@contextmanager
def _prepare_serve_eight(folder: Path) -> Iterator[Callable[[], int]]:
    """Eight clients, two requests each."""
    from concurrent.futures import ThreadPoolExecutor

    with _serve(folder) as ask, ThreadPoolExecutor(8) as pool:
        yield lambda: sum(pool.map(lambda client: ask(client) + ask(client), range(8)))


@contextmanager
def _serve(folder: Path) -> Iterator[Callable[[int], int]]:
    """Start `attendo serve`. The yielded function sends one request as the client with the given number.

    Each client has a separate connection.
    """
    from http.client import HTTPConnection

    _make_model().save(folder / "model")
    command = [sys.executable, "-m", "attendo", "serve", str(folder / "model"), "--port", "0", "--languages", "en-de"]
    texts = cycle(_make_texts(64))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip().removeprefix("http://").rstrip("/")
        connections = [HTTPConnection(address, timeout=600) for _ in range(8)]

        def ask(client: int) -> int:
            body = json.dumps({"q": next(texts), "source": "en", "target": "de"})
            connections[client].request("POST", "/translate", body, {"Content-Type": "application/json"})
            response = connections[client].getresponse()
            response.read()
            assert response.status == 200, response.status
            connections[client].close()  # the server closes connections that stay idle during other turns
            return 1

        try:
            yield ask
        finally:
            server.terminate()


def _make_model() -> Any:
    """Return a model of preset small with random weights, whose answers always have the maximum length."""
    import torch

    from attendo.model.config import ModelConfig
    from attendo.model.transformer import Transformer
    from attendo.model_folder import StoredModel
    from attendo.text import EOS, Words
    from attendo.text_model import TextModel

    tokenizer = Words.build([" ".join(WORDS)])
    config = ModelConfig.preset("small", vocab_size=tokenizer.vocab_size, tie="none", output_bias=True)
    network = Transformer(config, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        network.output.bias[EOS] = -1e4
    return TextModel(StoredModel(network, tokenizer, tokenizer, {"max_length_factor": 0.0, "max_length_extra": LENGTH}))


def _make_texts(count: int) -> list[str]:
    dice = random.Random(0)
    return [" ".join(dice.choices(WORDS, k=dice.randrange(LENGTH // 2, LENGTH))) for _ in range(count)]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn in seconds")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--busy", type=int, help="measure one situation only, with this number of busy processes")
    parser.add_argument("--json", help="also write all figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
