"""Classes of transformers by what differs between them: which networks each can hold, and a model of it made of one."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from attendo.errors import ModelError
from attendo.interop.rearranged import Rearranged, unchanged
from attendo.interop.transformers_weights import filled, settings_of
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer

EPSILON = 1e-5  # of every norm there; the configuration has no place for another

Orders = tuple[Rearranged, Rearranged]  # of the vocabularies of source and target


@dataclass(frozen=True)
class Kind:
    """A class of transformers. Where its norms stand before the sub-layers, there is one behind each stack."""

    name: str
    configuration: str
    called: str  # in an error
    norm: Literal["pre", "post"]
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    layouts: tuple[str, ...] = ("halves", "interleaved")  # of sines and cosines, whose order can be changed
    offset: int | None = 0  # of positions; None: the first one follows the number of the pad token
    embedding_norm: bool = False
    bias: bool = True  # on the logits
    one_vocabulary: bool = True
    remark: str = ""

    @property
    def note(self) -> str:
        return f"{self.name} loads it, and so does AutoModelForSeq2SeqLM{self.remark}"

    def obstacles(self, config: ModelConfig) -> list[str]:
        """Why it cannot hold such a network, one line a reason; nothing where it can."""
        if config.decoder_only:
            return ["it has no encoder"]
        sizes, pre, some = (config.source_vocab_size, config.target_vocab_size), self.norm == "pre", self.embedding_norm
        fits = {
            f"norm is {config.norm}, not {self.norm}": config.norm == self.norm,
            f"it has {'no' if pre else 'a'} norm behind each stack": config.has_final_norm == pre,
            f"it has {'no' if some else 'a'} norm on the embedding": config.embedding_norm == some,
            f"source and target have {sizes[0]} and {sizes[1]} tokens, not as many": sizes[0] == sizes[1]
            or not self.one_vocabulary,
            **self._positions(config),
            **_blocks(config),
        }
        return [reason for reason, fit in fits.items() if not fit]

    def reasons(self, network: Transformer, orders: Orders) -> list[str]:
        """Those of its configuration, and of what it has learnt."""
        learnt = network.output.bias
        free = self.bias or learnt is None or not bool(orders[1].laid_out(learnt).any())
        return [*self.obstacles(network.config), *([] if free else ["it has a bias on the logits"])]

    def made(self, network: Transformer, longest: int = 1024, orders: Orders | None = None) -> Any:
        """A model in evaluation mode that gives the same logits, for sequences of at most `longest` tokens.

        It starts from our bos, ends at our eos, and says neither pad nor bos, as `TextModel` does. Its ids are ours,
        unless its vocabularies have an order of their own.
        """
        orders = orders or unchanged_orders(network.config)
        if reasons := self.reasons(network, orders):
            raise ModelError("transformers_network_unsupported", model=self.called, reasons="; ".join(reasons))
        import transformers

        config = network.config
        learned = config.positions == "learned"
        settings = settings_of(config, config.max_length if learned else longest, orders[1])
        configuration = getattr(transformers, self.configuration)(**self._tables(config, orders), **settings)
        with torch.random.fork_rng(devices=[]):  # its first values are thrown away; the caller's must not move on
            model = getattr(transformers, self.name)(configuration)
        return filled(model, network, orders)

    def _tables(self, config: ModelConfig, orders: Orders) -> dict[str, Any]:
        source, target = (order.count for order in orders)
        if self.one_vocabulary:
            return {"vocab_size": target, "tie_word_embeddings": config.tie == "all"}
        shared = {"share_encoder_decoder_embeddings": config.tie == "all", "tie_word_embeddings": config.tie != "none"}
        return {"vocab_size": source, "decoder_vocab_size": target, **shared}

    def _positions(self, config: ModelConfig) -> dict[str, bool]:
        offset, layout = config.position_offset, config.position_layout
        fits = {f"positions are {config.positions}, not {self.positions}": config.positions == self.positions}
        if self.offset is None:
            size = config.target_vocab_size or 0
            fits[f"position_offset is {offset}, which must follow the number of a token"] = 1 <= offset < size
        else:
            fits[f"position_offset is {offset}, not {self.offset}"] = offset == self.offset
        if self.positions == config.positions == "sinusoidal":
            fits[f"position_layout is {layout}, not {' or '.join(self.layouts)}"] = layout in self.layouts
        return fits


def unchanged_orders(config: ModelConfig) -> Orders:
    """Ours. A network without an encoder has no table for sources."""
    assert config.target_vocab_size is not None
    return unchanged(config.source_vocab_size or 0), unchanged(config.target_vocab_size)


def _blocks(config: ModelConfig) -> dict[str, bool]:
    """What all of them ask for, and whether the network is so."""
    width, uneven = divmod(config.d_model, config.num_heads)
    return {
        f"norm_kind is {config.norm_kind}, not layer": config.norm_kind == "layer",
        f"norm_epsilon is {config.norm_epsilon}, not {EPSILON}": config.norm_epsilon == EPSILON,
        f"activation is {config.activation}, which has a gate": config.activation != "swiglu",
        f"d_key is {config.d_key}, not d_model / num_heads": config.d_key in (None, width),
        f"d_value is {config.d_value}, not d_model / num_heads": config.d_value in (None, width),
        f"d_model {config.d_model} is no multiple of num_heads {config.num_heads}": not uneven,
    }
