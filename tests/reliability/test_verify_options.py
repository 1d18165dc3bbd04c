"""Networks of every option answer the same on every path, and the script that tries all of them finds a mistake."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import pytest

from attendo.model.config import ModelConfig
from attendo.runs.verify import PathComparison

Options = dict[str, Any]

# Together every option; the script tries each alone, which takes a minute.
TOGETHER: tuple[Options, ...] = (
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


def test_no_option_and_no_choice_of_one_is_forgotten(script: ModuleType) -> None:
    expected = set(ModelConfig.model_fields) - VOCABULARIES
    assert len(expected) > 20
    for networks in (script.ALONE, TOGETHER):
        assert {name for options in networks for name in options} == expected
        tried = {(name, value) for options in ({}, *networks) for name, value in {**defaults(), **options}.items()}
        assert choices() - tried == set()


@pytest.mark.short(1)
@pytest.mark.parametrize("options", TOGETHER, ids=str)
def test_all_paths_of_a_random_network_agree(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: Options
) -> None:
    monkeypatch.setattr(script, "ALONE", (options,))
    code = script.main(["--combinations", "0", "--sentences", "3"])
    told = capsys.readouterr().out
    assert (code, told.splitlines()[0].split()[0]) == (0, "same"), told
    assert "1 networks, cpu, fp32" in told


def test_answers_differ_so_that_a_mistake_could_be_seen(script: ModuleType) -> None:
    for options in TOGETHER:
        results = script.random_model(options).generate(script.sentences(12), beam=4)
        assert len({result.text for result in results}) > 4


def test_a_difference_is_named_and_the_exit_code_says_so(
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
    assert second.strip() == "fast, beam 4: 2 of 3 answers, such as 'a' and 'b'"
    assert third.startswith("DIFFERENT norm=post: ")
    assert last.endswith(": 2 differ")


def test_combinations_are_networks_that_can_be_made_and_the_same_every_time(script: ModuleType) -> None:
    drawn = list(script.combinations(8))
    assert drawn == list(script.combinations(8))
    assert all(script.random_model(options).network.decoder for options in drawn)
    assert len({str(options) for options in drawn}) == 8


def choices() -> set[tuple[str, Any]]:
    """Every value of the settings that have but a few."""
    found: set[tuple[str, Any]] = set()
    for name, field in ModelConfig.model_fields.items():
        kinds = [field.annotation, *get_args(field.annotation)]
        found |= {(name, value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)}
        if bool in kinds:
            found |= {(name, True), (name, False)}
    return found


def defaults() -> Options:
    return {name: field.default for name, field in ModelConfig.model_fields.items()}
