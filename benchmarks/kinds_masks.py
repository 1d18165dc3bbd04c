"""Draws who sees whom in each kind of network, for docs/three-kinds.md. Needs the `plot` extra.

    python benchmarks/kinds_masks.py docs/images/three-kinds-masks.svg

The squares are the attention weights above 0 of untrained networks, so the picture shows what the code does.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from attendo.explore.curves_figure import COLOURS
from attendo.explore.figure_style import INK, plot_style, save_figure
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.parallel import Canvas

SOURCE = ("$x_1$", "$x_2$", "$x_3$", "EOS")
TARGET = ("BOS", "$y_1$", "$y_2$", "$y_3$")
POSITIONS = ("1", "2", "3", "4")
ENCODER, CROSS, DECODER = 1, 2, 3
SITES = {ENCODER: "the encoder's self-attention", CROSS: "cross-attention", DECODER: "the decoder's self-attention"}
SMALL = {"vocab_size": 8, "d_model": 8, "num_heads": 1, "d_ff": 8, "num_decoder_layers": 1}


def main() -> None:
    panels = (
        ("encoder–decoder", TARGET, _read_attention(num_encoder_layers=1)),
        ("decoder-only (prefix LM)", TARGET, _read_attention(prefix_lm=True)),
        ("masked, ctc, graph", POSITIONS, _read_attention(num_encoder_layers=1, kind="masked")),
    )
    with plot_style(["DejaVu Sans"]):
        figure = Figure(figsize=(7.4, 3.1), layout="constrained", facecolor="white")
        for number, (title, target, seen) in enumerate(panels):
            _draw(figure.add_subplot(1, 3, number + 1), title, target, seen)
        legend = [Patch(color=COLOURS[site - 1], label=name) for site, name in SITES.items()]
        figure.legend(handles=legend, loc="outside lower center", ncols=3)
        Path(sys.argv[1]).write_bytes(save_figure(figure, "svg"))


def _read_attention(**settings: Any) -> Tensor:
    """Return the attention of source and target to each other, [8, 8]: a number of SITES, or 0 for none."""
    config = ModelConfig(**SMALL, **settings)
    network = make_network(config, torch.Generator().manual_seed(1)).eval()
    source, target = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[1, 4, 5, 6]])
    given = torch.zeros_like(target, dtype=torch.bool)
    canvas = Canvas(target, given, ~given)
    seen: list[tuple[str, Tensor]] = []
    with torch.inference_mode():
        network(source, target if config.kind == "autoregressive" else canvas, tap=lambda *each: seen.append(each))
    half = source.size(1)
    found = torch.zeros(half + target.size(1), half + target.size(1), dtype=torch.int)
    for site, weights in seen:
        of_source = site.startswith("encoder") or (config.prefix_lm and weights.size(-1) == half)
        rows = slice(half) if of_source else slice(half, None)
        to_source = of_source or site.endswith("cross")
        columns = slice(half) if to_source else slice(None) if config.prefix_lm else slice(half, None)
        number = ENCODER if site.startswith("encoder") else CROSS if site.endswith("cross") else DECODER
        found[rows, columns] = (weights[0, 0] > 0) * number
    return found


def _draw(panel: Any, title: str, target: tuple[str, ...], seen: Tensor) -> None:
    names, half = (*SOURCE, *target), len(SOURCE)
    for row, columns in enumerate(seen.tolist()):
        for column, site in enumerate(columns):
            colour = COLOURS[site - 1] if site else "#f2f2f2"
            panel.add_patch(_square(column, row, colour))
    panel.set(xlim=(0, len(names)), ylim=(len(names), 0), aspect="equal", title=title)
    panel.set_xticks([0.5 + each for each in range(len(names))], names, fontsize=8)
    panel.set_yticks([0.5 + each for each in range(len(names))], names, fontsize=8)
    panel.xaxis.tick_top()
    panel.tick_params(length=0)
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    for line in (panel.axhline, panel.axvline):
        line(half, color=INK, linewidth=0.8)


def _square(column: int, row: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column + 0.06, row + 0.06), 0.88, 0.88, color=colour, linewidth=0)


if __name__ == "__main__":
    main()
