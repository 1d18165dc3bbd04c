"""Networks with any option give the same output on every path, and the script that tries them finds errors."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import pytest

from attendo.model.config import ModelConfig
from attendo.runs.verify import PathComparison

Options = dict[str, Any]

# Together these cover every option. The script tries each option alone, which takes 1 minute.
COMBINED: tuple[Options, ...] = (
    {
        "norm": "post",
        "final_norm": True,
        "activation": "gelu",
        "position_layout": "halves",
        "tie": "all",
        "dropout": 0.3,
    }
    | {"num_encoder_layers": 3, "num_decoder_layers": 1, "norm_epsilon": 0.01},
    {"norm_kind": "rms", "activation": "swiglu", "positions": "rotary", "tie": "none", "d_key": 6, "d_value": 3}
    | {"num_encoder_layers": 1, "attention_dropout": 0.3},
    {"positions": "learned", "max_length": 48, "position_offset": 2, "activation": "silu", "final_norm": False}
    | {"embedding_norm": True, "output_bias": True, "d_model": 30, "num_heads": 5, "activation_dropout": 0.3},
    {"positions": "none", "scale_embedding": False, "d_ff": 7, "num_heads": 1},
    {"position_layout": "fairseq", "position_offset": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
    {"num_encoder_layers": 0, "positions": "rotary"},
    {"prefix_lm": True, "num_encoder_layers": 0, "tie": "all"},
    {"positions": "relative", "relative_bias": "per_layer", "relative_buckets": 8, "relative_max_distance": 6}
    | {"activation": "geglu_tanh", "tie": "inputs", "linear_bias": False, "norm_kind": "rms", "final_dropout": True}
    | {"attention_scale": 0.5},
    {"positions": "relative", "num_encoder_layers": 0, "activation": "reglu", "output_scale": 0.5},
    {"positions": "relative", "num_encoder_layers": 0, "prefix_lm": True, "activation": "gelu_tanh", "tie": "all"},
    {"norm": "sandwich", "positions": "rotary", "rope_theta": 1e6, "rope_scaling": 2.0, "rope_local_theta": 100.0}
    | {"sliding_window": 3, "sliding_window_pattern": 2, "num_kv_heads": 2, "qk_norm": True, "logit_softcap": 8.0}
    | {"merged_attention": True},
    {"activation": "geglu", "autoregression": "ssru"},
    {"kind": "masked", "positions": "learned", "tie": "all"},
    {"kind": "ctc", "canvas": "copy"},
    {"kind": "graph", "upsample": 3, "norm_kind": "rms"},
)
VOCABULARIES = {"vocab_size", "source_vocab_size", "target_vocab_size"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "verify_options.py"
    spec = importlib.util.spec_from_file_location("verify_options", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.LONGEST, module.LONGER = 4, 4  # quick
    return module


def test_every_option_and_choice_is_covered(script: ModuleType) -> None:
    expected = set(ModelConfig.model_fields) - VOCABULARIES
    assert len(expected) > 20
    for networks in (script.ALONE, COMBINED):
        assert {name for options in networks for name in options} == expected
        tried = {(name, value) for options in ({}, *networks) for name, value in {**defaults(), **options}.items()}
        assert choices() - tried == set()


@pytest.mark.short(1)
@pytest.mark.parametrize("options", COMBINED, ids=str)
def test_all_paths_of_a_random_network_agree(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: Options
) -> None:
    monkeypatch.setattr(script, "ALONE", (options,))
    code = script.main(["--combinations", "0", "--sentences", "3"])
    output = capsys.readouterr().out
    assert (code, output.splitlines()[0].split()[0]) == (0, "same"), output
    assert "1 networks, cpu, fp32" in output


def test_outputs_of_random_networks_differ(script: ModuleType) -> None:
    for options in COMBINED:
        search = {} if options.get("kind") in ("masked", "ctc") else {"beam": 4}
        results = script.random_model(options).generate(script.sentences(12), **search)
        assert len({result.text for result in results}) > 4


def test_differences_are_printed_and_set_the_exit_code(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        PathComparison("cached", "greedy", 3),
        PathComparison("fast", "beam 4", 3, different=2, ties=1, example="'a' and 'b'"),
    ]
    monkeypatch.setattr(script, "verify", lambda model, texts: iter(found))
    monkeypatch.setattr(script, "ALONE", ({}, {"norm": "post"}))
    assert script.main(["--combinations", "0", "--sentences", "3"]) == 1
    first, second, third, _, last = capsys.readouterr().out.splitlines()
    assert first.startswith("DIFFERENT defaults: 2 comparisons, ")
    assert second.strip() == "fast, beam 4: 2 of 3 answers differ, for example 'a' and 'b'"
    assert third.startswith("DIFFERENT norm=post: ")
    assert last.endswith(": 2 differ")


def test_combinations_are_valid_and_deterministic(script: ModuleType) -> None:
    drawn = list(script.combinations(8))
    assert drawn == list(script.combinations(8))
    assert all(script.random_model(options).network.decoder for options in drawn)
    assert len({str(options) for options in drawn}) == 8


def choices() -> set[tuple[str, Any]]:
    """Every value of settings that are literals or booleans."""
    found: set[tuple[str, Any]] = set()
    for name, field in ModelConfig.model_fields.items():
        kinds = [field.annotation, *get_args(field.annotation)]
        found |= {(name, value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)}
        if bool in kinds:
            found |= {(name, True), (name, False)}
    return found


def defaults() -> Options:
    return {name: field.default for name, field in ModelConfig.model_fields.items()}
