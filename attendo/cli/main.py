"""The command line. A command is imported when it is called, so that help and mistakes are answered at once."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from attendo import __version__
from attendo.cli.help import MAX_WIDTH, HelpRows, describe_argument, write_help
from attendo.cli.signals import find_exit_code
from attendo.cli.values import convert_lightly
from attendo.errors import AttendoError, ModelError, UsageError

# typer carries its own copy of click and shows only the leaves of its exceptions; this is what they all stem from.
ClickException: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

# Commands by section of the help: where each function is, and the first line of its docstring.
CommandTable = Mapping[str, Mapping[str, tuple[str, str]]]

COMMANDS: CommandTable = {
    "Train": {
        "demo": ("demo:demo", "Train a small English → Chinese Transformer here and now, and look inside it."),
        "prepare": (
            "prepare:prepare",
            "Turn text into memory-mapped shards of token ids, to be used by any number of runs.",
        ),
        "train": ("train:train", "Train a model on parallel text, or on running text."),
        "finetune": (
            "finetune:finetune",
            "Go on training a model on your own text, with its tokenizer and network.",
        ),
        "average": (
            "average:average",
            "Average the weights of a run's last checkpoints: often better than the best of them.",
        ),
        "reproduce": (
            "reproduce:reproduce",
            "Train a recipe, score it on its tests, and compare with the numbers it should reach.",
        ),
        "plot": ("plot:plot", "Draw learning curves: training and validation loss, learning rate, scores."),
        "doctor": (
            "doctor:doctor",
            "Look for what would spoil a run: in its network and in its data, without training it.",
        ),
        "verify-resume": (
            "verify:verify_resume",
            "Train some steps twice, once stopped and resumed several times, and compare both bit for bit.",
        ),
    },
    "Use": {
        "generate": ("generate:generate", "Translate (or otherwise transform) lines of standard input."),
        "score": ("score:score", "Print the log-probability of every target line given its source line."),
        "evaluate": ("evaluate:evaluate", "Score a model on text that it did not learn from."),
        "tokenize": ("tokenize:tokenize", "Print the pieces of every line of standard input."),
        "detokenize": ("tokenize:detokenize", "Print the text of every line of ids on standard input."),
        "verify": (
            "verify:verify",
            "Compare the answers of all engines, batch sizes, paddings and caches, and the scores with what was said.",
        ),
        "serve": (
            "serve:serve",
            "Serve models over HTTP: LibreTranslate, DeepL, OpenAI and Hugging Face shapes, our own API, and the page.",
        ),
    },
    "Look inside": {
        "describe": (
            "describe:describe",
            "Show what a network is made of: every operation, its shapes, its parameters.",
        ),
        "trace": (
            "trace:trace",
            "Walk through one run from tokens to text: each formula, its shapes, its numbers.",
        ),
        "explore": (
            "explore:explore",
            "Show a model from inside, in the browser: attention, steps, beams, masks, formulas with their numbers.",
        ),
        "heads": (
            "heads:heads",
            "Measure what every head looks at: how spread, how far, how near the diagonal, how well aligned.",
        ),
        "plot-attention": (
            "plot:plot_attention",
            "Draw where a model looked, with its tokens on both axes; rows are the tokens being predicted.",
        ),
    },
    "Exchange and measure": {
        "import": (
            "import_model:import_model",
            "Read a Marian (OPUS-MT), BART, M2M100, NLLB or mBART model, "
            "and compare the two on at least 200 sentences.",
        ),
        "export": (
            "export:export",
            "Write the model for another system, and compare the two on at least 200 sentences.",
        ),
        "bench": ("main:bench", "Measure speed beside other systems, as ratios in one run."),
    },
    "Help": {
        "help": ("help:show_help", "Show the help of a command."),
        "completion": ("completion:completion", "Print the script that completes commands and options in a shell."),
    },
    "": {"translate": ("generate:generate", "The same as generate.")},
}

BENCH: CommandTable = {
    "Commands": {
        "generate": (
            "bench:generate",
            "Time generation: attendo, transformers and CTranslate2 with the same weights, encoder included.",
        ),
        "serve": ("bench:serve", "Load a server: throughput, latency, rejections, as its clients see them."),
    }
}


class _Commands(Mapping[str, Any]):
    """Commands by name; one is imported when it is asked for."""

    def __init__(self, table: CommandTable) -> None:
        self._entries = {name: entry for section in table.values() for name, entry in section.items()}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Any:
        module, function = self._entries[name][0].split(":")
        found = getattr(import_module(f"attendo.cli.{module}"), function)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(name, cls=Command)(found)
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Command(TyperCommand):
    """One command."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params = list(map(convert_lightly, self.params))

    def get_help_option(self, context: Any) -> Any:
        """The option --help."""
        return convert_lightly(super().get_help_option(context))

    def collect_usage_pieces(self, context: Any) -> list[str]:
        """What follows the name in the usage line."""
        arguments: list[Any] = [each for each in self.params if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(describe_argument(each) for each in arguments if not each.hidden)]

    def format_help(self, context: Any, formatter: Any) -> None:
        """Usage, text, arguments, and options by section."""
        write_help(self, context, formatter)

    def invoke(self, context: Any) -> Any:
        """Run it. A missing run file or model is an error before torch is imported."""
        for each in self.params:
            given = context.params.get(each.name)
            for path in given if isinstance(given, list) else [given]:
                if each.param_type_name == "argument" and isinstance(path, Path) and not path.exists():
                    _refuse_missing(path, each.metavar, context.info_name)
        try:
            return super().invoke(context)
        except UsageError as error:
            error.respell = lambda text: _name_options(text, context)
            raise


