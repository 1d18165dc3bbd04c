"""Measures the first view of the page with a large model: from its request to the picture, and the longest task.

    python benchmarks/home_page.py [--rounds 7] [--before CHECKOUT] [--generate]

12 + 12 layers with 16 heads and 128 tokens on each side, in headless Chromium without a GPU. `--before` names another
checkout, whose server and page take turns with this one in the same run. With `--generate` the address has no target:
the page shows the model's own output, also of 128 tokens. Processor time depends less on other
processes than time does. Needs playwright and the `serve` extra.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

HERE = Path(__file__).parents[1]
WORDS = [f"w{number}" for number in range(127)]
SIZES = {"d_model": 256, "d_ff": 1024, "num_heads": 16, "num_encoder_layers": 12, "num_decoder_layers": 12}
# Notes the first frame with the prediction and the first frame with a map of a head, and every task above 50 ms.
WATCH = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({ startTime, duration }) =>
  [startTime, duration]))).observe({ type: "longtask", buffered: true });
const marks = { drawn: "network-figure .distribution li", maps: ".head canvas[width]" };
const look = () => {
  for (const [name, selector] of Object.entries(marks)) {
    if (!document.querySelector(selector)) continue;
    delete marks[name];
    requestAnimationFrame(() => setTimeout(() => performance.mark(name)));
  }
  if (Object.keys(marks).length) requestAnimationFrame(look);
};
look();
"""
RESULT = """() => {
  const found = performance.getEntriesByType("resource").find(({ name }) => name.endsWith("/forward"));
  const at = (name) => performance.getEntriesByName(name)[0].startTime;
  return { server: found.responseStart - found.requestStart, bytes: found.encodedBodySize, answer: found.responseEnd,
    opened: at("drawn"), drawn: at("drawn") - found.responseEnd, maps: at("maps") - found.responseEnd,
    longest: Math.max(0, ...window.tasks.map(([, duration]) => duration)) };
}"""
SETTLED = "() => performance.getEntriesByName('maps').length && performance.now() > 1500 + Math.max(\
  performance.getEntriesByName('maps')[0].startTime, ...window.tasks.map(([from, duration]) => from + duration))"
UNFOLD = """async () => {
  const begin = performance.now();
  document.getElementById("unfolded").click();
  document.querySelector("network-figure").getBoundingClientRect();
  const ready = performance.now() - begin;
  await new Promise((resolve) => setTimeout(resolve, 3000));
  return { unfold: ready, unfold_longest: Math.max(0, ...window.tasks.filter(([from, duration]) => from + duration
    >= begin).map(([, duration]) => duration)) };
}"""
ROWS = {
    "opened": "from the address to the drawn prediction",
    "server": "of which the server's answer",
    "drawn": "from the answer to the drawn prediction",
    "maps": "from the answer to the first maps of heads",
    "longest": "longest task",
    "longest_cpu": "longest task, processor time",
    "unfold": "unfolding all layers",
    "unfold_longest": "its longest task",
    "unfold_cpu": "its longest task, processor time",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--generate", action="store_true", help="no target in the address: the model generates it")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.generate)
    checkouts = {"now": HERE} | ({} if arguments.before is None else {"before": arguments.before.resolve()})
    found = measure(checkouts, arguments.rounds, arguments.generate)
    for name, each in found.items():
        print(f"{name}: answer {median(each['bytes']) / 1e6:.2f} MB")
    for key, title in ROWS.items():
        values = "  ".join(
            f"{name} {median(each[key]):6.0f} ms ({min(each[key]):.0f} to {max(each[key]):.0f})"
            for name, each in found.items()
        )
        print(f"{title:45} {values}")


def measure(checkouts: dict[str, Path], rounds: int, generate: bool) -> dict[str, dict[str, list[float]]]:
    from playwright.sync_api import sync_playwright

    found: dict[str, dict[str, list[float]]] = {name: {} for name in checkouts}
    with ExitStack() as stack:
        addresses = {name: stack.enter_context(running(path, generate)) for name, path in checkouts.items()}
        started = stack.enter_context(sync_playwright())
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for number in range(rounds + 1):
            for name in list(addresses)[:: 1 if number % 2 else -1]:
                times = open_page(browser, addresses[name], generate)
                for key, value in times.items() if number else ():  # the first round warms both up
                    found[name].setdefault(key, []).append(value)
        browser.close()
    return found


def open_page(browser: Any, address: str, generate: bool) -> dict[str, float]:
    height = 1800 if generate else 900  # a long output stands above the network, and only what is near is painted
    context = browser.new_context(viewport={"width": 1280, "height": height}, locale="en-US")
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.add_init_script(WATCH)
    browser.start_tracing(categories=["toplevel"])
    state = {"view": "home", "text": " ".join(WORDS)} | ({} if generate else {"target": " ".join(reversed(WORDS))})
    page.goto(f"{address}#{urlencode(state)}")
    page.wait_for_function(SETTLED)
    times = page.evaluate(RESULT)
    times["longest_cpu"] = find_longest_task(browser.stop_tracing())
    browser.start_tracing(categories=["toplevel"])
    times |= page.evaluate(UNFOLD)
    times["unfold_cpu"] = find_longest_task(browser.stop_tracing())
    context.close()
    return times


def find_longest_task(trace: bytes) -> float:
    """Return the most processor time of one task of the page, in milliseconds.

    Other processes do not add to it. The page is the renderer that works most: Chromium has some of its own.
    """
    events = json.loads(trace)["traceEvents"]
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks: dict[tuple[int, int], list[float]] = {}
    for each in events:
        if each["name"] == "ThreadControllerImpl::RunTask" and (each["pid"], each["tid"]) in mains:
            tasks.setdefault((each["pid"], each["tid"]), []).append(each.get("tdur", 0) / 1000)
    return max(max(tasks.values(), key=sum))


@contextmanager
def running(checkout: Path, generate: bool) -> Iterator[str]:
    """Serve the model with the package of a checkout, in another process."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--serve", *(["--generate"] if generate else [])]
    process = subprocess.Popen(command, env=environment, cwd=checkout, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        served = json.loads(process.stdout.readline())
        assert Path(served["package"]).is_relative_to(checkout), served
        yield served["address"]
    finally:
        process.terminate()
        process.wait()


def serve(generate: bool) -> None:
    import socket

    import torch
    import uvicorn

    import attendo
    from attendo.model.config import ModelConfig
    from attendo.model.transformer import Transformer
    from attendo.model_folder import StoredModel
    from attendo.serve.app import create_app
    from attendo.serve.scheduling.registry import ModelSpec
    from attendo.serve.settings import ServeSettings
    from attendo.text import Words
    from attendo.text_model import TextModel

    tokenizer = Words.build([" ".join(WORDS)])
    config = ModelConfig(**SIZES, vocab_size=tokenizer.vocab_size)
    network = Transformer(config, torch.Generator().manual_seed(1))
    length = {"max_length_factor": 0.0, "max_length_extra": len(WORDS), "min_length_extra": len(WORDS)}
    model = TextModel(StoredModel(network, tokenizer, tokenizer, length if generate else {}, {}, []))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so asyncio sets TCP_NODELAY
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    print(json.dumps({"address": address, "package": attendo.__file__}), flush=True)
    app = create_app([ModelSpec("large", model)], ServeSettings(deadline_seconds=600.0))  # however busy the machine is
    uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off")).run([listener])
    sys.exit()


if __name__ == "__main__":
    main()
