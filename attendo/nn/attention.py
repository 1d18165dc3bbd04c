"""Multi-head attention: softmax(Q Kᵀ / √d_k) V over several heads (Vaswani et al. 2017, section 3.2)."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from attendo.errors import UsageError
from attendo.nn import short_attention, single_query_attention
from attendo.nn.linear import linear
from attendo.nn.masks import Mask, join_masks
from attendo.nn.positions import Rotation

# A hook that receives the name of an attention module ("decoder.3.cross") and its weights, [B, H, T, S]. If it returns
# weights, these replace the computed ones. If it returns None, nothing changes.
Tap = Callable[[str, Tensor], Tensor | None]


@dataclass(frozen=True)
class SiteTap:
    """A tap of one attention module. All others run their fused kernels."""

    site: str
    tap: Tap

    def __call__(self, site: str, weights: Tensor) -> Tensor | None:
        return self.tap(site, weights)


# Up to this number of keys, compiled code is faster than PyTorch's fused kernels (measured on an H200 with 32).
MAX_EXPLICIT_LENGTH = 64
# For one query per row, up to this many numbers of keys are copied behind those of a prefix, for one fused kernel. More
# are read where they are, by two products (measured on one CPU thread with 1 to 64 rows).
_MAX_COPIED_NUMBERS = 1 << 17


@runtime_checkable
class KVCache(Protocol):
    """Cached keys and values that can be extended."""

    def extend(self, new: "KeysValues") -> "KeysValues | PendingKeysValues":
        """Return the old and new keys and values."""

    def store(self, new: "KeysValues") -> "KeysValues":
        """Keep the new ones. Return what the state after the step needs, for which no row is gathered."""

    def last_values(self) -> Float[Tensor, "R H Kv"]:
        """Return the values of each row's last position, or zeros if it has none."""


@dataclass(frozen=True)
class KeysValues:
    """One key and one value for each position and head. Several heads of queries may share a head of keys."""

    keys: Float[Tensor, "B G S K"]
    values: Float[Tensor, "B G S Kv"]

    @property
    def length(self) -> int:
        return self.keys.size(2)

    def map(self, function: Callable[[Tensor], Tensor]) -> "KeysValues":
        """Apply a function to the keys and to the values."""
        return KeysValues(function(self.keys), function(self.values))

    def extend(self, new: "KeysValues") -> "KeysValues":
        """Return a copy with the new positions appended."""
        return KeysValues(torch.cat((self.keys, new.keys), dim=2), torch.cat((self.values, new.values), dim=2))

    def store(self, new: "KeysValues") -> "KeysValues":
        return self.extend(new)

    def last_values(self) -> Float[Tensor, "R H Kv"]:
        return self.values[:, :, -1] if self.length else torch.zeros_like(self.values.sum(2))

    def select(self, rows: Int[Tensor, " R"]) -> "KeysValues":
        """Return the given rows of the batch in that order. A row may be repeated."""
        return self.map(lambda each: each.index_select(0, rows))


@dataclass(frozen=True)
class StaticKeysValues:
    """A preallocated KV cache at a fixed memory address.

    `extend` writes position `length` of every row. Position p of row r is stored in row `order[r, p]` of the storage. A
    row can thus continue another row without copying vectors.
    """

    storage: KeysValues
    length: Int[Tensor, " R"]
    order: Int[Tensor, "R C"] | None

    def extend(self, new: KeysValues) -> "KeysValues | PendingKeysValues":
        return PendingKeysValues(self, new) if single_query_attention.is_supported(new.keys) else self.append(new)

    def append(self, new: KeysValues) -> KeysValues:
        self.store(new)
        if self.order is None:
            return self.storage
        return self.storage.map(self._gather_rows)

    def store(self, new: KeysValues) -> KeysValues:
        rows = torch.arange(self.length.size(0), device=self.length.device)
        self.storage.keys[rows, :, self.length] = new.keys[:, :, 0]
        self.storage.values[rows, :, self.length] = new.values[:, :, 0]
        return self.storage

    def last_values(self) -> Float[Tensor, "R H Kv"]:
        rows, last = torch.arange(self.length.size(0), device=self.length.device), (self.length - 1).clamp(min=0)
        writers = rows if self.order is None else self.order.gather(1, last[:, None])[:, 0]
        # Unused storage may hold NaN, which a product with 0 would keep.
        return torch.where((self.length > 0)[:, None, None], self.storage.values[writers, :, last], 0.0)

    def _gather_rows(self, storage: Float[Tensor, "R H C K"]) -> Float[Tensor, "R H C K"]:
        """Gather vectors by flat index. On a CPU this is several times as fast as indexing rows and positions."""
        assert self.order is not None  # `append` checks it
        _, heads, room, width = storage.shape
        head = torch.arange(heads, device=storage.device)[:, None]
        positions = torch.arange(room, device=storage.device)
        indices = (self.order[:, None] * heads + head) * room + positions  # [R, H, C]
        return storage.view(-1, width).index_select(0, indices.flatten()).view(*indices.shape, width)


