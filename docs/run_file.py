"""Reference page of the run file, in both languages, made from the settings classes.

`python docs/run_file.py` writes docs/run-file.md and docs/zh/run-file.md.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

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

Language = Literal["en", "zh"]

PAGES: dict[Language, Path] = {
    "en": Path(__file__).with_name("run-file.md"),
    "zh": Path(__file__).with_name("zh") / "run-file.md",
}
# Chinese of each setting, by the English description in its class.
_CHINESE: dict[str, str] = tomllib.loads(Path(__file__).with_name("run_file.zh.toml").read_text("utf-8"))
_TABLES: tuple[tuple[str, type[Settings], str, str], ...] = (
    (
        "",
        RunConfig,
        "At the top of the file, before any table.",
        "写在文件开头，所有表之前。",
    ),
    (
        "data",
        DataConfig,
        """The text of a run: `source` and `target`, or `file`, or `corpora`, or `prepared`. File names are relative to
`folder`, or to the current folder. A run stores absolute names, so that it can be resumed from any folder.""",
        "一次训练的文本：`source` 和 `target`，或者 `file`、`corpora`、`prepared` 之一。文件名相对于 `folder`，没有它时"
        "相对于当前文件夹。训练保存的是绝对路径，所以可以在任何文件夹里继续。",
    ),
    (
        "data.corpora",
        CorpusConfig,
        """One table for each corpus, instead of `source`, `target` and `file` of `[data]`. `weight` is how often an
epoch contains the corpus: 2 is twice, 0.5 is a random half, another one in every epoch.""",
        "每份语料一张表，代替 `[data]` 的 `source`、`target` 和 `file`。`weight` 是一轮训练使用这份语料的遍数："
        "2 表示两遍，0.5 表示随机的一半，每轮的一半各不相同。",
    ),
    (
        "tokenizer",
        TokenizerConfig,
        "How text becomes ids. Prepared data and the model of `start_from` have their own tokenizers.",
        "文本怎样变成词元编号。准备好的数据和 `start_from` 的模型有自己的分词器。",
    ),
    (
        "model",
        ModelConfig,
        """Differences from the network of the preset. The tokenizer determines the sizes of the vocabularies. With
`start_from` only the dropout settings, `kind`, `upsample` and `canvas` can be changed.""",
        "与预设的网络不同的地方。词表的大小由分词器决定。设置了 `start_from` 时，只能更改各项 dropout、`kind`、"
        "`upsample` 和 `canvas`。",
    ),
    ("train", TrainConfig, "Optimisation, validation and checkpoints.", "优化、验证和检查点。"),
    (
        "generation",
        GenerationConfig,
        """Default decoding settings. They are stored in the model folder, and validation uses them.""",
        "默认的解码设置。它们存放在模型文件夹里，验证时也使用它们。",
    ),
    (
        "about",
        ModelCard,
        """Task and languages of the model. They are stored in `about.json` of the model folder and do not change
training. `attendo serve` uses them to find the model of a language pair. The default is read from the names of the text
files if they end in languages (`train.en.gz` and `train.de`), or from the model of `start_from`.""",
        "模型的任务和语言。它们存放在模型文件夹的 `about.json` 里，不改变训练。`attendo serve` 用它们查找"
        "一个语言对的模型。如果文本文件名以语言结尾（`train.en.gz` 和 `train.de`），默认值取自文件名，"
        "否则取自 `start_from` 的模型。",
    ),
    (
        "reproduce",
        Reproduce,
        """How `attendo reproduce` evaluates a recipe. It does not change training. A recipe may have several variants:
`{variant}` in its file names is replaced by the name of one, which `attendo train` gets as `--set variant=NAME`.
Settings of one variant are in tables such as `[variants.NAME.train]`. They override those of all variants, and `--set`
overrides both. `[reproduce.generate]` has decoding settings, with the names of `attendo generate`.""",
        "`attendo reproduce` 怎样给一个配方评分，不改变训练。配方可以有多个变体：文件名中的 `{variant}` 由变体名代替，"
        "在 `attendo train` 里用 `--set variant=NAME` 给出。某个变体的设置写在 `[variants.NAME.train]` 之类的表里，"
        "优先于所有变体共有的设置；`--set` 又优先于两者。`[reproduce.generate]` 是解码设置，"
        "名称与 `attendo generate` 相同。",
    ),
    (
        "reproduce.test",
        Expectation,
        "One table for each score of a test set.",
        "测试集的每个分数一张表。",
    ),
)
_REPEATED_TABLES = ("data.corpora", "reproduce.test")  # tables that may occur more than once
_EXAMPLE = """```toml
preset = "small"

[data]
source = "train.en.gz"
target = "train.de.gz"

[train]
steps = 6000
```"""
_BASE_EXAMPLE = """```toml
base = "small.toml"

[train]
steps = 20000
```"""
_INTRODUCTION: dict[Language, str] = {
    "en": f"""# The run file