class LazyGroup(TyperGroup):
    """Commands that are imported when they are called."""

    table: CommandTable

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.table)  # type: ignore[assignment]
        self.params = list(map(convert_lightly, self.params))

    def get_help_option(self, context: Any) -> Any:
        """The option --help."""
        return convert_lightly(super().get_help_option(context))

    def list_commands(self, context: Any) -> list[str]:
        """The names of all commands."""
        return list(self.commands)

    def format_help(self, context: Any, formatter: Any) -> None:
        """Usage, commands by section, options; no command is imported for it."""
        write_help(self, context, formatter, self.list_helps())

    def list_helps(self) -> HelpRows:
        """Name and first line of the help of every command, by section; hidden ones have none."""
        return {
            section: [(name, text) for name, (_, text) in entries.items()]
            for section, entries in self.table.items()
            if section
        }

    def invoke(self, context: Any) -> Any:
        """Report Ctrl-C, on which typer would exit silently."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt as error:
            raise typer.Abort from error


class _AttendoGroup(LazyGroup):
    table = COMMANDS


class _BenchGroup(LazyGroup):
    table = BENCH


app = typer.Typer(
    cls=_AttendoGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH},
    help="The encoder–decoder Transformer you can train, run and see through.",
    epilog="Start with: attendo demo",
)
bench = typer.Typer(
    cls=_BenchGroup,
    name="bench",
    no_args_is_help=True,
    rich_markup_mode=None,
    help=COMMANDS["Exchange and measure"]["bench"][1],
)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Show the version and exit.")
) -> None:
    if version:
        print(f"attendo {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; whatever goes wrong for a reason the user can mend is one line and an exit code."""
    try:
        code = typer.main.get_command(app)(standalone_mode=False, prog_name="attendo")
    except ClickException as error:
        code = _refuse(error)
    except AttendoError as error:
        if isinstance(error.__cause__ or error.__context__, ImportError) and find_exit_code(error) is not None:
            raise  # nothing is missing: a signal came while it was imported
        code = _fail(str(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        code = _fail("interrupted", 130)
    except OSError as error:
        code = _fail(f"{error.filename or 'output'}: {error.strerror}", 1)
    except (RuntimeError, MemoryError) as error:
        code = _report_out_of_memory(error)
    except SystemExit as leaving:
        # click and rich leave with 1 when whoever read our output has seen enough (`| head -1`). That is no failure.
        code = 0 if isinstance(leaving.__context__, BrokenPipeError) else leaving.code
    sys.exit(_flush(code if isinstance(code, int) else 0))


def _flush(code: int) -> int:
    """Write buffered output before the process ends, so that an error can still be reported; return the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        return code or _fail(f"output: {error.strerror}", 1)
    return code


def _discard_output() -> None:
    """Send buffered output to the null device: Python flushes standard output once more at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _refuse(error: Any) -> int:
    """A mistake of use. Without a command the help is shown, which is the message of that error."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return int(error.exit_code)
    return _fail(error.format_message(), error.exit_code)


def _name_options(message: str, context: Any) -> str:
    """With options as they were typed, --n-best, where settings of the library have names such as n_best."""
    for each in context.command.params:
        typed = context.get_parameter_source(each.name)
        if each.param_type_name == "option" and "_" in each.name and typed is not None and typed.name == "COMMANDLINE":
            message = re.sub(rf"(?<![\w./-]){each.name}(?![\w/-])", each.opts[-1], message)
    return message


def _refuse_missing(path: Path, metavar: str | None, command: str | None) -> None:
    """Raise the error that reading the path would raise."""
    if metavar == "MODEL" and command in ("generate", "translate", "serve"):
        raise ModelError("model_folder_not_found", folder=path)
    if metavar == "RUN.toml":
        raise UsageError("run_file_not_found", path=path)


def _report_out_of_memory(error: Exception) -> int:
    """Any other fault is ours, and told in full."""
    from attendo.nn.devices import is_out_of_memory, oom_message

    if not is_out_of_memory(error):
        raise error
    return _fail(oom_message(error), 1)


def _fail(message: str, code: int) -> int:
    if message:
        print("attendo:", " ".join(message.split()), file=sys.stderr)
    return code
