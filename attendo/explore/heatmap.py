"""Pictures of attention: the one place to import them from, whatever they are drawn on."""

from attendo.explore.attention_map import AttentionMap
from attendo.explore.heatmap_html import html
from attendo.explore.heatmap_svg import svg
from attendo.explore.heatmap_terminal import terminal

__all__ = ["AttentionMap", "html", "svg", "terminal"]
