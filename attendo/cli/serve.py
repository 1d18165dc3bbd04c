"""The `attendo serve` command: serves models over common HTTP APIs."""

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from attendo.cli.language import localise, say
from attendo.cli.options import Device, Port, Threads, expand_options
from attendo.cli.output import print_stderr
from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.serve.app import Application
    from attendo.serve.settings import ServeSettings


def _read_config(context: typer.Context, file: Path | None) -> Path | None:
    """Read options that are not given from a TOML file with the same names."""
    if file is None:
        return None
    import tomllib

    from attendo.settings import suggest_name

    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError("server_config_not_readable", path=file, reason=error.strerror) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("server_config_not_toml", path=file, reason=error) from None
    names = {each.opts[0].removeprefix("--").replace("-", "_"): each.name for each in context.command.params}
    found: dict[str, Any] = {}
    for name, value in values.items():
        if (key := name.replace("-", "_")) not in names or key in ("config", "check", "help"):
            raise UsageError("unknown_server_option", path=file, option=name, suggestion=suggest_name(key, [*names]))
        found[str(names[key])] = [f"{each}={value[each]}" for each in value] if isinstance(value, dict) else value
    context.default_map = {**(context.default_map or {}), **found}
    return file


@dataclass(frozen=True)
class _LoadOptions:
    """How models are loaded. The names are those of `load_models`."""

    device: Device = "auto"
    precision: Annotated[str | None, typer.Option(help="auto, fp32, bf16 or fp16.")] = None
    threads: Threads = None
    languages: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE-TARGET", help="Such as en-zh; one per model, if its folder does not name the languages."
        ),
    ] = None
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", help="translation, summarization, conversation or generation; one per model."),
    ] = None


@dataclass(frozen=True)
class _ServerOptions:
    """Settings that have an option of their own. The names are those of `ServeSettings`."""

    cors_origins: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", metavar="ORIGIN", help="Origin allowed by CORS, such as https://x.org."),
    ] = None
    deadline_seconds: Annotated[
        float | None, typer.Option("--deadline", help="Time limit of a request in seconds.")
    ] = None
    documents_folder: Annotated[
        Path | None, typer.Option(help="Folder for translated documents; default: a temporary folder.")
    ] = None
    metrics_open: Annotated[
        bool, typer.Option("--metrics-open", help="Serve /metrics to other machines too, without a key.")
    ] = False
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text"
    log_level: Annotated[str, typer.Option(help="info (one line per request), warning or error.")] = "info"


@expand_options
def serve(
    *,
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Model folders or exported folders; the first is the default.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all addresses.")] = "127.0.0.1",
    port: Port = 8800,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Host name or address that requests may use.")
    ] = None,
    load_options: _LoadOptions,
    key_file: Annotated[
        Path | None, typer.Option(help="API keys, one per line; every request needs one. Also: ATTENDO_KEYS.")
    ] = None,
    options: _ServerOptions,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a limit, such as max_queued=64.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with options by name, models and a table named set; options on the command line win.",
            callback=_read_config,
            is_eager=True,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load all models, print what would be served, then exit.")
    ] = False,
) -> None:
    """Serve models over HTTP: LibreTranslate, DeepL, OpenAI, Hugging Face and native APIs, and the page.

    Prints the address when the server is ready. SIGTERM stops it after requests in flight are finished.

    Exit codes: 0 stopped normally, 2 setting, 3 data, 4 model, 70 the worker died or hung. Needs
    `pip install 'attendo[serve]'`.
    """
    from attendo.serve.server import bind, check_bindable
    from attendo.serve.server import serve as run
    from attendo.serve.settings import LOOPBACK

    settings = _make_settings(options, [host, *(allow_host or [])], key_file, change or [])
    if check:
        check_bindable(host, port)
        _check(_make_app(models, load_options, settings))
        return
    with bind(host, port, allow_wildcard=True) as socket:  # fail on a used port before loading a model
        app = _make_app(models, load_options, settings)
        _report_models(app, sys.stderr)
        if host not in LOOPBACK and not settings.keys:
            print_stderr(
                say(
                    "warning: every client that can reach {host} can use this server: give it a key (--key-file)",
                    host=host,
                )
            )
        code = run(app, socket, on_ready=lambda: print(socket.address, flush=True))
    raise typer.Exit(code)


def _make_app(models: list[Path], load_options: _LoadOptions, settings: "ServeSettings") -> "Application":
    from attendo.serve.app import create_app
    from attendo.serve.scheduling.registry import load_models
    from attendo.serve.translation.documents import check_documents_folder

    if settings.documents_folder is not None:
        check_documents_folder(settings.documents_folder)
    given = {name: value for name, value in asdict(load_options).items() if value}
    return create_app(load_models(models, **given), settings)


def _make_settings(
    options: _ServerOptions, host_names: list[str], key_file: Path | None, changes: list[str]
) -> "ServeSettings":
    from attendo.runs.config import apply_changes
    from attendo.serve.http.auth import check_key, read_keys
    from attendo.serve.settings import LOOPBACK, ServeSettings

    given = {name: value for name, value in asdict(options).items() if value is not None}
    everywhere = [name for name in host_names if name in ("0.0.0.0", "::")]
    called = [name.lower().strip("[]") for name in host_names if name not in everywhere]
    if everywhere and not called:
        raise UsageError("allow_host_missing", host=everywhere[0])
    keys = read_keys(key_file, os.environ.get("ATTENDO_KEYS"))
    hosts = tuple(dict.fromkeys((*LOOPBACK, *called)))
    changed = ServeSettings.with_new_names(apply_changes({}, changes))
    settings = ServeSettings(**{**ServeSettings.with_new_names(given), "allowed_hosts": hosts, "keys": keys, **changed})
    for key in settings.keys:
        check_key(key, "--set keys")  # `read_keys` has checked the others
    return settings


def _check(app: "Application") -> None:
    """Run a warm-up generation on every model and report the models."""
    import asyncio

    async def warm_up() -> None:
        await app.gateway.warm_up()
        for each in app.gateway.registry.all():
            await each.worker.drain()

    asyncio.run(warm_up())
    _report_models(app, sys.stdout)


def _report_models(app: "Application", stream: TextIO) -> None:
    from attendo.serve.scheduling.registry import describe, missing_language_warning

    for each in app.gateway.registry.all():
        print(localise(describe(each)), file=stream, flush=True)
        if warning := missing_language_warning(each):
            print_stderr(say("warning: {warning}", warning=warning))
