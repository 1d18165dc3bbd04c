"""Reference page of the run file, made from the settings classes.

`python docs/run_file.py` writes docs/run-file.md anew.
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
        """Which text a run learns from: `source` and `target`, or `file`, or `corpora`, or `prepared`. Names of files
are relative to `folder`, or else to where one stands; a run notes that folder, and goes on from any other.""",
    ),
    (
        "data.corpora",
        CorpusConfig,
        """One such table a corpus, in place of `source`, `target` and `file` of `[data]`. Of each corpus an epoch
takes as much as its weight says: 2 is all of it twice, 0.5 about half of it, drawn anew each time.""",
    ),
    ("tokenizer", TokenizerConfig, "How text becomes ids. Prepared data and `start_from` bring their own."),
    (
        "model",
        ModelConfig,
        """What differs from the preset's network. The sizes of the vocabularies come from the tokenizer. With
`start_from` only the three kinds of dropout can be set.""",
    ),
    ("train", TrainConfig, "How the network learns, what is looked at meanwhile, and what is kept."),
    (
        "generation",
        GenerationConfig,
        """How the model answers unless a call says otherwise: the model folder keeps it, and validation decodes so.""",
    ),
    (
        "about",
        ModelCard,
        """What the model is for. Training does not look at it; the model folder keeps it in `about.json`, and
`attendo serve` finds the model of a language pair by it. Left out, it is taken from the names of the two text files
where they end in languages (`train.en.gz` and `train.de`), or from the model of `start_from`.""",
    ),
    (
        "reproduce",
        Reproduce,
        """How a recipe is judged, for `attendo reproduce`; training does not look at it. A recipe may stand for several
variants: `{variant}` in its file names is replaced by the name of one, which `attendo train` takes as
`--set variant=NAME`. What one of them has of its own stands in `[variants.NAME.train]` and the like, above
what all have and below what `--set` says. `[reproduce.generate]` has settings of decoding, by the names of
`attendo generate`.""",
    ),
    ("reproduce.test", Expectation, "One such table for each score of a test set."),
)
_REPEATED_TABLES = ("data.corpora", "reproduce.test")  # tables that may occur more than once
_INTRODUCTION = """# The run file

A run file is TOML. Only `[data]` is needed. `attendo train RUN.toml --show` prints every setting as it will be used,
as a run file again; `--set train.peak_lr=3e-4` changes one. A mistyped name is refused, and the nearest one suggested.
A setting that is left out and follows from others, such as `stride` from `window`, is shown as a comment. What
`start_from` and `prepared` bring along stands in their folders, and is not shown.

```toml
preset = "small"

[data]
source = "train.en.gz"
target = "train.de.gz"

[train]
steps = 6000
```

A run file may be based on another one, which is named relative to it. Its own settings come first, one by one:

```toml
base = "small.toml"

[train]
steps = 20000
```

What is left out has the default that stands here, so that a run file with a `preset` means the same run with any data.
In a run file without `preset`, and in a run without a run file, the settings marked *or chosen* are chosen from the
data and printed. What is set stays, in the file or by `--set`, and the other choices follow it:
`--set preset=tiny --set train.steps=800` fixes these two, and the warm-up is chosen for 800 steps.

This page is made from the settings classes: `python docs/run_file.py` writes it anew.
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
