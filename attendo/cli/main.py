"""The command line. Commands import torch only when they run, so that help and mistakes are answered at once."""

import sys
from typing import Any

import typer

from attendo import __version__
from attendo.cli.average import average
from attendo.cli.bench import bench
from attendo.cli.demo import demo
from attendo.cli.describe import describe
from attendo.cli.doctor import doctor
from attendo.cli.evaluate import evaluate
from attendo.cli.explore import explore
from attendo.cli.export import export
from attendo.cli.finetune import finetune
from attendo.cli.generate import generate
from attendo.cli.heads import heads
from attendo.cli.import_model import import_model
from attendo.cli.interrupt import tidying
from attendo.cli.plot import plot
from attendo.cli.plot_attention import plot_attention
from attendo.cli.prepare import prepare
from attendo.cli.reproduce import reproduce
from attendo.cli.score import score
from attendo.cli.serve import serve
from attendo.cli.trace import trace
from attendo.cli.train import train
from attendo.cli.verify import verify
from attendo.cli.verify_resume import verify_resume
from attendo.errors import AttendoError

# typer carries its own copy of click and shows only the leaves of its exceptions; this is what they all stem from.
ClickException: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The encoder–decoder Transformer you can train, run and see through.",
    epilog="Start with: attendo demo",
)
app.command()(demo)
app.command()(prepare)
app.command()(train)
app.command()(finetune)
app.command()(average)
app.command()(reproduce)
app.command()(plot)
app.command()(doctor)
app.command("verify-resume")(verify_resume)
app.command()(generate)
app.command("translate", hidden=True, help="The same as generate.")(generate)
app.command()(score)
app.command()(evaluate)
app.command()(verify)
app.command()(describe)
app.command()(trace)
app.command()(serve)
app.command()(explore)
app.command()(heads)
app.command("plot-attention")(plot_attention)
app.command("import")(tidying()(import_model))
app.command()(tidying()(export))
app.add_typer(bench, name="bench")


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
        code = typer.main.get_command(app)(standalone_mode=False)
    except ClickException as error:
        code = _fail(error.format_message(), error.exit_code)
    except AttendoError as error:
        code = _fail(str(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        code = _fail("interrupted", 130)
    except OSError as error:
        code = _fail(f"{error.filename or 'output'}: {error.strerror}", 1)
    except (RuntimeError, MemoryError) as error:
        code = _out_of_memory(error)
    except SystemExit as leaving:
        # click and rich leave with 1 when whoever read our output has seen enough (`| head -1`). That is no failure.
        code = 0 if isinstance(leaving.__context__, BrokenPipeError) else leaving.code
    sys.exit(code if isinstance(code, int) else 0)


def _out_of_memory(error: Exception) -> int:
    """Any other fault is ours, and told in full."""
    from attendo.nn.out_of_memory import ran_out, told

    if not ran_out(error):
        raise error
    return _fail(told(error), 1)


def _fail(message: str, code: int) -> int:
    if message:
        print("attendo:", " ".join(message.split()), file=sys.stderr)
    return code
