"""Reference page of the run file, made from the settings classes.

`python docs/run_file.py` writes docs/run-file.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attendo.data.config import CorpusConfig, DataConfig
from attendo.decode.config import GenerationConfig
from attendo.model.config import PRESETS, VOCABULARIES, ModelConfig
from attendo.runs.auto_config import DataStats, choose_settings
from attendo.runs.config import RunConfig, toml_literal
from attendo.runs.recipe_config import Expectation, Reproduce
from attendo.settings import Settings
from attendo.text.config import TokenizerConfig
from attendo.text.model_card import ModelCard
from attendo.train.config import TrainConfig

PAGE = Path(__file__).with_name("run-file.md")
_TABLES: tuple[tuple[str, type[Settings], str], ...] = (
    ("", RunConfig, "At the top of the file, before any table."),
    (
        "data",
        DataConfig,
        """The text of a run: `source` and `target`, or `file`, or `corpora`, or `prepared`. File names are relative to
`folder`, or to the current folder. A run stores absolute names, so that it can be resumed from any folder.""",
    ),
    (
        "data.corpora",
        CorpusConfig,
        """One table for each corpus, instead of `source`, `target` and `file` of `[data]`. `weight` is how often an
epoch contains the corpus: 2 is twice, 0.5 is a random half, another one in every epoch.""",
    ),
    (
        "tokenizer",
        TokenizerConfig,
        "How text becomes ids. Prepared data and the model of `start_from` have their own tokenizers.",
    ),
    (
        "model",
        ModelConfig,
        """Differences from the network of the preset. The tokenizer determines the sizes of the vocabularies. With
`start_from` only the dropout settings, `kind`, `upsample` and `canvas` can be changed.""",
    ),
    ("train", TrainConfig, "Optimisation, validation and checkpoints."),
    (
        "generation",
        GenerationConfig,
        """Default decoding settings. They are stored in the model folder, and validation uses them.""",
    ),
    (
        "about",
        ModelCard,
        """Task and languages of the model. They are stored in `about.json` of the model folder and do not change
training. `attendo serve` uses them to find the model of a language pair. The default is read from the names of the text
files if they end in languages (`train.en.gz` and `train.de`), or from the model of `start_from`.""",
    ),
    (
        "reproduce",
        Reproduce,
        """How `attendo reproduce` evaluates a recipe. It does not change training. A recipe may have several variants:
`{variant}` in its file names is replaced by the name of one, which `attendo train` gets as `--set variant=NAME`.
Settings of one variant are in tables such as `[variants.NAME.train]`. They override those of all variants, and `--set`
overrides both. `[reproduce.generate]` has decoding settings, with the names of `attendo generate`.""",
    ),
    ("reproduce.test", Expectation, "One table for each score of a test set."),
)
_REPEATED_TABLES = ("data.corpora", "reproduce.test")  # tables that may occur more than once
_INTRODUCTION = """# The run file

A run file is TOML. Only `[data]` is required. `attendo train RUN.toml --show` prints all settings, as a complete run
file. `--set train.peak_lr=3e-4` changes one. An unknown name is an error that suggests the nearest known name.
A setting whose default depends on others, such as `stride` on `window`, is shown as a comment. Settings that are stored
in the folders of `start_from` and `prepared` are not shown.

```toml
preset = "small"

[data]
source = "train.en.gz"
target = "train.de.gz"

[train]
steps = 6000
```

A run file may have a base, named relative to it. Its own settings override those of the base, one by one:

```toml
base = "small.toml"

[train]
steps = 20000
```

A setting that is left out has the default in the tables below. So a run file with a `preset` means the same run with
any data. In a run file without `preset`, and in a run without a run file, the settings marked *or chosen* are chosen
from the data and printed. Settings in the file or in `--set` are fixed, and the other choices depend on them:
`--set preset=tiny --set train.steps=800` fixes these two, and the warm-up is chosen for 800 steps.

