"""Make the pictures of the page from a model folder: `python docs/images/page_pictures.py runs/demo/model`.

Needs playwright, Pillow and Chromium, all of which `make test` sets up.
"""

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
SENTENCE = "The child who likes juice is her classmate"
BOX_MS, TOKEN_MS, END_MS = 420, 900, 3000  # how long the animation shows a box, a token and its last frame
OFF = ("decoder.0.cross.0", "decoder.1.cross.0", "decoder.1.cross.1")
TALLEST = 1100  # pixels of a still picture
STILLS = {
    "explore-alignment.png": ("alignment", {"layer": 1, "head": 0, "step": 3}),
    "explore-tree.png": ("tree", {"kind": "beam"}),
    "explore-ablation.png": ("ablation", {"lang": "zh", "heads": ",".join(f"{each}=0" for each in OFF)}),
}


@contextmanager
def serve(model: str) -> Iterator[str]:
    """Start `attendo explore` on a free port and return the address of the page."""
    command = [sys.executable, "-m", "attendo", "explore", model, "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def open_view(page: Any, address: str, view: str, **state: object) -> Any:
    """Open a view anew and return its element, once it is drawn."""
    page.goto("about:blank")
    page.goto(f"{address}#{urlencode({'view': view, 'text': SENTENCE, **state})}")
    found = page.locator(f"view-{view}")
    found.locator("h2").wait_for()
    page.wait_for_function(
        "name => !document.querySelector(`view-${name} [aria-busy=true], view-${name}[aria-busy=true]`)", arg=view
    )
    page.wait_for_timeout(1500)  # fonts and transitions
    return found


def capture(element: Any) -> Image.Image:
    return Image.open(io.BytesIO(element.screenshot())).convert("RGB")


def animate_home(page: Any, address: str) -> None:
    """Show one pass box by box, then the answer token by token."""
    view = open_view(page, address, "home")
    page.add_style_tag(content=".player { position: static !important; } * { transition: none !important; }")
    figure = view.locator("network-figure")
    frames, durations = [capture(figure)], [TOKEN_MS]
    first = page.locator("#home-before")
    while True:
        page.click("#box-after")
        if first.is_enabled():  # the pass is complete, and the second token has begun
            break
        frames.append(capture(figure))
        durations.append(BOX_MS)
    durations[-1] = TOKEN_MS
    after = page.locator("#home-after")
    while True:
        frames.append(capture(figure))
        durations.append(TOKEN_MS)
        if not after.is_enabled():
            break
        after.click()
    durations[-1] = END_MS
    size = (900, round(frames[0].height * 900 / frames[0].width))
    small = [each.crop((0, 0, *frames[0].size)).resize(size, Image.Resampling.LANCZOS) for each in frames]
    small[0].save(
        FOLDER / "home.webp", save_all=True, append_images=small[1:], duration=durations, loop=0, quality=70, method=6
    )


def capture_still(page: Any, address: str, view: str, state: dict[str, object]) -> Image.Image:
    element = open_view(page, address, view, **state)
    if view == "ablation":
        page.click("#rank")
        page.wait_for_function("() => document.querySelectorAll('.ranked li').length === 12")
        page.wait_for_timeout(1500)
    return capture(element)


def main(model: str) -> None:
    with serve(model) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 1000}, bypass_csp=True)
        page.set_default_timeout(120_000)
        animate_home(page, address)
        for name, (view, state) in STILLS.items():
            picture = capture_still(page, address, view, state)
            picture.crop((0, 0, picture.width, min(picture.height, TALLEST))).save(FOLDER / name, optimize=True)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
