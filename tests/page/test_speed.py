"""P2: times of drawing and hovering, measured in the browser and printed. No test fails because of a time."""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from page_server import Visit, real_app, serving, wait_until
from stub_server import Stub, half

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.serve.app import create_app
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text import Words
from attendo.text_model import TextModel

HOVER = """async (selector) => {
  const map = document.querySelector(selector), box = map.canvas.getBoundingClientRect(), times = [];
  for (let n = 0; n < 60; n++) {
    const at = { clientX: box.left + map.layout.left + 2 + n * 3, clientY: box.top + map.layout.top + 2 + n * 2 };
    const begin = performance.now();
    map.box.dispatchEvent(new PointerEvent("pointermove", at));
    map.box.getBoundingClientRect();
    times.push(performance.now() - begin);
    await new Promise(requestAnimationFrame);
  }
  return times.sort((a, b) => a - b)[30];
}"""
# The longest time for which typed text would wait: the gaps between two turns of the page's event loop.
TICKS = """
window.gaps = [];
let before = performance.now();
setInterval(() => { const now = performance.now(); window.gaps.push(now - before); before = now; }, 5);
"""
WATCH = "new PerformanceObserver((list) => (window.long ??= []).push(...list.getEntries().map((e) => e.duration)))"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "heads", "tokens"),
    [
        (6, 8, 64),
        pytest.param(6, 8, 256, marks=pytest.mark.slow),
        pytest.param(1, 8, 512, marks=pytest.mark.slow),
    ],
)
def test_drawing_and_hovering_are_measured(
    fresh_page: Any, layers: int, heads: int, tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_page.add_init_script(f"{WATCH}.observe({{ entryTypes: ['longtask'] }});")
    with serving(Stub(layers, heads, tokens).app) as server:
        visit = Visit(fresh_page, server.address)
        visit.open("heads")
        fresh_page.wait_for_function("() => performance.getEntriesByName('attendo grid').length")
        fresh_page.evaluate("document.querySelector('map-grid').repaint()")
        fresh_page.wait_for_function("() => performance.getEntriesByName('attendo grid').length > 1")
        busy = fresh_page.evaluate("performance.getEntriesByName('attendo grid').at(-1).detail.busy")
        grid = fresh_page.evaluate(HOVER, "map-grid")
        visit.open("alignment")
        hover = fresh_page.evaluate(HOVER, "heat-map")
        paint = fresh_page.evaluate("performance.getEntriesByName('attendo map').at(-1).duration")
        longest = fresh_page.evaluate("Math.max(0, ...(window.long ?? []))")
        first = fresh_page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
    times = {
        f"{layers * heads} maps": busy,
        "hover on the grid": grid,
        "hover on a map": hover,
        "one map": paint,
        "first paint": first,
    }
    with capsys.disabled():
        summary = ", ".join(f"{name} {time:.1f} ms" for name, time in times.items() if time is not None)
        print(f"\n{layers} x {heads} maps of {tokens} x {tokens}: {summary}, longest task {longest:.0f} ms")
    assert all(time is None or math.isfinite(time) for time in times.values())
    assert wait_until(lambda: fresh_page.locator(".mark.cell:not([hidden])").count() >= 1)


# The shortest of several: what the page needs when other processes do not take the processor.
FOLLOW = """async () => {
  const figure = document.querySelector("network-figure"), times = [];
  for (let n = 0; n < 40; n++) {
    const begin = performance.now();
    figure.tellFollowed({ stack: "decoder", lane: n });
    figure.getBoundingClientRect();
    times.push(performance.now() - begin);
    await new Promise(requestAnimationFrame);
  }
  return Math.min(...times);
}"""
REDRAW = """async () => {
  const figure = document.querySelector("network-figure"), times = [];
  for (let n = 0; n < 5; n++) {
    const begin = performance.now();
    figure.render();
    figure.getBoundingClientRect();
    times.push(performance.now() - begin);
    await new Promise(requestAnimationFrame);
  }
  return Math.min(...times);
}"""


@pytest.mark.slow
def test_whole_model_of_24_layers_and_128_tokens_is_measured(
    fresh_page: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """12 + 12 layers with 16 heads, 128 tokens on each side: folded and unfolded."""
    fresh_page.add_init_script(f"{WATCH}.observe({{ entryTypes: ['longtask'] }});")
    words = [f"w{number}" for number in range(127)]
    tokenizer = Words.build([" ".join(words)])
    sizes = {"d_model": 256, "d_ff": 1024, "num_heads": 16, "num_encoder_layers": 12, "num_decoder_layers": 12}
    network = Transformer(ModelConfig(**sizes, vocab_size=tokenizer.vocab_size), torch.Generator().manual_seed(1))
    model = TextModel(StoredModel(network, tokenizer, tokenizer, {}, {}, []))
    with serving(create_app([ModelSpec("large", model)], ServeSettings(deadline_seconds=600))) as server:
        visit = Visit(fresh_page, server.address)
        state = {"text": " ".join(words), "target": " ".join(reversed(words))}
        begin = time.perf_counter()
        view = visit.open("home", **state)
        view.locator(".distribution li").first.wait_for()
        opened = 1000 * (time.perf_counter() - begin)
        answer = len(json.dumps(fresh_page.evaluate("document.querySelector('view-home').data.answer")))
        folded, hover = fresh_page.evaluate(REDRAW), fresh_page.evaluate(FOLLOW)
        view = visit.open("home", **state, unfolded="all", all_heads="true")
        unfolded, hover_unfolded = fresh_page.evaluate(REDRAW), fresh_page.evaluate(FOLLOW)
        longest = fresh_page.evaluate("Math.max(0, ...(window.long ?? []))")
    with capsys.disabled():
        print(
            f"\n12 + 12 layers, 16 heads, 128 tokens: opened {opened:.0f} ms, answer {answer / 1e6:.2f} MB, redraw "
            f"{folded:.0f} ms, hover {hover:.1f} ms; unfolded: redraw {unfolded:.0f} ms, hover {hover_unfolded:.1f} ms;"
            f" longest task {longest:.0f} ms"
        )
    assert all(math.isfinite(each) for each in (folded, hover, unfolded, hover_unfolded))


@pytest.fixture(params=[64, pytest.param(256, marks=pytest.mark.slow)])
def max_tokens(request: pytest.FixtureRequest) -> int:
    """The most source tokens that the server inspects. The default is 256."""
    return int(request.param)


@pytest.fixture
def limited_address(tmp_path: Path, max_tokens: int) -> Iterator[str]:
    with serving(real_app(tmp_path, max_inspected_tokens=max_tokens)) as server:
        yield server.address


@pytest.mark.slow
def test_long_source_offers_a_choice_and_the_page_stays_responsive(
    fresh_page: Any, limited_address: str, max_tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_page.add_init_script(f"{WATCH}.observe({{ entryTypes: ['longtask'] }});{TICKS}")
    visit = Visit(fresh_page, limited_address)
    found, gaps = visit.open("alignment"), []
    for text in (" ".join(["cat"] * (2 * max_tokens - 1)), None):
        fresh_page.evaluate("window.gaps.length = 0")
        if text:
            fresh_page.fill("#source", text)
            fresh_page.click("#translate")
        else:
            found.get_by_text(f"first {max_tokens - 1} tokens").click()
        found.locator("heat-map" if text is None else ".complaint").wait_for()
        fresh_page.wait_for_function("() => document.getElementById('translate') && window.gaps.length > 20")
        gaps.append(fresh_page.evaluate("Math.max(...window.gaps)"))
    longest = fresh_page.evaluate("Math.max(0, ...(window.long ?? []))")
    with capsys.disabled():
        summary = f"refused {gaps[0]:.0f} ms, its first half drawn {gaps[1]:.0f} ms, longest task {longest:.0f} ms"
        print(f"\na source of {2 * max_tokens} tokens: longest time without a turn of the event loop: {summary}")
    assert len(fresh_page.input_value("#source").split()) == max_tokens - 1
    assert found.locator("heat-map").evaluate("map => map.data.columns") == max_tokens
    assert found.locator(".complaint").count() == 0


def test_float16_is_decoded_exactly(visit: Any) -> None:
    numbers = [0, 1, 0x3FF, 0x400, 0x3C00, 0x3555, 0x7BFF, 0xBC00]
    found = visit.page.evaluate(
        """async (numbers) => {
          const { Trace } = await import("/page/tensors.js");
          const maps = { cross: { shape: [1, 1, 1, numbers.length], offset: 0 } };
          return Array.from(new Trace({ maps }, Uint16Array.from(numbers)).head("cross", 0, 0));
        }""",
        numbers,
    )
    assert found == [half(bits) for bits in numbers]