@dataclass(frozen=True)
class PendingKeysValues:
    """New keys and values not yet in the cache. The attention kernel writes them to the cache and reads all of them."""

    past: StaticKeysValues
    new: KeysValues

    def materialise(self) -> KeysValues:
        return self.past.append(self.new)

    def attend(
        self,
        queries: Float[Tensor, "R H 1 K"],
        bias: Float[Tensor, "#R H 1 C"] | None = None,
        scale: float | None = None,
    ) -> Float[Tensor, "R H 1 Kv"]:
        (storage, new), past = (self.past.storage, self.new), self.past
        return single_query_attention.append_and_attend(
            queries, (storage.keys, storage.values), (new.keys, new.values), past.length, past.order, bias, scale
        )


@dataclass(frozen=True)
class PrefixedKeysValues:
    """Keys and values of a prefix, such as the source, followed by those of the row itself.

    Queries attend to both with one softmax. The rows of a sentence share its prefix, which is never copied for them.
    """

    prefix: KeysValues
    prefix_mask: Mask
    own: KeysValues | PendingKeysValues


class MultiHeadAttention(nn.Module):
    """Parallel attention heads, each with a projection of width d_model / num_heads.

    One matrix projects queries, keys and values. Self-attention computes all three in one product. Cross-attention uses
    the first part for the queries. It applies the rest to the memory once per sentence. With fewer heads of keys and
    values, consecutive heads of queries share one: grouped-query attention (Ainslie et al. 2023).
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        site: str = "attention",
        d_key: int | None = None,
        d_value: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if d_model % num_heads and (d_key is None or d_value is None):
            raise UsageError("d_model_not_divisible", d_model=d_model, num_heads=num_heads)
        self.num_heads = self.num_kv_heads = num_heads
        self.d_key = d_key or d_model // num_heads
        self.d_value = d_value or d_model // num_heads
        self.dropout = dropout
        self.site = site
        self.scale: float | None = None  # of the scores; None: 1 / √d_key
        self.query_norm: nn.Module | None = None  # of each head (Henry et al. 2020)
        self.key_norm: nn.Module | None = None
        self.project = nn.Linear(d_model, sum(self.projected_widths), bias=bias)
        self.output = nn.Linear(num_heads * self.d_value, d_model, bias=bias)

    @property
    def projected_widths(self) -> tuple[int, int, int]:
        """The widths of all queries, keys and values of a token: the parts of `project`."""
        return self.num_heads * self.d_key, self.num_kv_heads * self.d_key, self.num_kv_heads * self.d_value

    def share_heads(self, num_kv_heads: int) -> None:
        """Use this number of heads of keys and values."""
        self.num_kv_heads = num_kv_heads
        matrix = self.project
        self.project = nn.Linear(matrix.in_features, sum(self.projected_widths), bias=matrix.bias is not None)

    def add_norms(self, make_norm: Callable[[int], nn.Module]) -> None:
        """Normalise queries and keys. `make_norm` makes a norm of this width."""
        self.query_norm, self.key_norm = make_norm(self.d_key), make_norm(self.d_key)

    def queries_keys_values(
        self, x: Float[Tensor, "B T D"], rotation: Rotation | None = None
    ) -> tuple[Float[Tensor, "B H T K"], KeysValues]:
        widths = self.projected_widths
        projected = linear(x, self.project.weight, self.project.bias)
        if rotation is None:
            queries, keys, values = projected.split(widths, dim=-1)
            queries, keys = self._split_queries(queries), self._split_keys(keys)
        else:  # rotate queries and keys together, as heads of one tensor
            both, values = projected.split((widths[0] + widths[1], widths[2]), dim=-1)
            heads, counts = self._split_heads(both, self.d_key), (self.num_heads, self.num_kv_heads)
            if self.query_norm is not None and self.key_norm is not None:
                queries, keys = heads.split(counts, dim=1)
                heads = torch.cat((self.query_norm(queries), self.key_norm(keys)), dim=1)
            queries, keys = rotation.rotate(heads).split(counts, dim=1)
        return queries, KeysValues(keys, self._split_heads(values, self.d_value))

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        width = self.projected_widths[0]
        bias = None if self.project.bias is None else self.project.bias[:width]
        return self._split_queries(linear(x, self.project.weight[:width], bias))

    def keys_values(self, x: Float[Tensor, "B S D"]) -> KeysValues:
        width, *widths = self.projected_widths
        bias = None if self.project.bias is None else self.project.bias[width:]
        keys, values = F.linear(x, self.project.weight[width:], bias).split(widths, dim=-1)
        return KeysValues(self._split_keys(keys), self._split_heads(values, self.d_value))

    def forward(
        self,
        queries: Float[Tensor, "B H T K"],
        kv: KeysValues | PendingKeysValues | PrefixedKeysValues,
        mask: Mask,
        tap: Tap | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend and project the result. If `kv` has fewer rows, consecutive query rows share one of its rows.

        `mask` covers the row's own keys, not a prefix.
        """
        if isinstance(tap, SiteTap) and tap.site != self.site:
            tap = None
        if isinstance(kv, PrefixedKeysValues):
            mixed = self._attend_with_prefix(queries, kv, mask, tap)
        elif tap is None and self.num_kv_heads == self.num_heads and single_query_attention.is_supported(queries):
            mixed = self._attend_one_query(queries, kv, mask)
        else:
            mixed = self._attend_many_queries(
                queries, kv.materialise() if isinstance(kv, PendingKeysValues) else kv, mask, tap
            )
        joined = mixed.transpose(1, 2).flatten(2)  # [B, H, T, Kv] -> [B, T, H * Kv]
        return linear(joined, self.output.weight, self.output.bias)

    def _attend_one_query(
        self, queries: Float[Tensor, "R H 1 K"], kv: KeysValues | PendingKeysValues, mask: Mask
    ) -> Float[Tensor, "R H 1 Kv"]:
        if isinstance(kv, PendingKeysValues):  # already limited to visible positions
            return kv.attend(queries, mask.bias, self.scale)
        visible = mask.matrix(1, kv.length, queries.device)
        return single_query_attention.attend(queries, kv.keys, kv.values, visible, mask.bias, self.scale)

    def _attend_many_queries(
        self, queries: Float[Tensor, "R H T K"], kv: KeysValues, mask: Mask, tap: Tap | None
    ) -> Float[Tensor, "R H T Kv"]:
        dropout = self.dropout if self.training else 0.0
        width = queries.size(0) // kv.keys.size(0)
        queries = _fold_beams(queries, width)
        if tap is None:
            return _unfold_beams(fused_attention(queries, kv, mask, dropout, self.scale), width)
        weights = _unfold_beams(attention_weights(queries, kv, mask, self.scale), width)
        weights = _check_tapped_weights(weights, tap(self.site, weights), self.site)
        return _unfold_beams(weighted_values(_fold_beams(weights, width), kv, dropout), width)

    def _attend_with_prefix(
        self, queries: Float[Tensor, "R H T K"], kv: PrefixedKeysValues, mask: Mask, tap: Tap | None
    ) -> Float[Tensor, "R H T Kv"]:
        dropout = self.dropout if self.training else 0.0
        own = kv.own.materialise() if isinstance(kv.own, PendingKeysValues) else kv.own
        is_copied = queries.size(2) > 1 or kv.prefix.keys.numel() + own.keys.numel() <= _MAX_COPIED_NUMBERS
        if tap is None and is_copied and kv.prefix.keys.size(0) == own.keys.size(0):
            width, lengths = queries.size(0) // own.keys.size(0), (kv.prefix.length, own.length)
            folded = _fold_beams(queries, width)
            joined = join_masks((kv.prefix_mask, mask), folded.size(2), lengths, queries.device)
            return _unfold_beams(fused_attention(folded, kv.prefix.extend(own), joined, dropout, self.scale), width)
        parts = ((kv.prefix, kv.prefix_mask), (own, mask))
        weights = joint_attention_weights(queries, parts, self.scale)
        if tap is not None:
            weights = _check_tapped_weights(weights, tap(self.site, weights), self.site)
        return joint_weighted_values(F.dropout(weights, dropout) if dropout else weights, parts)

    def _split_queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        heads = self._split_heads(x, self.d_key)
        return heads if self.query_norm is None else self.query_norm(heads)

    def _split_keys(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B G S K"]:
        heads = self._split_heads(x, self.d_key)
        return heads if self.key_norm is None else self.key_norm(heads)

    def _split_heads(self, x: Float[Tensor, "B T D"], width: int) -> Float[Tensor, "B H T K"]:
        return x.unflatten(-1, (-1, width)).transpose(1, 2)


def _fold_beams(x: Float[Tensor, "R H T K"], width: int) -> Float[Tensor, "B H Q K"]:
    """Merge the queries of `width` rows into one row."""
    return x if width == 1 else x.unflatten(0, (-1, width)).transpose(1, 2).flatten(2, 3)


def _unfold_beams(x: Float[Tensor, "B H Q K"], width: int) -> Float[Tensor, "R H T K"]:
    return x if width == 1 else x.unflatten(2, (width, -1)).transpose(1, 2).flatten(0, 1)


def _check_tapped_weights(
    weights: Float[Tensor, "R H T S"], returned: Tensor | None, site: str
) -> Float[Tensor, "R H T S"]:
    """Return the weights from the tap, or the original ones if it returned None."""
    if returned is None:
        return weights
    if returned.shape != weights.shape:
        raise UsageError(
            "tap_weights_shape_mismatch", found=list(returned.shape), site=site, expected=list(weights.shape)
        )
    return returned


def fused_attention(
    queries: Float[Tensor, "B H T K"], kv: KeysValues, mask: Mask, dropout: float = 0.0, scale: float | None = None
) -> Float[Tensor, "B H T Kv"]:
    """Attend with the fastest available kernel. A query without visible keys gets zeros."""
    if queries.is_cuda and torch.compiler.is_compiling() and kv.length <= MAX_EXPLICIT_LENGTH:
        return explicit_attention(queries, kv, mask, dropout, scale)[0]
    if mask.bias is not None:
        return _attend_with_bias(queries, kv, mask, mask.bias, dropout, scale)
    if torch.is_grad_enabled() and short_attention.is_supported(queries, kv.keys, kv.values):
        return short_attention.attend(queries, kv.keys, kv.values, mask.visible, mask.causal, dropout, scale)
    mixed = F.scaled_dot_product_attention(
        queries,
        kv.keys,
        kv.values,
        attn_mask=mask.visible,
        dropout_p=dropout,
        is_causal=mask.causal,
        scale=scale,
        enable_gqa=queries.size(1) != kv.keys.size(1),
    )
    # For such a query, CUDA's half-precision kernels return the mean of the values (seen with torch 2.11). The CPU
    # kernels return zeros.
    return mixed if mask.visible is None or not mixed.is_cuda else zero_fully_masked(mixed, mask.visible)


def _attend_with_bias(
    queries: Float[Tensor, "B H T K"],
    kv: KeysValues,
    mask: Mask,
    bias: Float[Tensor, "#B H #T S"],
    dropout: float,
    scale: float | None,
) -> Float[Tensor, "B H T Kv"]:
    """Attend with scores that have a bias. The bias also hides keys. The flash kernel does not support it."""
    mixed = F.scaled_dot_product_attention(
        queries,
        kv.keys,
        kv.values,
        attn_mask=bias.to(queries.dtype),
        dropout_p=dropout,
        scale=scale,
        enable_gqa=queries.size(1) != kv.keys.size(1),
    )
    # The kernels return the mean of the values for a query without visible keys.
    return mixed if mask.visible is None else zero_fully_masked(mixed, mask.visible)


def without_cudnn_attention() -> AbstractContextManager[None]:
    """Disable cuDNN attention, which builds a plan for every new shape.

    With varying sentence lengths, planning takes far longer than the attention itself (seen on an H200 with torch
    2.11).
    """
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def zero_fully_masked(
    values: Float[Tensor, "B H T Kv"], visible: Bool[Tensor, "#B 1 #T S"]
) -> Float[Tensor, "B H T Kv"]:
    """Set the output of queries without visible keys to zero."""
    return values.masked_fill(~visible.any(-1, keepdim=True), 0.0)


def explicit_attention(
    queries: Float[Tensor, "B H T K"], kv: KeysValues, mask: Mask, dropout: float = 0.0, scale: float | None = None
) -> tuple[Float[Tensor, "B H T Kv"], Float[Tensor, "B H T S"]]:
    """Compute attention step by step. Also return the weights before dropout, so that their rows sum to 1."""
    weights = attention_weights(queries, kv, mask, scale)
    return weighted_values(weights, kv, dropout), weights


def attention_weights(
    queries: Float[Tensor, "B H T K"], kv: KeysValues, mask: Mask, scale: float | None = None
) -> Float[Tensor, "B H T S"]:
    """Return softmax(Q Kᵀ / √d_k + bias) over the visible keys, or zeros if no key is visible."""
    # Use at least float32, because these weights are shown to users. The cast also stops the compiler from replacing
    # the formula by the fused kernel, which is slower on short sequences.
    products = grouped_product(queries, kv.keys.transpose(-2, -1))
    scores = _scale(products.to(torch.promote_types(products.dtype, torch.float32)), queries.size(-1), scale)
    if mask.bias is not None:
        scores = scores + mask.bias
    visible = mask.matrix(queries.size(-2), kv.length, queries.device)
    if visible is None:
        return scores.softmax(-1)
    # Use the lowest finite number, not -inf. In a row without visible keys, -inf would give NaN gradients.
    return scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~visible, 0.0)


