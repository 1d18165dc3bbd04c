"""Solutions of page 9."""


def layer_parameters(d_model: int, d_ff: int) -> tuple[int, int]:
    """The parameters of an encoder layer and of a decoder layer, all with biases."""
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    return attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm


def shapes(b: int, s: int, t: int, h: int, d_model: int, v: int) -> dict[str, tuple[int, ...]]:
    """The shapes of "memory", "logits", and the maps "encoder", "decoder" and "cross"."""
    maps = {"encoder": (b, h, s, s), "decoder": (b, h, t, t), "cross": (b, h, t, s)}
    return {"memory": (b, s, d_model), "logits": (b, t, v), **maps}
