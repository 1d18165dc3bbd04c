"""The command line. A command is imported when it is called, so that help and usage errors are fast."""

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from attendo import __version__
from attendo.cli import language
from attendo.cli.help import MAX_WIDTH, HelpRows, describe_argument, write_help
from attendo.cli.language import say
from attendo.cli.signals import find_exit_code
from attendo.errors import AttendoError, LocalizedText, ModelError, UsageError

# typer has its own copy of click and exports only leaf exception classes. This is their common base class.
ClickException: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_LEAST_TYPER = (0, 29)  # as in pyproject.toml
_OMITTED_VALUES = {"--ray": "local"}
# Commands by section of the help: name → module and function, first line of the docstring.
CommandTable = Mapping[str, Mapping[str, tuple[str, str]]]

COMMANDS: CommandTable = {
    "Train": {
        "demo": ("demo:demo", "Train a small English → Chinese Transformer and show its attention."),
        "prepare": ("prepare:prepare", "Convert text into memory-mapped shards of token ids, for any number of runs."),
        "train": ("train:train", "Train a model on parallel text, or on running text."),
        "finetune": ("finetune:finetune", "Train a model further on your own text, with its tokenizer and network."),
        "average": ("average:average", "Average the weights of a run's last checkpoints."),
        "distill": (
            "distill:distill",
            "Replace the targets of parallel text by translations of a teacher, for a student to learn from.",
        ),
        "backtranslate": (
            "backtranslate:backtranslate",
            "Make sentence pairs from monolingual text: its translations become the sources.",
        ),
        "reproduce": (
            "reproduce:reproduce",
            "Train a recipe, score it on its tests, and compare with the expected scores.",
        ),
        "plot": ("plot:plot", "Draw learning curves: training and validation loss, learning rate, scores."),
        "doctor": ("doctor:doctor", "Check a run's network and data for problems, without training."),
        "verify-resume": (
            "verify:verify_resume",
            "Train some steps twice, once stopped and resumed several times, and compare both bit for bit.",
        ),
    },
    "Use": {
        "generate": ("generate:generate", "Translate (or otherwise transform) lines of standard input."),
        "score": ("score:score", "Print the log-probability of every target line given its source line."),
        "evaluate": ("evaluate:evaluate", "Score a model on text that it was not trained on."),
        "align": ("align:align", "Print the word alignment of every pair of lines, such as 0-0 1-2."),
        "calibrate": (
            "calibrate:calibrate",
            "Measure on validation text which outputs are unusual, for generate --check.",
        ),
        "tokenize": ("tokenize:tokenize", "Print the pieces of every line of standard input."),
        "detokenize": ("tokenize:detokenize", "Print the text of every line of ids on standard input."),
        "verify": ("verify:verify", "Compare outputs and scores across engines, batch sizes, paddings and caches."),
        "serve": (
            "serve:serve",
            "Serve models over HTTP: LibreTranslate, DeepL, OpenAI, Hugging Face and native APIs, and the page.",
        ),
    },
    "Look inside": {
        "describe": ("describe:describe", "Show every operation of a network with its shapes and parameters."),
        "trace": ("trace:trace", "Show one forward pass from tokens to text: each formula, its shapes, its numbers."),
        "explore": (
            "explore:explore",
            "Inspect a model in the browser: attention, steps, beams, masks, formulas with their numbers.",
        ),
        "heads": ("heads:heads", "Measure every attention head: entropy, distance, diagonality, alignment."),
        "exposure": (
            "exposure:exposure",
            "Measure exposure bias: predictions after the model's own or a corrupted prefix.",
        ),
        "plot-attention": (
            "plot:plot_attention",
            "Draw attention weights with tokens on both axes; rows are the predicted tokens.",
        ),
    },
    "Exchange and measure": {
        "import": (
            "import_model:import_model",
            "Read a model of another system and compare the two on at least 200 sentences.",
        ),
        "families": (
            "families:families",
            "List the families that `attendo import` reads: network, tokenizer files, oracle and exports.",
        ),
        "export": (
            "export:export",
            "Export a model to another system's format and compare the two on at least 200 sentences.",
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
            "Compare generation speed of attendo, transformers and CTranslate2 with the same weights.",
        ),
        "serve": ("bench:serve", "Load-test a server: throughput, latency and rejections as clients see them."),
    }
}


