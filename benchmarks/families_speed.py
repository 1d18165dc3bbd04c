"""Generation speed of the families that attendo imports, beside transformers and CTranslate2.

    python benchmarks/families_speed.py [--families marian,flan,madlad,nllb] [--batch 1,64] [--beam 1,4]

The networks have the sizes of published models, but random weights: the time of a step does not depend on them.
MADLAD-400 3B has 32 + 32 layers; here it has 8 + 8, and a vocabulary of 32,000. Every output has 32 tokens. Systems
take turns in one process, so only ratios are comparable. `same` is the share of tokens that equal attendo's: random
networks have near-ties, so it shows gross errors only. CTranslate2 is skipped if it cannot hold a network.
"""

import argparse
import json
from typing import Any

import torch

from attendo.bench.comparison import (
    BenchmarkPlan,
    Measurement,
    SkippedSystem,
    collect_environment,
    compare,
    make_forced_workloads,
    parse_baselines,
)
from attendo.bench.random_network import make_random_network
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.text import BOS, EOS, PAD

T5 = {
    "norm_kind": "rms",
    "norm_epsilon": 1e-6,
    "positions": "relative",
    "activation": "geglu_tanh",
    "tie": "inputs",
    "linear_bias": False,
    "attention_scale": 1.0,
    "scale_embedding": False,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "flan": T5
    | {"d_model": 768, "num_heads": 12, "d_ff": 2048, "d_key": 64, "d_value": 64, "layers": 12, "size": 32128},
    "madlad": T5
    | {"d_model": 1024, "num_heads": 16, "d_ff": 8192, "d_key": 128, "d_value": 128, "layers": 8, "size": 32000},
    "nllb": {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "layers": 12, "size": 256206}
    | {"position_layout": "halves", "tie": "all", "output_bias": True},
}


@torch.no_grad()
def make_family(name: str, layers: int | None = None, size: int | None = None) -> Transformer:
    """Return a random network of a family. As in `make_random_network`, its outputs depend on the source."""
    if name == "marian":
        return make_random_network("base", size or 32000)
    settings = dict(FAMILIES[name])
    depth, vocab_size = layers or settings.pop("layers"), size or settings.pop("size")
    settings = {key: value for key, value in settings.items() if key not in ("layers", "size")}
    depths = {"num_encoder_layers": depth, "num_decoder_layers": depth}
    config = ModelConfig(vocab_size=vocab_size, norm="pre", dropout=0.0, **depths, **settings)
    generator = torch.Generator().manual_seed(1)
    network = make_network(config, generator).eval()
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            module.project.weight[: module.num_heads * module.d_key] *= 4
    gains = network.decoder_norm.get_parameter("weight")
    gains.copy_(2.0 * torch.randint(2, gains.shape, generator=generator) - 1)
    if network.output.bias is None:  # a logit of 0 is far from the largest
        network.output.weight[[PAD, BOS, EOS]] = 0.0
    else:
        network.output.bias[[PAD, BOS, EOS]] = -1e4
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="marian,flan,madlad,nllb")
    parser.add_argument("--rivals", default="transformers,ctranslate2:fp16")
    parser.add_argument("--precision", default="bf16", choices=("fp32", "bf16"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", default="1,64")
    parser.add_argument("--beam", default="1,4")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of every source and of every output")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, help="instead of the family's, for a quick run")
    parser.add_argument("--vocabulary", type=int, help="instead of the family's, for a quick run")
    given = parser.parse_args()
    batches, beams = ([int(each) for each in text.split(",")] for text in (given.batch, given.beam))
    device, baselines = torch.device(given.device), parse_baselines(given.rivals, given.precision)
    print(json.dumps(collect_environment(device)), flush=True)
    for name in given.families.split(","):
        network = make_family(name, given.layers, given.vocabulary).to(device)
        works = make_forced_workloads(network.config, given.tokens, given.tokens, beams, batches)
        parameters = sum(each.numel() for each in network.parameters())
        plan = BenchmarkPlan(network, given.precision, baselines, works, given.rounds, device, None)
        for report in compare(plan):
            if isinstance(report, SkippedSystem):
                print(json.dumps({"family": name, "skipped": report.name, "reason": report.reason}), flush=True)
            if isinstance(report, Measurement):
                row: dict[str, Any] = {
                    "beam": report.beam,
                    "batch": report.batch,
                    "tokens_per_second": round(report.speed),
                }
                ratio = {
                    "ratio": report.ratio and round(report.ratio, 2),
                    "same": report.same and round(report.same, 3),
                }
                print(json.dumps({"family": name, "parameters": parameters, "system": report.system, **row, **ratio}))


if __name__ == "__main__":
    main()
