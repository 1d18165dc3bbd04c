"""How much each output token depends on the source: contributions of attention, followed through all layers.

This is ALTI+ (Ferrando et al. 2022). An attention's output is a sum with one vector for each key. The contribution of
a key is how much nearer its vector brings the sum to the L1 norm of the whole. Contributions of successive layers are
multiplied, as in attention rollout. Feed-forward sub-layers are left out.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.residual import Residual
from attendo.text_model import Trace

Matrix = Float[Tensor, "T S"]


def measure_source_contribution(network: Transformer, trace: Trace) -> Float[Tensor, " T"]:
    """Return the share of each target token's prediction that comes from the source, from 0 to 1."""
    from_source, _ = follow_contributions(network, trace)
    return from_source.sum(-1)


@torch.no_grad()
def follow_contributions(network: Transformer, trace: Trace) -> tuple[Matrix, Matrix]:
    """Return the shares of the source tokens and of the tokens read before, one row for each prediction.

    A row of both together has the sum 1.
    """
    source = torch.eye(len(trace.source_pieces))
    for number in range(network.config.num_encoder_layers):
        source = _self_shares(network, trace, f"encoder.{number}.self") @ source
    size = len(trace.read_pieces)
    from_source, from_target = torch.zeros(size, source.size(0)), torch.eye(size)
    for number in range(network.config.num_decoder_layers):
        shares = _self_shares(network, trace, f"decoder.{number}.self")
        from_source, from_target = shares @ from_source, shares @ from_target
        own, of_keys = _split_output(network, trace, f"decoder.{number}.cross")
        from_source = own * from_source + of_keys @ source
        from_target = own * from_target
    return from_source, from_target


def _self_shares(network: Transformer, trace: Trace, site: str) -> Float[Tensor, "T T"]:
    own, of_keys = _split_output(network, trace, site)
    return of_keys + torch.diag(own[:, 0])


def _split_output(network: Transformer, trace: Trace, site: str) -> tuple[Float[Tensor, "T 1"], Matrix]:
    """Return the contribution of the residual and those of the keys. A row of both together has the sum 1."""
    attention, norm = _find_modules(network, site)
    weights, values, width = trace[f"{site}.weights"], trace[f"{site}.values"], trace[f"{site}.values"].size(-1)
    values = values.repeat_interleave(weights.size(0) // values.size(0), dim=0)
    matrices = attention.output.weight.float().split(width, dim=1)  # one per head
    projected = torch.stack([each @ matrix.T for each, matrix in zip(values, matrices, strict=True)])
    parts = torch.einsum("hts,hsd->tsd", weights, projected)
    summed = trace[f"{site}.residual"]
    residual = summed - trace[f"{site}.output"]
    parts = torch.cat([residual[:, None], parts], dim=1)
    whole = summed
    if network.config.norm == "post":  # the norm of this sum is linear in its parts
        parts, whole = _normalise(norm, parts, summed), trace[f"{site}.norm"]
    near = (whole.norm(p=1, dim=-1, keepdim=True) - (whole[:, None] - parts).norm(p=1, dim=-1)).clamp(min=0)
    shares = near / near.sum(-1, keepdim=True).clamp(min=1e-9)
    return shares[:, :1], shares[:, 1:]


def _normalise(norm: nn.Module, parts: Float[Tensor, "T P D"], summed: Float[Tensor, "T D"]) -> Float[Tensor, "T P D"]:
    """Apply the norm of the sum to each part, without the bias."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    gain, eps = norm.weight.float(), norm.eps or 0.0
    if isinstance(norm, nn.RMSNorm):
        return parts / (summed.square().mean(-1, keepdim=True) + eps).sqrt()[:, None] * gain
    deviation = (summed.var(-1, unbiased=False, keepdim=True) + eps).sqrt()[:, None]
    return (parts - parts.mean(-1, keepdim=True)) / deviation * gain


def _find_modules(network: Transformer, site: str) -> tuple[MultiHeadAttention, nn.Module]:
    """Return the attention of a site and the norm around it."""
    modules = dict(network.named_modules())
    (name,) = (each for each in modules if isinstance(modules[each], MultiHeadAttention) and modules[each].site == site)
    attention, residual = modules[name], modules[name.replace("_attention", "_residual")]
    assert isinstance(attention, MultiHeadAttention)
    assert isinstance(residual, Residual)
    return attention, residual.normalise
