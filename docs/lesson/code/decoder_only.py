"""A decoder-only model: the layers of the encoder, with a mask that hides the future."""

import torch
from embedding import TokenEmbedding
from encoder import EncoderLayer
from loss import EOS
from masks import future_mask
from torch import Tensor, nn
from transformer import Sizes

IGNORED = -100  # a label that the loss leaves out, as in torch


class DecoderOnly(nn.Module):
    """ids [B, L] -> logits [B, L, V]: what may follow each token."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d_model = sizes.d_model
        self.embedding = TokenEmbedding(sizes.tgt_vocab_size, d_model, sizes.max_len, sizes.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, sizes.n_heads, sizes.hidden_size, sizes.dropout) for _ in range(sizes.n_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.projection = nn.Linear(d_model, sizes.tgt_vocab_size, bias=False)
        nn.init.normal_(self.projection.weight, std=d_model**-0.5)

    def forward(self, ids: Tensor, prefix: int = 0) -> Tensor:
        hidden = prefix_mask(ids.size(1), prefix).expand(len(ids), -1, -1)
        x = self.embedding(ids)
        for layer in self.layers:
            x, _ = layer(x, hidden)
        return self.projection(self.norm(x))


def prefix_mask(length: int, prefix: int) -> Tensor:
    """[L, L]: the causal mask, except that the first `prefix` positions see each other. 0 is a causal model."""
    hidden = future_mask(length)
    hidden[:prefix, :prefix] = False
    return hidden


def row_and_labels(prompt: list[int], answer: list[int]) -> tuple[list[int], list[int]]:
    """One row of prompt and answer, shifted. Labels inside the prompt are not counted."""
    row = prompt + answer
    return row[:-1], [IGNORED] * (len(prompt) - 1) + answer


@torch.no_grad()
def complete(model: DecoderOnly, prompt: list[int], max_new: int) -> list[int]:
    """Greedy tokens after the prompt, up to EOS."""
    row = list(prompt)
    for _ in range(max_new):
        token = int(model(torch.tensor([row]))[0, -1].argmax())
        if token == EOS:
            break
        row.append(token)
    return row[len(prompt) :]