def weighted_values(
    weights: Float[Tensor, "B H T S"], kv: KeysValues, dropout: float = 0.0
) -> Float[Tensor, "B H T Kv"]:
    """Return the weighted sum of the values."""
    return grouped_product(F.dropout(weights, dropout).to(kv.values.dtype), kv.values)


def grouped_product(heads: Float[Tensor, "B H T N"], shared: Float[Tensor, "B G N M"]) -> Float[Tensor, "B H T M"]:
    """Return the product of each head with its matrix. Consecutive heads share one if there are fewer matrices."""
    if heads.size(1) == shared.size(1):
        return heads @ shared
    groups = heads.unflatten(1, (shared.size(1), -1))  # [B, H, T, N] -> [B, G, H / G, T, N]
    product = groups.flatten(2, 3) @ shared  # one product for all heads of a group
    return product.unflatten(2, groups.shape[2:4]).flatten(1, 2)


AttentionParts = tuple[tuple[KeysValues, Mask], ...]  # keys and values, with their masks, in the order of their columns


def joint_attention_weights(
    queries: Float[Tensor, "R H T K"], parts: AttentionParts, scale: float | None = None
) -> Float[Tensor, "R H T S"]:
    """Return one softmax over the keys of all parts. Consecutive query rows may share a row of a part."""
    queries = _scale(queries, queries.size(-1), scale)
    scores = torch.cat([_part_scores(queries, kv, mask) for kv, mask in parts], dim=-1)
    return scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(-1)


