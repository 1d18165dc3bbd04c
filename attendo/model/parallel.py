"""Networks that predict all target tokens at once: masked (CMLM), ctc and graph (DA-Transformer).

The decoder reads a canvas: a row of positions that hold a given token or the MASK vector. Every position attends to
all others, so one pass predicts every position. Encoder, blocks and tables are those of `Transformer`.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model.config import DEFAULT_UPSAMPLE, ModelConfig
from attendo.model.decoder_state import Memory
from attendo.model.transformer import Transformer
from attendo.nn.attention import Tap
from attendo.nn.links import Links
from attendo.nn.masks import padding_mask
from attendo.nn.positions import NoPositions, OrthogonalPositions

LENGTH_CLASSES = 128  # target length minus source length, from -64 to 63
MIN_CANVAS = 16


@dataclass(frozen=True)
class Canvas:
    """The decoder's input. `ids` count only at positions that are `given`; the others hold MASK."""

    ids: Int[Tensor, "B L"]
    given: Bool[Tensor, "B L"]
    mask: Bool[Tensor, "B L"]  # False at padding

    @property
    def lengths(self) -> Int[Tensor, " B"]:
        return self.mask.sum(-1)

    def repeat(self, count: int) -> "Canvas":
        return Canvas(self.ids.repeat(count, 1), self.given.repeat(count, 1), self.mask.repeat(count, 1))


@dataclass(frozen=True)
class Prediction:
    """The output of one pass. Only the graph has links, only the masked network a length head."""

    logits: Float[Tensor, "B L V"]
    links: Float[Tensor, "B L L"] | None = None
    length_logits: Float[Tensor, "B C"] | None = None


class ParallelTransformer(Transformer):
    """A network of kind masked, ctc or graph."""

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.mask_vector = nn.Parameter(torch.empty(config.d_model))
        nn.init.normal_(self.mask_vector, std=config.d_model**-0.5, generator=generator)
        self.copy = nn.Linear(config.d_model, config.d_model) if config.canvas == "copy" else None
        self.links = Links(config.d_model, config.num_heads) if config.kind == "graph" else None
        # Sinusoidal vectors of neighbours are almost equal. Neighbouring vertices would then never learn to belong to
        # different translations: their tokens and their links would have to change together.
        self.vertex_positions = OrthogonalPositions() if config.kind == "graph" else NoPositions()
        self.length_head = nn.Linear(config.d_model, LENGTH_CLASSES) if config.kind == "masked" else None
        for part in (self.copy, self.links, self.length_head):
            for module in part.modules() if part is not None else ():
                if isinstance(module, nn.Linear):
                    nn.init.xavier_uniform_(module.weight, generator=generator)
                    nn.init.zeros_(module.bias)

    @property
    def upsample(self) -> int:
        """Canvas positions for each source token; 0 for a masked network, whose canvas has the target's length."""
        return self.config.upsample or DEFAULT_UPSAMPLE.get(self.config.kind, 0)

    @property
    def max_positions(self) -> int | None:
        """Maximum positions of the decoder, which only learned positions limit."""
        return self.config.max_length if self.config.positions == "learned" else None

    def canvas_size(self, source_width: int) -> int:
        """Return the canvas positions of ctc and graph for sources of this width."""
        return max(self.upsample * source_width, MIN_CANVAS)

    def empty_canvas(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None) -> Canvas:
        """Return the canvas of ctc and graph: `upsample` MASK positions for each source token."""
        size = self.canvas_size(source_ids.size(1))
        position = torch.arange(size, device=source_ids.device)
        lengths = count_tokens(source_ids, source_mask)
        mask = position < (self.upsample * lengths).clamp(min=MIN_CANVAS)[:, None]
        return Canvas(source_ids.new_zeros(len(source_ids), size), torch.zeros_like(mask), mask)

    def forward(  # type: ignore[override]
        self,
        source_ids: Int[Tensor, "B S"],
        canvas: Canvas,
        source_mask: Bool[Tensor, "B S"] | None = None,
        tap: Tap | None = None,
    ) -> Prediction:
        return self.predict(self.encode(source_ids, source_mask, tap), canvas, tap)

    def step(self, *_: Any, **__: Any) -> NoReturn:
        """Raise, because the network has no next token."""
        raise UsageError("parallel_network_has_no_steps", kind=self.config.kind)

    def predict(self, memory: Memory, canvas: Canvas, tap: Tap | None = None) -> Prediction:
        """Return the predictions at every position of the canvas."""
        embedding = self.target
        x = torch.where(canvas.given[..., None], embedding.tokens(canvas.ids), self.mask_vector) * embedding.scale
        if self.copy is not None:
            copied = self.copy(memory.states)
            last = count_tokens(copied[..., 0], memory.mask)[:, None] - 1  # of each source: short ones end earlier
            source = torch.minimum(torch.arange(x.size(1), device=x.device) // self.upsample, last)
            x = x + copied.gather(1, source[..., None].expand(-1, -1, copied.size(2)))
        x = self.vertex_positions.add(embedding.positions.add(x, 0), 0)
        x = embedding.dropout(x if embedding.norm is None else embedding.norm(x))
        states, _ = self._decode(x, self.start(memory), padding_mask(canvas.mask), tap)
        links = None
        if self.links is not None:
            links = self.links(states, canvas.lengths)
        lengths = None if self.length_head is None else self.predict_lengths(memory)
        return Prediction(self.compute_logits(states), links, lengths)

    def predict_lengths(self, memory: Memory) -> Float[Tensor, "B C"]:
        """Return the logits of the difference between target and source length, of a masked network."""
        assert self.length_head is not None
        states, mask = memory.states, memory.mask
        if mask is None:
            return self.length_head(states.mean(1))
        return self.length_head((states * mask[..., None]).sum(1) / mask.sum(-1, keepdim=True))


def count_tokens(ids: Shaped[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None) -> Int[Tensor, " B"]:
    """Return the number of tokens in each row, EOS included."""
    return torch.full((len(ids),), ids.size(1), device=ids.device) if mask is None else mask.sum(-1)
