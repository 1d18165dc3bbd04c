"""Names of the package and options of the command line, which other programs use."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import attendo
from attendo.cli.main import app

COMMANDS_PAGE = Path(__file__).parents[2] / "docs/commands.md"
COMMON_OPTIONS = {"--help", "--device", "--threads", "--set", "--lang"}  # described once, at the top of the page
NAMES = ["ModelConfig", "TextModel", "Transformer", "__version__", "load", "pipeline", "show", "train"]

GENERATE = [
    *("--alignments", "--alignments-of", "--allow-unk", "--at-limit", "--banned-phrase", "--batch-tokens"),
    *(
        "--beam",
        "--beam-groups",
        "--check",
        "--check-detached",
        "--compile",
        "--constraint",
        "--context-sentences",
        "--counts-eos",
    ),
    *("--coverage-penalty", "--device", "--distinct", "--diversity-penalty", "--do-not-translate", "--draft"),
    *("--engine", "--ensemble", "--errors", "--glossary", "--graph-search", "--help", "--input", "--json", "--keep"),
    *("--length-candidates", "--length-penalty", "--long-source"),
    *("--max-length", "--max-length-extra", "--max-length-factor", "--max-source", "--mbr", "--mbr-candidates"),
    "--merge-repeats",
    *("--min-length", "--min-length-extra", "--min-length-factor", "--min-p", "--n-best", "--no-repeat-ngram-size"),
    *("--normalise", "--output", "--output-field", "--passes", "--path-length-penalty", "--patience", "--precision"),
    *("--prefix", "--preset", "--ray", "--renormalise", "--repetition-of", "--repetition-penalty"),
    *("--replace-unknown", "--sample"),
    *("--seed", "--source-field", "--source-prefix", "--source-suffix", "--split", "--stop", "--target-prefix"),
    "--temperature",
    *("--threads", "--top-k", "--top-p", "--transfer-case", "--typical-p", "--word-penalty", "--workers", "-o"),
    *("MODEL", "[TEXT]..."),
]
# Names of version 0.1.0, which are accepted and not shown in the help.
OLD = ["--ban", "--diversity", "--groups", "--like", "--no-repeat-ngram", "--typical"]

# Besides --lang, which every command has.
OPTIONS = {
    "": ["--help", "--version"],
    "align": [
        *("--device", "--gold", "--help", "--json", "--links", "--reverse", "--source", "--symmetrise", "--target"),
        *("--threads", "MODEL"),
    ],
    "calibrate": [
        *("--beam", "--device", "--help", "--json", "--length-penalty", "--reference", "--source", "--threads"),
        "MODEL",
    ],
    "completion": ["--help", "--words", "[WORD]", "bash|zsh|fish"],
    "help": ["--help", "[COMMAND]"],
    "average": ["--help", "--last", "--out", "--overwrite", "RUN"],
    "backtranslate": [
        *("--beam", "--device", "--field", "--help", "--method", "--out", "--seed", "--tag", "--text", "--threads"),
        *("--top-k", "--workers", "MODEL"),
    ],
    "bench": ["--help"],
    "demo": ["--device", "--help", "--kind", "--out", "--seed", "--threads"],
    "describe": ["--help", "--set", "--source-length", "--target-length", "--vocab-size", "MODEL"],
    "detokenize": ["--help", "--side", "MODEL"],
    "distill": ["--beam", "--device", "--folds", "--help", "--jobs", "--out", "--source", "--target", "MODEL"],
    "doctor": [
        *("--data", "--device", "--help", "--json", "--processes", "--quick", "--set", "--show", "--source"),
        *("--target", "--test-source", "--test-target", "RUN.toml"),
    ],
    "evaluate": [
        *("--beam", "--by", "--compare", "--device", "--help", "--json", "--length-penalty", "--metric"),
        *("--output", "--preset", "--reference", "--source", "--threads", "MODEL"),
    ],
    "export": [
        *(
            "--from-lang",
            "--help",
            "--json",
            "--max-loss",
            "--precision",
            "--set",
            "--source",
            "--target",
            "--to",
            "--to-lang",
            "MODEL",
            "OUT",
        ),
    ],
    "explore": ["--device", "--help", "--host", "--no-open", "--port", "--threads", "MODEL"],
    "exposure": [
        *("--batch-tokens", "--device", "--figure", "--help", "--json", "--limit", "--oracle", "--precision"),
        *("--reference", "--seed", "--source", "--threads", "MODEL"),
    ],
    "families": ["--help", "--json"],
    "finetune": [
        "--device",
        "--freeze",
        "--help",
        "--out",
        "--overwrite",
        "--set",
        "--source",
        "--target",
        "--text",
        "--threads",
        "MODEL",
    ],
    "generate": GENERATE,
    "heads": [
        *("--device", "--gold", "--help", "--json", "--links", "--output", "--sort", "--store", "--target"),
        *("-o", "FILE", "MODEL"),
    ],
    "import": [
        *("--dtype", "--help", "--json", "--no-proof", "--proof", "--source-language", "--target-language"),
        *("FOLDER", "OUT"),
    ],
    "plot": ["--help", "--metric", "--output", "--x", "-o", "RUN"],
    "plot-attention": [
        *("--all", "--device", "--head", "--help", "--layer", "--output", "--site", "--target", "-o"),
        *("MODEL", "TEXT"),
    ],
    "prepare": [
        *("--data", "--field", "--file", "--help", "--max-bad-ratio", "--out", "--set", "--source", "--source-field"),
        *("--target", "--target-field", "--text", "--valid-source", "--valid-target", "--verify", "--workers"),
        "RUN.toml",
    ],
    "reproduce": [
        *("--data", "--device", "--help", "--jobs", "--list", "--out", "--seeds", "--variants", "RECIPE"),
    ],
    "score": ["--device", "--help", "--json", "--normalise", "--source", "--target", "--threads", "--words", "MODEL"],
    "serve": [
        *(
            "--allow-host",
            "--check",
            "--config",
            "--cors-origin",
            "--deadline",
            "--device",
            "--documents-folder",
            "--help",
        ),
        *(
            "--host",
            "--key-file",
            "--languages",
            "--log-format",
            "--log-level",
            "--metrics-open",
            "--port",
            "--precision",
            "--set",
        ),
        *("--task", "--threads", "MODEL"),
    ],
    "tokenize": ["--help", "--ids", "--side", "MODEL"],
    "trace": [
        *("--beside", "--device", "--graph-search", "--head", "--help", "--html", "--json", "--layer"),
        *("--length-candidates", "--merge-repeats", "--no-mask", "--passes", "--path-length-penalty", "--step"),
        *("--target", "--threads", "MODEL", "TEXT"),
    ],
    "train": [
        *("--continue", "--data", "--device", "--epochs", "--field", "--file", "--help", "--max-bad-ratio", "--out"),
        *(
            "--override",
            "--overwrite",
            "--preset",
            "--resume",
            "--set",
            "--show",
            "--source",
            "--source-field",
            "--steps",
        ),
        *("--stop-at", "--target", "--target-field", "--tensorboard", "--text", "--threads", "--valid-source"),
        *("--valid-target", "RUN.toml"),
    ],
    "verify": ["--device", "--draft", "--help", "--json", "--lines", "--precision", "--source", "--threads", "MODEL"],
    "verify-resume": ["--data", "--device", "--help", "--set", "--steps", "--threads", "RUN.toml"],
    "translate": GENERATE,
}


def test_package_has_these_names() -> None:
    assert sorted(attendo.__all__) == sorted(NAMES)
    assert dir(attendo) == sorted(NAMES)
    assert all(getattr(attendo, name) is not None for name in NAMES)


def test_command_line_has_these_options() -> None:
    root: Any = typer.main.get_command(app)
    commands = {"": root, **root.commands}
    expected = {name: sorted([*options, "--lang"]) for name, options in OPTIONS.items()}
    assert {name: option_names(command) for name, command in commands.items()} == expected
    assert option_names(root.commands["generate"], hidden=True) == OLD
    assert option_names(root.commands["evaluate"], hidden=True) == ["--like"]


@pytest.mark.parametrize(
    "command", [name for name in OPTIONS if name not in ("", "bench", "completion", "help", "translate")]
)
def test_commands_page_lists_every_option(command: str) -> None:
    sections = re.split(r"^##+ ", COMMANDS_PAGE.read_text("utf-8"), flags=re.MULTILINE)
    (section,) = (each for each in sections if command in each.splitlines()[0].replace(" and ", " ").split())
    listed = {f"--{name}" for name in re.findall(r"--(?:\[no-\])?([a-z][a-z-]*)", section)}
    options = {name for name in OPTIONS[command] if name.startswith("--")}
    if command == "detokenize":
        options.add("--ids")  # of tokenize, in the same section
    assert options - listed <= COMMON_OPTIONS
    rows = re.findall(r"^\| `(?:-\w`, `)?--(?:\[no-\])?([a-z][a-z-]*)", section, flags=re.MULTILINE)
    assert {f"--{name}" for name in rows} <= options


def option_names(command: Any, hidden: bool = False) -> list[str]:
    """Options by their long name, arguments by their placeholder in the help."""
    context = typer.Context(command, help_option_names=["-h", "--help"])  # the command keeps its first help option
    found: list[str] = []
    for each in command.get_params(context):
        if each.hidden == hidden or command.name == "completion":
            found += each.opts if each.param_type_name == "option" else [each.metavar]
    return sorted(name for name in found if name != "-h")
