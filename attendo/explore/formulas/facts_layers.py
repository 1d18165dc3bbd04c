"""Facts about the feed-forward network, residuals, norms and the stacks, with the numbers of a run."""

import torch

from attendo.explore.describe import describe
from attendo.explore.formulas.formula import entropies, format_shape
from attendo.model.config import PRESETS
from attendo.text_model import Trace

_PART_SYMBOLS = {
    "source": "E_x",
    "target": "E_y",
    "source and target": "E",
    "encoder layer": "Enc",
    "decoder layer": "Dec",
    "encoder final norm": "LN",
    "decoder final norm": "LN",
    "output": "W_out",
}


def ratio(trace: Trace) -> str:
    return f"{trace.config.d_ff:,} / {trace.config.d_model} = {trace.config.d_ff / trace.config.d_model:g}"


def activation(trace: Trace) -> str:
    activations = torch.cat([trace[name].flatten() for name in trace if name.endswith(".bent")])
    return f"{trace.config.activation}: {float((activations == 0).float().mean()):.0%} = 0"


def position_wise(trace: Trace) -> str:
    """The feed-forward network maps each row independently."""
    name = next(name for name in trace if name.endswith(".feed_forward.inner"))
    return f"{trace[name].size(0)} × [{trace.config.d_model}] → [{trace[name].size(1)}] → [{trace.config.d_model}]"


def residual_share(trace: Trace) -> str:
    sizes = trace.sizes()
    return f"{min(each.share for each in sizes):.0%} … {max(each.share for each in sizes):.0%}"


def norm_place(trace: Trace) -> str:
    return trace.config.norm


def norms(trace: Trace) -> str:
    config = trace.config
    around = 2 if config.norm == "sandwich" else 1
    encoder, decoder = 2 * around, (3 if config.has_cross else 2) * around
    final = (1 if config.decoder_only else 2) * config.has_final_norm
    total = encoder * config.num_encoder_layers + decoder * config.num_decoder_layers + final
    return f"{config.num_encoder_layers}·{encoder} + {config.num_decoder_layers}·{decoder} + {final} = {total}"


def constant_width(trace: Trace) -> str:
    shapes = {tuple(trace[name].shape) for name in trace if name.endswith((".residual", ".input"))}
    return ", ".join(format_shape(each) for each in sorted(shapes))


def sizes(trace: Trace) -> str:
    config, base = trace.config, PRESETS["base"]
    own_sizes = {"N": config.num_decoder_layers, "d_model": config.d_model, "h": config.num_heads, "d_ff": config.d_ff}
    paper = (base["num_decoder_layers"], base["d_model"], base["num_heads"], base["d_ff"])
    return ", ".join(
        f"{name} = {value} ({other})" for (name, value), other in zip(own_sizes.items(), paper, strict=True)
    )


def sub_layers(trace: Trace) -> str:
    config = trace.config
    decoder = 2 if config.decoder_only else 3
    return f"{config.num_encoder_layers} × 2 + {config.num_decoder_layers} × {decoder}"


def stacks(trace: Trace) -> str:
    if trace.config.continues_text:
        return f"tril [{len(trace.read_pieces)}, {len(trace.read_pieces)}]"
    rows, columns = len(trace.source_pieces), len(trace.target_pieces)
    return f"[{rows}, {rows}] ↔ tril [{columns}, {columns}]"


def parameters(trace: Trace) -> str:
    network = describe(trace.config)
    terms = [f"{_PART_SYMBOLS[part.name]} {part.times} × {part.parameters:,}" for part in network.parts]
    return f"{' + '.join(terms)} = {network.parameters:,}"


def widths(trace: Trace) -> str:
    config, length = trace.config, len(trace.read_pieces)
    width, inner = f"[{length}, {config.d_model}]", f"[{length}, {config.d_ff}]"
    return f"[{length}] → {width} → {width} → {width} → {inner} → {width} → [{length}, {config.target_vocab_size}]"


def maps(trace: Trace) -> str:
    maps = {"encoder": trace.encoder_self, "decoder": trace.decoder_self, "cross": trace.cross}
    return ", ".join(f"{name} {format_shape(each.shape)}" for name, each in maps.items() if each.size(0))


def depth(trace: Trace) -> str:
    maps = trace.cross if trace.cross.size(0) else trace.decoder_self
    return " → ".join(f"{float(entropies(layer).mean()):.2f}" for layer in maps)


def layout(trace: Trace) -> str:
    return f"[1, {len(trace.read_pieces)}, {trace.config.d_model}]"
