"""The whole: encoder, decoder, and a projection from vectors to scores of words."""

from dataclasses import dataclass

from decoder import Decoder
from encoder import Encoder
from torch import Tensor, nn

Maps = list[Tensor]  # the attention weights of each layer


@dataclass(frozen=True)
class Sizes:
    """How large a Transformer is. The defaults are those of the paper's base model."""

    src_vocab_size: int
    tgt_vocab_size: int
    d_model: int = 512
    n_heads: int = 8
    n_layers: int = 6
    hidden_size: int = 2048
    dropout: float = 0.1
    max_len: int = 5000
    pre_norm: bool = True


class Transformer(nn.Module):
    """Source ids and shifted target ids in; logits and every attention map out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d_model, layers, hidden = sizes.d_model, sizes.n_layers, sizes.hidden_size
        heads, dropout, pre_norm = sizes.n_heads, sizes.dropout, sizes.pre_norm
        self.encoder = Encoder(sizes.src_vocab_size, d_model, layers, sizes.max_len, hidden, heads, dropout, pre_norm)
        self.decoder = Decoder(sizes.tgt_vocab_size, d_model, sizes.max_len, layers, hidden, dropout, heads, pre_norm)
        self.projection = nn.Linear(d_model, sizes.tgt_vocab_size, bias=False)
        nn.init.normal_(self.projection.weight, std=d_model**-0.5)

    def forward(self, enc_inputs: Tensor, dec_inputs: Tensor) -> tuple[Tensor, Maps, Maps, Maps]:
        """[B, S] and [B, T] give logits [B, T, V]. The loss flattens them; whoever generates needs the shape."""
        enc_outputs, enc_self_attns = self.encoder(enc_inputs)
        dec_outputs, dec_self_attns, dec_enc_attns = self.decoder(dec_inputs, enc_inputs, enc_outputs)
        return self.projection(dec_outputs), enc_self_attns, dec_self_attns, dec_enc_attns