[中文](zh/run-file.md)

A run file is TOML. Only `[data]` is required. `attendo train RUN.toml --show` prints all settings, as a complete run
file. `--set train.peak_lr=3e-4` changes one. An unknown name is an error that suggests the nearest known name.
A setting whose default depends on others, such as `stride` on `window`, is shown as a comment. Settings that are stored
in the folders of `start_from` and `prepared` are not shown.

{_EXAMPLE}

A run file may have a base, named relative to it. Its own settings override those of the base, one by one:

{_BASE_EXAMPLE}

A setting that is left out has the default in the tables below. So a run file with a `preset` means the same run with
any data. In a run file without `preset`, and in a run without a run file, the settings marked *or chosen* are chosen
from the data and printed. Settings in the file or in `--set` are fixed, and the other choices depend on them:
`--set preset=tiny --set train.steps=800` fixes these two, and the warm-up is chosen for 800 steps.

This page is made from the settings classes: `python docs/run_file.py` writes it again.
""",
    "zh": f"""# 运行文件

[English](../run-file.md)

运行文件是 TOML 文件，只有 `[data]` 是必需的。`attendo train RUN.toml --show` 把全部设置打印成一个完整的运行文件，`--set train.peak_lr=3e-4` 更改一个设置。未知的名称会报错，并提示最接近的已知名称。有些设置的默认值取决于别的设置（例如 `stride` 取决于 `window`），它们显示为注释。存放在 `start_from` 和 `prepared` 的文件夹里的设置不显示。

{_EXAMPLE}

运行文件可以有一个基础文件，文件名相对于它自己。它的设置逐项优先于基础文件：

{_BASE_EXAMPLE}

没有给出的设置取下面各表的默认值，所以写有 `preset` 的运行文件，无论数据如何，都表示同样的训练。没有 `preset` 的运行文件，以及不用运行文件的训练，标有*或自动选定*的设置会根据数据选定并打印出来。文件或 `--set` 里的设置固定不变，其余的据此选定：`--set preset=tiny --set train.steps=800` 固定这两项，预热步数则按 800 步选定。