def joint_weighted_values(weights: Float[Tensor, "R H T S"], parts: AttentionParts) -> Float[Tensor, "R H T Kv"]:
    """Return the weighted sum of the values of all parts. A query without visible keys gets zeros."""
    total: Tensor | None = None
    for (kv, mask), own in zip(parts, weights.split([kv.length for kv, _ in parts], dim=-1), strict=True):
        width = weights.size(0) // kv.values.size(0)
        folded = _fold_beams(own, width)
        visible = mask.matrix(folded.size(2), kv.length, folded.device)
        if visible is not None:
            folded = folded.masked_fill(~visible, 0.0)
        mixed = _unfold_beams(grouped_product(folded.to(kv.values.dtype), kv.values), width)
        total = mixed if total is None else total + mixed
    assert total is not None  # there is at least one part
    return total


def _part_scores(queries: Float[Tensor, "R H T K"], kv: KeysValues, mask: Mask) -> Float[Tensor, "R H T S"]:
    """Return Q Kᵀ plus the bias, with the lowest finite number for hidden keys."""
    width = queries.size(0) // kv.keys.size(0)
    folded = _fold_beams(queries, width)
    scores = grouped_product(folded, kv.keys.transpose(-2, -1))
    if mask.bias is not None:
        scores = scores + mask.bias
    visible = mask.matrix(folded.size(2), kv.length, folded.device)
    if visible is not None:
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return _unfold_beams(scores, width)


def _scale(x: Tensor, width: int, scale: float | None) -> Tensor:
    """Multiply by the scale of the scores: 1 / √d_k if there is no other."""
    return x / math.sqrt(width) if scale is None else x * scale
