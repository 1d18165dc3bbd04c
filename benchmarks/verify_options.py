"""Checks that networks with every option give the same answers with every engine, batch, padding and cache.

    python benchmarks/verify_options.py [--device cuda] [--precision fp32] [--combinations 20] [--part 1/8]

The networks have random weights. First each setting of `ModelConfig` is changed alone, then many random settings at
once. `attendo verify` checks each network with random sentences. The script prints one line a network and exits with
code 1 if a network differs. A network without encoder layers continues the sentences.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from attendo import ModelConfig
from attendo.errors import UsageError
from attendo.model.factory import make_network
from attendo.model_folder import StoredModel
from attendo.nn.attention import MultiHeadAttention
from attendo.runs.verify import PathComparison, verify
from attendo.text import EOS, Words
from attendo.text_model import TextModel

Options = dict[str, Any]

SIZES: Options = {
    "d_model": 32,
    "num_heads": 4,
    "d_ff": 48,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "dropout": 0.0,
}
ALONE: tuple[Options, ...] = (
    {},
    {"d_model": 30, "num_heads": 5},
    {"d_model": 34, "num_heads": 4, "d_key": 8, "d_value": 8},
    {"num_heads": 1},
    {"d_ff": 7},
    {"num_encoder_layers": 3, "num_decoder_layers": 1},
    {"num_encoder_layers": 1, "num_decoder_layers": 3},
    {"num_encoder_layers": 0},
    {"num_encoder_layers": 0, "prefix_lm": True},
    {"num_kv_heads": 1},
    {"num_kv_heads": 2},
    {"qk_norm": True},
    {"merged_attention": True},
    {"sliding_window": 3, "sliding_window_pattern": 2},
    {"norm": "sandwich"},
    {"positions": "rotary", "rope_theta": 1e6, "rope_scaling": 2.0},
    {"positions": "rotary", "rope_local_theta": 100.0, "sliding_window": 4, "sliding_window_pattern": 2},
    {"logit_softcap": 8.0},
    {"d_key": 6},
    {"d_value": 3},
    {"dropout": 0.3},
    {"attention_dropout": 0.3},
    {"activation_dropout": 0.3},
    {"norm": "post"},
    {"norm": "post", "final_norm": True},
    {"final_norm": False},
    {"norm_kind": "rms"},
    {"norm_epsilon": 0.01},
    {"activation": "gelu"},
    {"activation": "silu"},
    {"activation": "gelu_tanh"},
    {"activation": "swiglu"},
    {"activation": "geglu"},
    {"activation": "geglu_tanh"},
    {"activation": "reglu"},
    {"linear_bias": False},
    {"attention_scale": 0.5},
    {"final_dropout": True},
    {"positions": "learned"},
    {"positions": "learned", "max_length": 48},
    {"positions": "learned", "position_offset": 2},
    {"positions": "rotary"},
    {"positions": "relative"},
    {"positions": "relative", "relative_bias": "per_layer"},
    {"positions": "relative", "relative_buckets": 8, "relative_max_distance": 9},
    {"positions": "none"},
    {"position_layout": "halves"},
    {"position_layout": "fairseq"},
    {"position_offset": 2},
    {"tie": "none"},
    {"tie": "inputs"},
    {"tie": "all"},
    {"scale_embedding": False},
    {"embedding_norm": True},
    {"output_bias": True},
    {"output_scale": 0.5},
    {"kind": "masked"},
    {"kind": "ctc"},
    {"kind": "ctc", "canvas": "copy"},
    {"kind": "graph", "upsample": 3},
    {"autoregression": "ssru"},
)
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WORDS = [f"word{n}" for n in range(40)]
LONGEST, LONGER = 12, 8  # maximum words of a sentence; maximum further words of an answer


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    device, precision = torch.device(given.device), PRECISIONS[given.precision]
    texts, wrong = sentences(given.sentences), 0
    part, parts = map(int, given.part.split("/"))
    networks = (*ALONE, *combinations(given.combinations))[part - 1 :: parts]
    for options in networks:
        begin = time.perf_counter()
        model = random_model(options)
        model.network.to(device, precision)
        found = list(verify(model, texts))
        wrong += any(not each.equal for each in found)
        print(_line(options, found, time.perf_counter() - begin), flush=True)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    print(f"{len(networks)} networks, {where}, {given.precision}, torch {torch.__version__}: {wrong or 'none'} differ")
    return 1 if wrong else 0


def combinations(count: int, seed: int = 1) -> Iterator[Options]:
    """Yield random option sets that change half of all settings, without incompatible ones."""
    chance = random.Random(seed)
    settings = list(dict.fromkeys((name, value) for each in ALONE for name, value in each.items()))
    while count:
        options = dict(chance.sample(settings, len(settings) // 2))
        options = _drop_unusable(options)  # most of the samples would be incompatible
        try:
            ModelConfig(**{**SIZES, "vocab_size": 50, **options})
        except UsageError:
            continue
        count -= 1
        yield options


def _drop_unusable(options: Options) -> Options:
    """Leave out the settings that have no effect or conflict with others."""
    prefixes = [
        name for name, kind in (("relative_", "relative"), ("rope_", "rotary")) if options.get("positions") != kind
    ]
    recurrent, parallel = options.get("autoregression") == "ssru", "kind" in options
    if recurrent:
        prefixes += ["num_kv_heads", "qk_norm", "merged_", "sliding_"]
    if parallel or options.get("prefix_lm"):
        prefixes += ["merged_", "sliding_"]
    if options.get("num_encoder_layers") == 0:
        prefixes.append("merged_")
    kept = {name: value for name, value in options.items() if not name.startswith(tuple(prefixes))}
    if "sliding_window" not in kept:
        kept = {
            name: value for name, value in kept.items() if name not in ("sliding_window_pattern", "rope_local_theta")
        }
    return kept


def random_model(options: Options, seed: int = 1) -> TextModel:
    """Return a model with random weights whose answers differ from sentence to sentence.

    With the usual initial values all sentences have the same answer, which would hide a mistake. So biases and gains
    are random too, attention is sharper, cross-attention has more weight, and EOS is more frequent.
    """
    source, target = Words.build(WORDS), Words.build(WORDS[:30])
    has_encoder, has_source = options.get("num_encoder_layers") != 0, options.get("prefix_lm", False)
    if not has_encoder or options.get("tie") in ("inputs", "all"):
        source = target
    sizes = {"source_vocab_size": source.vocab_size} if has_encoder or has_source else {}
    sizes |= {"target_vocab_size": target.vocab_size}
    generator = torch.Generator().manual_seed(seed)
    network = make_network(ModelConfig(**{**SIZES, **sizes, **options}), generator)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
            elif parameter.dim() == 3:
                parameter *= 5  # relative positions, whose first biases are small
        for name, module in network.named_modules():
            if isinstance(module, MultiHeadAttention):
                module.project.weight[: module.num_heads * module.d_key] *= 4
                reads_source = name.endswith("cross_attention") or network.config.merged_attention
                module.output.weight *= 6 if reads_source else 1
        network.output.weight[EOS] *= 2
    return TextModel(StoredModel(network, source, target, {"max_length_extra": LONGER, "max_length_factor": 1.0}))


def sentences(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS[:30], k=chance.randint(1, LONGEST))) for _ in range(count)]


def _line(options: Options, found: Sequence[PathComparison], seconds: float) -> str:
    name = ", ".join(f"{key}={value}" for key, value in options.items()) or "defaults"
    different = [each for each in found if not each.equal]
    ties, largest = sum(each.ties for each in found), max(each.largest for each in found)
    return "".join(
        (
            f"{'DIFFERENT' if different else 'same     '} {name}: ",
            f"{len(found)} comparisons, largest difference {largest:.0e}, {ties} ties, {seconds:.1f} s",
            *(f"\n    {each.path}, {each.what}: {_describe(each)}" for each in different),
        )
    )


def _describe(each: PathComparison) -> str:
    if each.different > each.ties:
        return f"{each.different} of {each.count} answers differ, for example {each.example}"
    return f"difference {each.largest:.1e}, allowed {each.allowed:.0e}"


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--combinations", type=int, default=20, help="networks with many settings changed at once")
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--part", default="1/1", help="3/8 checks every eighth network from the third on")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