本页由设置类生成：`python docs/run_file.py` 重新写出它。
""",  # noqa: E501  (paragraphs of a Chinese page have no line breaks)
}
# The words of the tables. A list is "list of text" in English and "文本的列表" in Chinese.
_WORDS: dict[Language, dict[str, str]] = {
    "en": {
        "top": "Top level",
        "heading": "| setting | values | default | |",
        "chosen": "*or chosen*",
        "presets": "The presets:",
        "preset": "preset",
        "preset's": "the preset's",
        "tables": "tables, see below",
        "table": "a table",
        "or": " or ",
        "comma": ", ",
        "list": "list of {kind}",
        "one or more": "{kind} or list of {kind}",
        "several": "list of {count}, each {kind}",
        "path": "path",
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "minimum": " from {limit}",
        "exclusiveMinimum": " above {limit}",
        "maximum": " to {limit}",
        "exclusiveMaximum": " below {limit}",
    },
    "zh": {
        "top": "顶层",
        "heading": "| 设置 | 取值 | 默认值 | |",
        "chosen": "*或自动选定*",
        "presets": "各预设：",
        "preset": "预设",
        "preset's": "取自预设",
        "tables": "多张表，见下文",
        "table": "一张表",
        "or": "，或",
        "comma": "、",
        "list": "列表：{kind}",
        "one or more": "一个或多个{kind}",
        "several": "{count} 个元素的列表，每个元素为{kind}",
        "path": "路径",
        "string": "文本",
        "integer": "整数",
        "number": "数",
        "minimum": "，不小于 {limit}",
        "exclusiveMinimum": "，大于 {limit}",
        "maximum": "，不大于 {limit}",
        "exclusiveMaximum": "，小于 {limit}",
    },
}


def make_reference(language: Language) -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION[language], *_make_lines(language)]) + "\n"


def _make_lines(language: Language) -> Iterator[str]:
    words = _WORDS[language]
    for table, settings, english, chinese in _TABLES:
        title = words["top"] if not table else f"`[[{table}]]`" if table in _REPEATED_TABLES else f"`[{table}]`"
        yield from (f"## {title}", "", english if language == "en" else chinese, "")
        yield from (words["heading"], "|---|---|---|---|")
        yield from _make_rows(table, settings, language)
        yield ""
        if table == "model":
            yield from _make_preset_table(words)


def _make_rows(table: str, settings: type[Settings], language: Language) -> Iterator[str]:
    words = _WORDS[language]
    chosen = {
        choice.name for choice in choose_settings({}, DataStats(pairs=1000, tokens=15_000, alphabets_overlap=1.0))
    }
    for name, facts in settings.model_json_schema()["properties"].items():
        if name in ("vocab_size", *VOCABULARIES) or (not table and name in [each for each, *_ in _TABLES]):
            continue
        default = _format_default(table, name, facts.get("default"), words)
        if table and f"{table}.{name}" in chosen:
            default += f" {words['chosen']}"
        about = facts["description"] if language == "en" else _translate(facts["description"])
        about = re.sub("(<[^>]+>)+", r"`\g<0>`", about)
        yield f"| `{name}` | {_format_values(name, facts, words)} | {default} | {about} |"


def _translate(description: str) -> str:
    if description not in _CHINESE:
        raise KeyError(f"docs/run_file.zh.toml has no Chinese of {description!r}: add it")
    return _CHINESE[description]


def _make_preset_table(words: dict[str, str]) -> Iterator[str]:
    yield from (words["presets"], "")
    names = _preset_settings()
    yield f"| {words['preset']} | {' | '.join(f'`{name}`' for name in names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for preset in PRESETS:
        network = ModelConfig.preset(preset, vocab_size=8)
        yield f"| `{preset}` | {' | '.join(str(getattr(network, name)) for name in names)} |"
    yield ""


def _preset_settings() -> list[str]:
    return list(dict.fromkeys(name for sizes in PRESETS.values() for name in sizes))


def _format_default(table: str, name: str, value: Any, words: dict[str, str]) -> str:
    if table == "model" and name in _preset_settings():
        return words["preset's"]
    return "" if value is None or name in ("corpora", "valid_corpora", "generate") else f"`{toml_literal(value)}`"


def _format_values(name: str, facts: dict[str, Any], words: dict[str, str]) -> str:
    """Format the allowed values, from the JSON schema of a setting."""
    if name == "preset":
        return words["comma"].join(f"`{each}`" for each in ("auto", *PRESETS))
    if name in ("corpora", "valid_corpora", "test"):
        return words["tables"]
    if name == "generate":
        return words["table"]
    kinds = [each for each in facts.get("anyOf", [facts]) if each.get("type") != "null"]
    if len(kinds) == 2 and kinds[1].get("items") == kinds[0]:
        return words["one or more"].format(kind=_format_type(kinds[0], words))
    return words["or"].join(_format_type(each, words) for each in kinds)


def _format_type(facts: dict[str, Any], words: dict[str, str]) -> str:
    if "enum" in facts:
        return words["comma"].join(f"`{each}`" for each in facts["enum"])
    match facts["type"]:
        case "boolean":
            return words["comma"].join(("`true`", "`false`"))
        case "array" if "prefixItems" in facts:
            count = len(facts["prefixItems"])
            return words["several"].format(count=count, kind=_format_type(facts["prefixItems"][0], words))
        case "array":
            return words["list"].format(kind=_format_type(facts["items"], words))
        case "string":
            return words["path"] if facts.get("format") == "path" else words["string"]
    return words["integer" if facts["type"] == "integer" else "number"] + _format_range(facts, words)


def _format_range(facts: dict[str, Any], words: dict[str, str]) -> str:
    keys = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    found = [key for key in keys if key in facts and facts[key] < 2**53]
    return "".join(words[key].format(limit=_format_number(facts[key])) for key in found)


def _format_number(limit: float) -> str:
    return f"{int(limit):,}" if abs(limit) >= 1000 else f"{limit:g}"


if __name__ == "__main__":
    for language, page in PAGES.items():
        page.write_text(make_reference(language), "utf-8")
