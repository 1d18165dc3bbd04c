"""The resolved config: every setting of a run, including defaults."""

import tomllib
from typing import Any

import pytest

from attendo.data.config import DataConfig
from attendo.decode.config import SOURCE_SETTINGS, GenerationConfig
from attendo.model.config import VOCABULARIES, ModelConfig
from attendo.runs.config import RunConfig, resolve_config
from attendo.runs.resolved_config import format_resolved_config
from attendo.train.config import TrainConfig

FILES = {"source": "a", "target": "b"}
TEXT = {"preset": "tiny", "model": {"num_encoder_layers": 0}, "data": {"text": "a", "window": 32}}
FOLLOWING = ", by the other settings"


def parse_resolved(config: RunConfig, text: DataConfig | None = None) -> dict[str, Any]:
    """The settings by table, including derived ones."""
    lines = format_resolved_config(config, text or config.data).splitlines()
    return tomllib.loads("\n".join(line.removeprefix("# ").removesuffix(FOLLOWING) for line in lines))


def read_back(config: RunConfig, text: DataConfig | None = None) -> RunConfig:
    return RunConfig(**tomllib.loads(format_resolved_config(config, text or config.data)))


def test_every_setting_is_shown() -> None:
    found = parse_resolved(RunConfig(preset="small", data=FILES, generation={"beam": 4}))
    assert found["train"].keys() == TrainConfig.model_fields.keys() - {
        *("epochs", "guided_alignment", "guided_alignment_layer"),
    }
    assert found["model"].keys() == ModelConfig.model_fields.keys() - {
        *("vocab_size", "upsample", "attention_scale"),
        *("sliding_window", "logit_softcap", "rope_local_theta", "num_kv_heads"),
        *VOCABULARIES,
    }
    assert found["generation"] == GenerationConfig(beam=4).model_dump(mode="json")
    assert (found["model"]["d_key"], found["model"]["final_norm"]) == (64, True)
    assert found["model"]["attention_dropout"] == found["model"]["dropout"]


def test_the_positions_of_a_graph_are_shown() -> None:
    found = parse_resolved(RunConfig(preset="small", data=FILES, model={"kind": "graph"}))
    assert (found["model"]["kind"], found["model"]["upsample"]) == ("graph", 8)


@pytest.mark.parametrize(
    "values",
    [
        {"preset": "small", "data": FILES, "generation": {"beam": 4}},
        {"preset": "tiny", "data": {**FILES, "cut_source": 40, "tag": "<a>", "valid_source": "c", "valid_target": "d"}},
        {"preset": "tiny", "data": FILES, "model": {"d_key": 8}, "train": {"schedule": "noam"}},
        {**TEXT, "generation": {"max_length_factor": 0.0}},
        {"preset": "tiny", "data": {"prepared": "p"}, "tokenizer": {"dropout": 0.1}},
        {"start_from": "m", "data": FILES, "model": {"dropout": 0.2}, "generation": {"beam": 2}},
    ],
)
def test_the_resolved_config_is_the_same_run(values: dict[str, Any]) -> None:
    config = RunConfig(**values)
    text = DataConfig(**FILES) if config.data.prepared else config.data
    again = read_back(config, text)
    assert format_resolved_config(again, text) == format_resolved_config(config, text)
    for table in ("seed", "data", "model", "train"):
        assert resolve_config(again)[table] == resolve_config(config)[table]
    assert again.tokenizer == config.tokenizer
    if config.start_from is None:
        assert GenerationConfig(**again.generation) == GenerationConfig(**config.generation)
    else:
        assert again.generation == config.generation


def test_derived_settings_stay_derived() -> None:
    again = read_back(RunConfig(preset="small", data=FILES))
    assert not {"d_key", "attention_dropout", "final_norm"} & again.model.keys()
    assert not {"max_source", "long_source"} & again.generation.keys()
    pinned = RunConfig(preset="small", data=FILES, model={"attention_dropout": 0.2}, generation={"max_source": 9})
    again = read_back(pinned)
    assert (again.model["attention_dropout"], again.generation["max_source"]) == (0.2, 9)


def test_generation_settings_derived_from_data_are_shown() -> None:
    cut = parse_resolved(RunConfig(preset="tiny", data={**FILES, "cut_source": 40}))["generation"]
    assert (cut["max_source"], cut["long_source"]) == (40, "truncate")
    running = parse_resolved(RunConfig(**TEXT))
    assert (running["generation"]["max_length_extra"], running["data"]["stride"]) == (32, 8)
    assert not SOURCE_SETTINGS.keys() & running["generation"].keys()
    prepared = RunConfig(preset="tiny", data={"prepared": "p"}, model={"num_encoder_layers": 0})
    assert parse_derived_lines(prepared, RunConfig(**TEXT).data)["max_length_extra"] == "32"


def test_the_noam_peak_rate_is_shown() -> None:
    noam = RunConfig(preset="small", data=FILES, train={"schedule": "noam", "warmup": 100})
    assert parse_resolved(noam)["train"]["peak_lr"] == pytest.approx((256 * 100) ** -0.5)


def test_settings_from_other_folders_are_comments() -> None:
    prepared = format_resolved_config(RunConfig(preset="tiny", data={"prepared": "p"}), DataConfig(**FILES))
    assert "[tokenizer]\ndropout = 0.0\n# all else is as data.prepared was made\n" in prepared
    fine_tuning = format_resolved_config(RunConfig(start_from="m", data=FILES), DataConfig(**FILES))
    assert "[model]\n# network and tokenizer are those of start_from\n" in fine_tuning
    assert fine_tuning.endswith("[generation]\n# all else is as the model of start_from has it\n")


def parse_derived_lines(config: RunConfig, text: DataConfig) -> dict[str, str]:
    lines = [line for line in format_resolved_config(config, text).splitlines() if line.endswith(FOLLOWING)]
    return dict(line.removeprefix("# ").removesuffix(FOLLOWING).split(" = ") for line in lines)