This page is made from the settings classes: `python docs/run_file.py` writes it again.
"""


def make_reference() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *_make_lines()]) + "\n"


def _make_lines() -> Iterator[str]:
    for table, settings, about in _TABLES:
        title = "Top level" if not table else f"`[[{table}]]`" if table in _REPEATED_TABLES else f"`[{table}]`"
        yield from (f"## {title}", "", about, "")
        yield from ("| setting | values | default | |", "|---|---|---|---|")
        yield from _make_rows(table, settings)
        yield ""
        if table == "model":
            yield from _make_preset_table()


def _make_rows(table: str, settings: type[Settings]) -> Iterator[str]:
    chosen = {
        choice.name for choice in choose_settings({}, DataStats(pairs=1000, tokens=15_000, alphabets_overlap=1.0))
    }
    for name, facts in settings.model_json_schema()["properties"].items():
        if name in ("vocab_size", *VOCABULARIES) or (not table and name in [each for each, _, _ in _TABLES]):
            continue
        default = _format_default(table, name, facts.get("default"))
        if table and f"{table}.{name}" in chosen:
            default += " *or chosen*"
        about = re.sub("<[^>]+>", r"`\g<0>`", facts["description"])
        yield f"| `{name}` | {_format_values(name, facts)} | {default} | {about} |"


def _make_preset_table() -> Iterator[str]:
    yield from ("The presets:", "")
    names = _preset_settings()
    yield f"| preset | {' | '.join(f'`{name}`' for name in names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for preset in PRESETS:
        network = ModelConfig.preset(preset, vocab_size=8)
        yield f"| `{preset}` | {' | '.join(str(getattr(network, name)) for name in names)} |"
    yield ""


def _preset_settings() -> list[str]:
    return list(dict.fromkeys(name for sizes in PRESETS.values() for name in sizes))


def _format_default(table: str, name: str, value: Any) -> str:
    if table == "model" and name in _preset_settings():
        return "the preset's"
    return "" if value is None or name in ("corpora", "valid_corpora", "generate") else f"`{toml_literal(value)}`"


def _format_values(name: str, facts: dict[str, Any]) -> str:
    """Format the allowed values, from the JSON schema of a setting."""
    if name == "preset":
        return ", ".join(f"`{each}`" for each in ("auto", *PRESETS))
    if name in ("corpora", "valid_corpora", "test"):
        return "tables, see below"
    if name == "generate":
        return "a table"
    kinds = [each for each in facts.get("anyOf", [facts]) if each.get("type") != "null"]
    return " or ".join(_format_type(each) for each in kinds)


def _format_type(facts: dict[str, Any]) -> str:
    if "enum" in facts:
        return ", ".join(f"`{each}`" for each in facts["enum"])
    match facts["type"]:
        case "boolean":
            return "`true`, `false`"
        case "array" if "prefixItems" in facts:
            return f"list of {len(facts['prefixItems'])}, each {_format_type(facts['prefixItems'][0])}"
        case "array":
            return f"list of {_format_type(facts['items'])}"
        case "string":
            return "path" if facts.get("format") == "path" else "text"
    word = "whole number" if facts["type"] == "integer" else "number"
    return f"{word}{_format_range(facts)}"


def _format_range(facts: dict[str, Any]) -> str:
    limits = []
    for key, words in (
        ("minimum", "from"),
        ("exclusiveMinimum", "above"),
        ("maximum", "to"),
        ("exclusiveMaximum", "below"),
    ):
        if key in facts and facts[key] < 2**53:
            limits.append(f"{words} {_format_number(facts[key])}")
    return f" {' '.join(limits)}" if limits else ""


def _format_number(limit: float) -> str:
    return f"{int(limit):,}" if abs(limit) >= 1000 else f"{limit:g}"


if __name__ == "__main__":
    PAGE.write_text(make_reference(), "utf-8")
