"""The `attendo explore` command: serves the explorer page for a model."""

from pathlib import Path
from typing import Annotated

import typer

from attendo.cli.language import say
from attendo.cli.options import Device, Port, Threads
from attendo.cli.output import print_stderr


def explore(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Model folders, such as runs/demo/model; shows the first.")
    ],
    port: Port = 8800,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines can connect unless it is a loopback address.")
    ] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Inspect a model in the browser: attention, steps, beams, masks, formulas with their numbers.

    Prints the address of the page. Ctrl-C stops the server. Needs `pip install 'attendo[serve]'`.
    """
    from attendo.serve.server import bind, open_browser, serve

    with bind(host, port) as socket:  # fail on a used port before loading a model
        from attendo.interop.load import load_torch_model
        from attendo.serve.app import create_app
        from attendo.serve.scheduling.registry import make_model_specs
        from attendo.serve.settings import LOOPBACK, ServeSettings

        app = create_app(
            make_model_specs(models, [load_torch_model(folder, device) for folder in models]),
            ServeSettings(allowed_hosts=(*LOOPBACK, host.lower()), drain_seconds=1.0),
        )
        if host not in LOOPBACK:
            print_stderr(say("every client that can reach {host} can use this page: it has no password", host=host))
        print(socket.address, flush=True)
        code = serve(app, socket, on_ready=lambda: None if no_open else open_browser(socket.address), quiet=True)
    raise typer.Exit(code)