LanguageOption = Annotated[
    Literal["en", "zh"] | None,
    typer.Option(
        "--lang", expose_value=False, help="Language of help, output and errors; default: that of the system."
    ),
]


class _Commands(Mapping[str, Any]):
    """Commands by name, imported on first access."""

    def __init__(self, table: CommandTable) -> None:
        self._entries = {name: entry for section in table.values() for name, entry in section.items()}

    def __getitem__(self, name: str) -> Any:
        return _load_command(name, *self._entries[name][0].split(":"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@cache
def _load_command(name: str, module: str, function: str) -> Any:
    found = getattr(import_module(f"attendo.cli.{module}"), function)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, cls=Command)(found)
    return typer.main.get_command(alone)


@cache
def _make_language_option() -> Any:
    """Return the option of all commands. `main` reads its value before they are parsed."""

    def command(lang: LanguageOption = None) -> None: ...

    alone = typer.Typer(add_completion=False)
    alone.command()(command)
    return typer.main.get_command(alone).params[0]


class _LightParameters:
    """Converts the values of all parameters, --help included, without pydantic. Adds the option --lang."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params: list[Any] = [*map(_convert_lightly, self.params), _convert_lightly(_make_language_option())]

    def get_help_option(self, context: Any) -> Any:
        return _convert_lightly(super().get_help_option(context))  # type: ignore[misc]


class Command(_LightParameters, TyperCommand):
    """A command with light parameter conversion and plain help."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Insert the value of an option whose value may be left out, such as `--ray`."""
        filled: list[str] = []
        for word, after in pairwise([*args, "-"]):
            filled.append(word)
            if word in _OMITTED_VALUES and after.startswith("-"):
                filled.append(_OMITTED_VALUES[word])
        return super().parse_args(context, filled)

    def collect_usage_pieces(self, context: Any) -> list[str]:
        """Return the parts of the usage line after the command name."""
        arguments: list[Any] = [each for each in self.params if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(describe_argument(each) for each in arguments if not each.hidden)]

    def format_help(self, context: Any, formatter: Any) -> None:
        """Write usage, text, arguments, and options by section."""
        write_help(self, context, formatter)

    def invoke(self, context: Any) -> Any:
        """Run the command. A missing run file or model raises an error before torch is imported."""
        for each in self.params:
            given = context.params.get(each.name)
            for path in given if isinstance(given, list) else [given]:
                if each.param_type_name == "argument" and isinstance(path, Path) and not path.exists():
                    _refuse_missing(path, each.metavar, context.info_name)
        try:
            return super().invoke(context)
        except UsageError as error:
            error.option_names = _list_option_names(context)
            raise


class LazyGroup(_LightParameters, TyperGroup):
    """A group whose commands are imported when they are called."""

    table: CommandTable

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.table)  # type: ignore[assignment]

    def list_commands(self, context: Any) -> list[str]:
        """Return the names of all commands."""
        return list(self.commands)

    def format_help(self, context: Any, formatter: Any) -> None:
        """Write usage, commands by section, and options, without importing a command."""
        write_help(self, context, formatter, self.list_helps())

    def list_helps(self) -> HelpRows:
        """Return name and first help line of every command by section. Hidden commands are excluded."""
        return {
            section: [(name, language.translate(text)) for name, (_, text) in entries.items()]
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


def _require_typer() -> None:
    """Raise a `UsageError` for a version without the parts of click that this file uses."""
    found = tuple(int(part) for part in typer.__version__.split(".")[:2])
    if found < _LEAST_TYPER:
        raise UsageError("typer_too_old", version=typer.__version__, least=".".join(map(str, _LEAST_TYPER)))


def main() -> None:
    """Run a command. An error that the user can fix prints one line and sets the exit code."""
    language.use_language(language.choose_language(sys.argv[1:], os.environ))
    try:
        _require_typer()
        code = typer.main.get_command(app)(standalone_mode=False, prog_name="attendo")
    except ClickException as error:
        code = _refuse(error)
    except AttendoError as error:
        if isinstance(error.__cause__ or error.__context__, ImportError) and find_exit_code(error) is not None:
            raise  # the import was interrupted by a signal; no package is missing
        code = _fail(error.text(language.current_language(), error.option_names), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        code = _fail(say("interrupted"), 130)
    except OSError as error:
        code = _fail(_describe_system_error(error), 1)
    except (RuntimeError, MemoryError) as error:
        code = _report_out_of_memory(error)
    except SystemExit as leaving:
        # click and rich exit with 1 if the reader closes the pipe (`| head -1`). This is not a failure.
        code = 0 if isinstance(leaving.__context__, BrokenPipeError) else leaving.code
    sys.exit(_flush(code if isinstance(code, int) else 0))


def _flush(code: int) -> int:
    """Flush standard output, so that a write error is reported, and return the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        return code or _fail(_describe_system_error(error), 1)
    return code


def _describe_system_error(error: OSError) -> str:
    from attendo.messages import SYSTEM_ERRORS

    reason = error.strerror
    if language.current_language() == "zh":
        reason = SYSTEM_ERRORS.get(error.errno or 0, reason)
    return say("{file}: {reason}", file=error.filename or LocalizedText("output"), reason=reason)


def _discard_output() -> None:
    """Redirect standard output to the null device, because Python flushes it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _refuse(error: Any) -> int:
    """Report a usage error. Without a command, the message of the error is the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return int(error.exit_code)
    from attendo.cli.language import translate_usage_error

    return _fail(translate_usage_error(error.format_message()), error.exit_code)


def _list_option_names(context: Any) -> dict[str, str]:
    """Return the options of the command, such as --n-best, by the setting, such as n_best."""
    return {each.name: max(each.opts, key=len) for each in context.command.params if each.param_type_name == "option"}


def _refuse_missing(path: Path, metavar: str | None, command: str | None) -> None:
    """Raise the error that reading the path would raise."""
    if metavar == "MODEL" and command in ("generate", "translate", "serve"):
        raise ModelError("model_folder_not_found", folder=path)
    if metavar == "RUN.toml":
        raise UsageError("run_file_not_found", path=path)


def _report_out_of_memory(error: Exception) -> int:
    """Report an out-of-memory error in one line. Raise any other error again."""
    from attendo.nn.devices import is_out_of_memory, oom_message

    if not is_out_of_memory(error):
        raise error
    return _fail(language.localise(oom_message(error)), 1)


def _fail(message: str, code: int) -> int:
    if message:
        print("attendo:", " ".join(message.split()), file=sys.stderr)
    return code


def _convert_lightly(parameter: Any) -> Any:
    """Return the parameter. Simple types are not converted by pydantic, whose import is slower than the help."""
    if _find_type(parameter) in (bool, int, float, str, Path) or parameter.type_descriptor.choices:
        parameter.get_runtime_param = _Conversion
    return parameter


class _Conversion:
    """The conversion interface that typer calls."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value in the parameter's type, or a list of values."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [_convert(param, each) for each in value] if several else _convert(param, value)
        except ValueError as error:
            raise typer.BadParameter(language.localise(error), ctx=ctx, param=param) from None


def _convert(parameter: Any, value: Any) -> Any:
    if choices := parameter.type_descriptor.choices:
        from attendo.decode.options import RENAMED_VALUES

        return value if value in RENAMED_VALUES.get(parameter.name, {}) else _choose(choices, value)
    kind = _find_type(parameter)
    if kind is bool:
        return value if isinstance(value, bool) else _choose(("true", "false"), str(value).lower()) == "true"
    if kind is int or kind is float:
        return _convert_number(parameter, kind, value)
    return kind(value)


def _choose(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if choice == value or str(choice) == value:
            return choice
    raise UsageError("option_value_unknown", value=str(value)[:60], choices=", ".join(map(repr, choices)))


def _convert_number(parameter: Any, number_type: type[int] | type[float], value: Any) -> float:
    try:
        number = number_type(value)
    except (ValueError, OverflowError):
        code = "option_value_not_integer" if number_type is int else "option_value_not_number"
        raise UsageError(code, value=str(value)[:60]) from None
    least, most = parameter.min, parameter.max
    if least is not None and not number >= least:  # NaN is not in any range
        raise UsageError("option_value_too_small", value=str(value)[:60], least=least)
    if most is not None and not number <= most:
        raise UsageError("option_value_too_large", value=str(value)[:60], most=most)
    return number


def _find_type(parameter: Any) -> Any:
    kind = parameter.type_descriptor.annotation
    return get_args(kind)[0] if get_origin(kind) is list else kind
