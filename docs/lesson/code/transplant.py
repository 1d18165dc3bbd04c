"""Copies the weights of the lesson's Transformer into the library's, which then gives the same output."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformer import Sizes
from transformer import Transformer as LessonTransformer

import attendo


def transplanted(lesson: LessonTransformer, sizes: Sizes) -> attendo.Transformer:
    """Return a library model in evaluation mode with all weights of the lesson's model."""
    config = attendo.ModelConfig(
        source_vocab_size=sizes.src_vocab_size,
        target_vocab_size=sizes.tgt_vocab_size,
        d_model=sizes.d_model,
        num_heads=sizes.n_heads,
        d_ff=sizes.hidden_size,
        num_encoder_layers=sizes.n_layers,
        num_decoder_layers=sizes.n_layers,
        dropout=sizes.dropout,
        norm="pre" if sizes.pre_norm else "post",
        tie="none",
    )
    network = attendo.Transformer(config)
    network.load_state_dict(dict(_weights(lesson)))
    return network.eval()


def _weights(lesson: LessonTransformer) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight with its name in the library."""
    yield "source.tokens.weight", lesson.encoder.embedding.word_embedding.weight
    yield "target.tokens.weight", lesson.decoder.embedding.word_embedding.weight
    yield "output.weight", lesson.projection.weight
    for n, layer in enumerate(lesson.encoder.layers):
        yield from _attention(f"encoder.{n}.self_attention", layer.get_submodule("mha"))
        yield from _named(f"encoder.{n}.self_residual.normalise", layer.get_submodule("around_attention.norm"))
        yield from _thinking(f"encoder.{n}", layer)
    for n, layer in enumerate(lesson.decoder.layers):
        yield from _attention(f"decoder.{n}.self_attention", layer.get_submodule("self_mha"))
        yield from _named(f"decoder.{n}.self_residual.normalise", layer.get_submodule("around_self.norm"))
        yield from _attention(f"decoder.{n}.cross_attention", layer.get_submodule("cross_mha"))
        yield from _named(f"decoder.{n}.cross_residual.normalise", layer.get_submodule("around_cross.norm"))
        yield from _thinking(f"decoder.{n}", layer)
    yield from _named("encoder_norm", lesson.encoder.norm)
    yield from _named("decoder_norm", lesson.decoder.norm)


def _attention(name: str, attention: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The library keeps queries, keys and values in one matrix."""
    parts = [attention.get_submodule(each) for each in ("W_Q", "W_K", "W_V")]
    for kind in ("weight", "bias"):
        yield f"{name}.project.{kind}", torch.cat([part.get_parameter(kind) for part in parts])
    yield from _named(f"{name}.output", attention.get_submodule("fc"))


def _thinking(name: str, layer: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from _named(f"{name}.feed_forward.expand", layer.get_submodule("ff.fc1"))
    yield from _named(f"{name}.feed_forward.contract", layer.get_submodule("ff.fc2"))
    yield from _named(f"{name}.feed_forward_residual.normalise", layer.get_submodule("around_ff.norm"))


def _named(name: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of a module; an absent norm has none."""
    yield from ((f"{name}.{kind}", weight) for kind, weight in module.named_parameters())
