"""Every setting as a run will use it, those that were left out too: what `attendo train --show` prints."""

from typing import Any

from attendo.data.config import DataConfig
from attendo.decode.config import OF_A_SOURCE, GenerationConfig
from attendo.recipes.run_config import RunConfig, answers_by_data, as_toml, resolved, toml_literal
from attendo.train.schedule import peak_rate

Tables = dict[str, dict[str, Any]]


def shown(config: RunConfig, text: DataConfig) -> str:
    """A run file that reads back to the same run. `text` are the settings by which its text is or was prepared.

    What follows from other settings is a remark, so that it goes on following where one of them is changed.
    """
    content, following = resolved(config), _following(config, text)
    remarks = {
        table: [f"{name} = {toml_literal(value)}, by the other settings" for name, value in values.items()]
        for table, values in following.items()
    }
    if config.start_from is not None:
        remarks["model"] = ["network and tokenizer are those of start_from"]
        remarks["generation"] = ["all else is as the model of start_from has it", *remarks["generation"]]
    else:
        content["generation"] = _generation(config, {*following["generation"], *(OF_A_SOURCE if text.text else ())})
        if config.data.prepared is not None:
            content["tokenizer"] = {"dropout": config.tokenizer.dropout}
            remarks["tokenizer"] = ["all else is as data.prepared was made"]
    return as_toml(content, remarks)


def _generation(config: RunConfig, left_to_data: set[str]) -> dict[str, Any]:
    whole = GenerationConfig(**config.generation).model_dump(mode="json")
    return {name: value for name, value in whole.items() if name in config.generation or name not in left_to_data}


def _following(config: RunConfig, text: DataConfig) -> Tables:
    """By table, values that nobody has set and that other settings decide."""
    given, goes_on = resolved(config), config.start_from is not None
    window, usual = None if text.text is None or goes_on else text.window, GenerationConfig()
    reading = {} if text.text or goes_on else {"max_source": usual.max_source, "long_source": usual.long_source}
    tables: Tables = {"generation": {**reading, **answers_by_data(window, text.cut_source)}}
    if config.data.text is not None:
        tables["data"] = {"stride": config.data.step}
    elif config.data.validation and not config.data.valid_corpora and config.data.tag is not None:
        tables["data"] = {"valid_tag": config.data.tag}
    if not goes_on:
        network = config.network(8, 8)
        width, dropout = network.d_model // network.num_heads, network.dropout
        dropouts = {"attention_dropout": dropout, "activation_dropout": dropout}
        tables["model"] = {"d_key": width, "d_value": width, **dropouts, "final_norm": network.has_final_norm}
        tables["train"] = {"peak_lr": peak_rate(config.train, network.d_model)}
    return {
        table: {name: value for name, value in values.items() if name not in given.get(table, {})}
        for table, values in tables.items()
    }
