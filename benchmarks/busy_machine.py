"""CPU work beside other processes: the threads that attendo chooses, beside every fixed number of threads.

    python benchmarks/busy_machine.py [--seconds 4] [--rounds 3] [--works train_demo,generate] [--busy 1] [--json FILE]

Three situations: idle cores, one busy process, as many busy processes as cores. In each, every way of choosing threads
runs in processes of its own, in turns: attendo's own choice, `--threads N` for several N, and all cores with OpenMP's
passive waiting. The figure of a way is the median of its rounds. `taskset -c 0,1 python ...` limits it to two cores.
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
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

WORKS = ("train_demo", "train_small", "validate", "generate", "generate_one", "score", "serve_one", "serve_eight")
CHOSEN = "attendo's choice"
WORDS = [f"w{number}" for number in range(1, 1500)]
LENGTH = 24  # tokens of the longest sentence, and of an answer


def main() -> None:
    arguments = _parse_arguments()
    if arguments.child:
        print(json.dumps(_run_works(arguments.works.split(","), arguments.seconds)))
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
        with _keep_busy(busy):
            for _ in range(arguments.rounds):
                for way, variables in ways.items():
                    for work, rate in _start_child(arguments, variables).items():
                        found.setdefault(work, {}).setdefault(situation, {}).setdefault(way, []).append(rate)
                        print(f"{work}, {situation}, {way}: {rate:,.0f}", file=sys.stderr, flush=True)
    _print_table(found, list(ways))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))


def _start_child(arguments: argparse.Namespace, variables: dict[str, str]) -> dict[str, float]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, __file__, "--child", "--works", arguments.works, "--seconds", str(arguments.seconds)]
    environment = {**kept, "CUDA_VISIBLE_DEVICES": "", **variables}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


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
            middle = {way: median(rates[way]) for way in ways}
            ratio = middle[CHOSEN] / max(rate for way, rate in middle.items() if way != CHOSEN)
            print(f"| {work} | {situation} | {' | '.join(f'{middle[way]:,.0f}' for way in ways)} | {ratio:.2f} |")


def _run_works(works: list[str], seconds: float) -> dict[str, float]:
    """Units of work a second: target tokens, or requests of a server."""
    with tempfile.TemporaryDirectory() as folder:
        return {work: globals()[f"_measure_{work}"](Path(folder), seconds) for work in works}


def _measure_train_demo(folder: Path, seconds: float) -> float:
    from attendo.recipes.demo import demo_config

    return _train(demo_config(), folder / "demo", seconds)


def _measure_train_small(folder: Path, seconds: float) -> float:
    from attendo.recipes.run_config import RunConfig

    train = {"batch_tokens": 2048, "validate_every": 10_000, "save_every": 10_000}
    values = {"preset": "small", "data": {"task": "builtin"}, "tokenizer": {"kind": "words"}, "train": train}
    return _train(RunConfig(**values), folder / "small", seconds)


def _train(config: Any, folder: Path, seconds: float) -> float:
    """From the second step on: the choice of threads comes before the first."""
    import torch

    from attendo.recipes.run import Run
    from attendo.train.reports import Step

    run = Run.begin(config, folder, torch.device("cpu"))
    for _ in run.prepare():
        pass
    tokens, begin = 0, 0.0
    for report in run.train():
        if isinstance(report, Step):
            tokens, begin = (tokens + report.tokens, begin) if begin else (0, time.perf_counter())
        if begin and time.perf_counter() - begin > seconds:
            break
    return tokens / (time.perf_counter() - begin)


def _measure_validate(folder: Path, seconds: float) -> float:
    """The loss of the demo's validation pairs, and their translations, as at a validation of a run."""
    import torch

    from attendo.nn.cpu_threads import keep_threads
    from attendo.recipes.demo import demo_config
    from attendo.recipes.run import Run
    from attendo.train.validation import Validator

    config = demo_config()
    config = config.replace(train=config.train.replace(metrics=("bleu",), metric_pairs=128))
    run = Run.begin(config, folder / "validate", torch.device("cpu"))
    for _ in run.prepare():
        pass
    run.build()
    validate = Validator(run.model, run.data.valid[:128], run.trainer.learner)
    with keep_threads():
        return _repeat(lambda number: len(validate(number).samples) and 128, seconds)


def _measure_generate(folder: Path, seconds: float) -> float:
    model, texts = _make_model(), _make_texts(64)
    return _repeat(lambda number: sum(len(each.ids) for each in model.generate(texts, max_length=LENGTH)), seconds)


def _measure_generate_one(folder: Path, seconds: float) -> float:
    model, texts = _make_model(), _make_texts(64)
    return _repeat(lambda number: len(model.generate([texts[number % 64]], max_length=LENGTH)[0].ids), seconds)


def _measure_score(folder: Path, seconds: float) -> float:
    model, texts = _make_model(), _make_texts(64)
    return _repeat(lambda number: len(model.score(texts, texts)) * LENGTH, seconds)


def _measure_serve_one(folder: Path, seconds: float) -> float:
    return _serve(folder / "one", seconds, clients=1)


def _measure_serve_eight(folder: Path, seconds: float) -> float:
    return _serve(folder / "eight", seconds, clients=8)


def _serve(folder: Path, seconds: float, clients: int) -> float:
    """Requests a second of `attendo serve`, asked by so many clients at once."""
    from concurrent.futures import ThreadPoolExecutor
    from http.client import HTTPConnection

    _make_model().save(folder)
    command = [sys.executable, "-m", "attendo", "serve", str(folder), "--port", "0", "--languages", "en-de"]
    texts = _make_texts(64)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip().removeprefix("http://").rstrip("/")

        def ask(first: int) -> int:
            connection, done, end = HTTPConnection(address, timeout=600), 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                body = json.dumps({"q": texts[(first + done) % 64], "source": "en", "target": "de"})
                connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                assert response.status == 200, response.status
                done += 1
            return done

        try:
            ask(0)  # warm
            with ThreadPoolExecutor(clients) as pool:
                begin = time.perf_counter()
                done = sum(pool.map(ask, range(0, 8 * clients, 8)))
                return done / (time.perf_counter() - begin)
        finally:
            server.terminate()


def _make_model() -> Any:
    """Random weights of the preset small, whose answers are as long as they may be."""
    import torch

    from attendo.model.config import ModelConfig
    from attendo.model.transformer import Transformer
    from attendo.store import StoredModel
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


def _repeat(work: Callable[[int], int], seconds: float) -> float:
    for number in range(2):
        work(number)
    begin, done, number = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < seconds:
        done += work(number)
        number += 1
    return done / (time.perf_counter() - begin)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--busy", type=int, help="one situation alone: beside so many busy processes")
    parser.add_argument("--json", help="also write all figures to this file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
