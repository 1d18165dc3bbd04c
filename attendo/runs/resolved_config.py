"""The resolved settings of a run, which `attendo train --show` prints."""

from typing import Any

from attendo.data.config import DataConfig
from attendo.decode.config import SOURCE_SETTINGS, GenerationConfig
from attendo.model.config import DEFAULT_UPSAMPLE
from attendo.runs.config import RunConfig, derive_generation_settings, format_toml, resolve_config, toml_literal
from attendo.train.optimizer import peak_rate

Tables = dict[str, dict[str, Any]]


def format_resolved_config(config: RunConfig, text: DataConfig) -> str:
    """Format a run file that reproduces the run. `text` holds the settings that its data is or was prepared with.

    Values derived from other settings are comments, so that they stay derived if those change.
    """
    content, following = resolve_config(config), _derive_settings(config, text)
    remarks = {
        table: [f"{name} = {toml_literal(value)}, by the other settings" for name, value in values.items()]
        for table, values in following.items()
    }
    if config.start_from is not None:
        remarks["model"] = ["network and tokenizer are those of start_from"]
        remarks["generation"] = ["all else is as the model of start_from has it", *remarks["generation"]]
    else:
        content["generation"] = _resolve_generation(
            config, {*following["generation"], *(SOURCE_SETTINGS if text.text else ())}
        )
        if config.data.prepared is not None:
            content["tokenizer"] = {"dropout": config.tokenizer.dropout}
            remarks["tokenizer"] = ["all else is as data.prepared was made"]
    return format_toml(content, remarks)


def _resolve_generation(config: RunConfig, derived_from_data: set[str]) -> dict[str, Any]:
    settings, given = GenerationConfig(**config.generation).model_dump(mode="json"), config.generation
    return {name: value for name, value in settings.items() if name in given or name not in derived_from_data}


def _derive_settings(config: RunConfig, text: DataConfig) -> Tables:
    """Return unset values that follow from other settings, by table."""
    given, goes_on = resolve_config(config), config.start_from is not None
    window, usual = None if text.text is None or goes_on else text.window, GenerationConfig()
    reading = {} if text.text or goes_on else {"max_source": usual.max_source, "long_source": usual.long_source}
    derived = derive_generation_settings(window, text.cut_source, text.most_context)
    tables: Tables = {"generation": {**reading, **derived}}
    if config.data.text is not None:
        tables["data"] = {"stride": config.data.window_stride}
    elif config.data.validation and not config.data.valid_corpora and config.data.tag is not None:
        tables["data"] = {"valid_tag": config.data.tag}
    if not goes_on:
        network = config.make_model_config(8, 8)
        width, dropout = network.d_model // network.num_heads, network.dropout
        dropouts = {"attention_dropout": dropout, "activation_dropout": dropout}
        tables["model"] = {"d_key": width, "d_value": width, **dropouts, "final_norm": network.has_final_norm}
        if network.kind in DEFAULT_UPSAMPLE:
            tables["model"]["upsample"] = DEFAULT_UPSAMPLE[network.kind]
        tables["train"] = {"peak_lr": peak_rate(config.train, network.d_model)}
    return {
        table: {name: value for name, value in values.items() if name not in given.get(table, {})}
        for table, values in tables.items()
    }
