"""Selection of the attention maps to draw: attention type, layers and heads."""

from collections.abc import Sequence
from dataclasses import dataclass

from attendo.errors import UsageError
from attendo.explore.attention_map import AttentionMap
from attendo.explore.head_stats import AttentionType
from attendo.explore.heatmap_figure import MapAxisLabels
from attendo.explore.i18n import localise, read_strings
from attendo.messages import Language
from attendo.text_model import TextModel
from attendo.text_model.alignment import AlignmentHead
from attendo.text_model.trace import Trace

MEAN = "mean"
MAX_COLUMNS = 8  # maps per row

_STACKS = {"cross": ("decoder", "cross"), "encoder": ("encoder", "self"), "decoder": ("decoder", "self")}
_AXES = {"cross": ("predicted", "source"), "encoder": ("source", "looked_at"), "decoder": ("predicted", "read")}


def picture_strings(language: Language) -> list[str]:
    """Return all strings that a picture may contain besides tokens."""
    return [each[language] for table in ("maps", "axes") for each in read_strings()[table].values()]


@dataclass(frozen=True)
class MapSelection:
    """The maps of `heads` in each of `layers`, both counted from 0. Head None is the mean of a layer's heads."""

    attention_type: AttentionType
    layers: tuple[int, ...]
    heads: tuple[int | None, ...]

    @staticmethod
    def from_options(
        model: TextModel, attention_type: AttentionType | None, layer: int | None, head: str | None, all_heads: bool
    ) -> "MapSelection":
        """Select maps by the command's options. Default: the stored alignment head, else the last layer's mean."""
        model.reject_merged_attention("an attention map")
        config = model.network.config
        attention_type = attention_type or ("decoder" if config.decoder_only else "cross")
        if config.decoder_only and attention_type != "decoder":
            raise UsageError("site_needs_encoder", site=attention_type)
        stack, _ = _STACKS[attention_type]
        count = config.num_encoder_layers if stack == "encoder" else config.num_decoder_layers
        if layer is not None and not 0 <= layer < count:
            raise UsageError("layer_out_of_range", layer=layer, stack=stack, count=count)
        if all_heads:
            return MapSelection(
                attention_type, tuple(range(count)) if layer is None else (layer,), tuple(range(config.num_heads))
            )
        stored = AlignmentHead.from_scores(model.scores, config) if attention_type == "cross" else None
        if stored and layer is None and head is None:
            return MapSelection(attention_type, (stored.layer,), (stored.head,))
        return MapSelection(
            attention_type, (count - 1 if layer is None else layer,), _parse_heads(head or MEAN, config.num_heads)
        )

    @property
    def columns(self) -> int:
        """Number of maps per row."""
        return min(len(self.heads), MAX_COLUMNS)

    def describe(self, language: Language = "en") -> str:
        """Return a short description of the picture."""
        titles = [self._title(layer, head, language) for layer in self.layers for head in self.heads]
        return (
            titles[0] if len(titles) == 1 else localise("maps", "several", language, len(titles), titles[0], titles[-1])
        )

    def compute_maps(
        self, model: TextModel, text: str, target: str | None, language: Language = "en"
    ) -> tuple[list[AttentionMap], MapAxisLabels]:
        only = self.layers[0] if len(self.layers) == 1 else None
        trace = model.trace(text, target, layer=only)
        maps = [self._make_map(trace, layer, head, language) for layer in self.layers for head in self.heads]
        return maps, MapAxisLabels(*_AXES[self.attention_type], language)

    def _make_map(self, trace: Trace, layer: int, head: int | None, language: Language) -> AttentionMap:
        stack, kind = _STACKS[self.attention_type]
        weights = trace[f"{stack}.{layer}.{kind}.weights"]
        one = weights.mean(dim=0) if head is None else weights[head]
        return AttentionMap(one.numpy(), *self._tokens(trace), self._title(layer, head, language))

    def _tokens(self, trace: Trace) -> tuple[Sequence[str], Sequence[str]]:
        if self.attention_type == "encoder":
            return trace.source_pieces, trace.source_pieces
        return trace.row_pieces, trace.source_pieces if self.attention_type == "cross" else trace.read_pieces

    def _title(self, layer: int, head: int | None, language: Language) -> str:
        stack, kind = _STACKS[self.attention_type]
        return localise("maps", "mean" if head is None else "head", language, f"{stack}.{layer}.{kind}", head)


def _parse_heads(text: str, count: int) -> tuple[int | None, ...]:
    if text == MEAN:
        return (None,)
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdecimal() and int(part) < count):
            raise UsageError("invalid_head_list", heads=text, mean=MEAN, last=count - 1)
    return tuple(dict.fromkeys(map(int, parts)))
