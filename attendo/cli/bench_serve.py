"""`attendo bench serve`: what a server bears, and what its clients see of it."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.recipes.bench_serving import Compared, Load, Measured, Plan

_CLIENTS = 32  # side by side, unless given


def serve(
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="Of a server that runs, such as :8800.")] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Start a server with this model on a free port instead.")
    ] = None,
    rival: Annotated[
        str | None,
        typer.Option(help="With --model: beside it the same server with ctranslate2 or onnx, or with another folder."),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help=f"Clients that ask again when answered; 1,{_CLIENTS} without --rate.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Requests a second that come whatever becomes of them; one load each.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="That each load lasts.")] = 10.0,
    deadline: Annotated[float, typer.Option(help="Seconds until a client gives up.")] = 10.0,
    leave: Annotated[float, typer.Option(help="Share of clients that leave before they are answered.")] = 0.0,
    leave_within: Annotated[float, typer.Option(help="Seconds in which those leave.")] = 0.5,
    api: Annotated[
        Literal["libretranslate", "own", "openai"], typer.Option(help="In whose shape; openai is a stream.")
    ] = "libretranslate",
    texts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts to ask for, one a line; sentences of the demo.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many different texts.")] = 500,
    body: Annotated[str, typer.Option(metavar="JSON", help="Fields that every body gets, as a JSON object.")] = "{}",
    key: Annotated[str | None, typer.Option(envvar="ATTENDO_KEY", help="A key, where the server asks for one.")] = None,
    check_equal: Annotated[
        bool, typer.Option("--check-equal", help="Only compare: is every text the same under load as alone?")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Times that all servers and loads take turns.")] = 1,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of load before anything counts.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of arrivals and of who leaves.")] = 1,
    device: Annotated[str, typer.Option(help="Of a server that is started: auto, cpu, cuda or cuda:N.")] = "auto",
    languages: Annotated[
        str | None, typer.Option(metavar="SOURCE-TARGET", help="Of a model whose folder does not tell them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Load a server: throughput, latency, rejections, as its clients see them.

    With --rate requests come at random moments, also while the server is behind: an open loop. With --clients each asks
    again as soon as it is answered. Latency counts from the moment a request was due. Throughput is what was answered
    while the load lasted; with several loads it is also told in relation to the first.

    Exit codes: 0 measured, 1 not one request was answered, or with --check-equal a text differs.
    """
    if (url is None) == (model is None):
        raise UsageError("url_or_model_required")
    if rival is not None and model is None:
        raise UsageError("rival_without_model")

    from attendo.recipes.bench_serving import Load, Plan, texts_of

    several = _numbers("--clients", clients or ("" if rate else f"1,{_CLIENTS}"))
    common: dict[str, Any] = {
        "seconds": seconds,
        "deadline": deadline,
        "leaving": leave,
        "leave_within": leave_within,
        "seed": seed,
    }
    loads = [Load(clients=round(each), **common) for each in several]
    loads += [Load(rate=each, **common) for each in _numbers("--rate", rate or "")]
    fields, headers = _fields(body, key)
    asked = texts_of(texts, count)
    options = [] if device == "auto" else ["--device", device]
    options += ["--languages", languages] if languages else []
    import asyncio

    with _servers(url, model, rival, options) as servers:
        plan = Plan(servers, loads, asked, api, fields, headers, rounds, warm_up)
        if check_equal:
            raise typer.Exit(asyncio.run(_compare(plan, _most_clients(loads), as_json)))
        raise typer.Exit(asyncio.run(_measure(plan, as_json)))


@contextmanager
def _servers(url: str | None, model: Path | None, rival: str | None, options: list[str]) -> Iterator[Mapping[str, str]]:
    """By name; those that are started have said that they are ready, and end with the block."""
    from attendo.recipes.bench_serving import exported, ready, started

    if model is None:
        yield {"server": f"http://127.0.0.1{url}" if str(url).startswith(":") else str(url)}
        return
    import asyncio

    with ExitStack() as stack:
        folders = {"attendo": model}
        if rival in ("ctranslate2", "onnx"):
            _tell(f"exporting to {rival}")
            folders[rival] = stack.enter_context(exported(model, rival))
        elif rival is not None:
            folders[Path(rival).name] = Path(rival)
        servers = {}
        for name, folder in folders.items():
            _tell(f"starting {name}")
            servers[name] = stack.enter_context(started([folder], *options)).url
            asyncio.run(ready(servers[name]))
        yield servers


async def _measure(plan: "Plan", as_json: bool) -> int:
    from attendo.recipes.bench_serving import Doing, measured

    found: list[Measured] = []
    async for report in measured(plan):
        if isinstance(report, Doing):
            _tell(report.text)
        else:
            found.append(report)
    if as_json:
        for each in found:
            print(json.dumps(asdict(each)), flush=True)
    else:
        print(_headline(plan), *_table(found), sep="\n", flush=True)
    for reason in dict.fromkeys(why for each in found for why in _reasons(each)):
        _tell(reason)
    answered, unwanted = (sum(map(count, found)) for count in (_answered, _unwanted))
    if unwanted and not answered:
        _tell("not one request was answered: there is nothing to measure")
    return int(unwanted > 0 and answered == 0)


def _reasons(each: "Measured") -> Iterator[str]:
    """Of what failed, and of what was rejected for another reason than that there was too much of it."""
    yield from (f"failed: {why}" for why in each.summary.failures)
    yield from (f"rejected with {status}: {told}" for status, told in each.summary.told.items() if status != 429)


def _answered(each: "Measured") -> int:
    return each.summary.answered


def _unwanted(each: "Measured") -> int:
    """Who left, left; these would have stayed."""
    return sum(each.summary.rejected.values()) + each.summary.failed + each.summary.late


async def _compare(plan: "Plan", clients: int, as_json: bool) -> int:
    from attendo.recipes.bench_serving import compared

    code = 0
    async for each in compared(plan, clients):
        code |= not each.equal
        print(json.dumps(asdict(each) | {"equal": each.equal}) if as_json else _verdict(each), flush=True)
    return code


def _verdict(found: "Compared") -> str:
    same = found.texts - found.unanswered - len(found.different)
    lines = [
        f"{found.server}: {same} of {found.texts} texts are the same from {found.clients} clients at once as alone"
    ]
    if found.unanswered:
        lines.append(f"{found.unanswered} were not answered")
    lines += [f"{source!r}: alone {alone!r}, under load {crowded!r}" for source, alone, crowded in found.different[:5]]
    return "\n".join(lines)


def _headline(plan: "Plan") -> str:
    load = plan.loads[0]
    leaving = f", {load.leaving:.0%} leave within {load.leave_within:g} s" if load.leaving else ""
    return (
        f"{', '.join(plan.servers.values())}; {plan.api}, {len(plan.texts):,} texts; "
        f"{load.seconds:g} s, deadline {load.deadline:g} s{leaving}; {plan.rounds} rounds, medians; times in ms"
    )


def _table(found: list["Measured"]) -> Iterator[str]:
    """A column for every status that a request was rejected with, and none for what nobody told."""
    statuses = sorted({status for each in found for status in each.summary.rejected})
    rows = [dict(_cells(each, statuses)) for each in found]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    for row in (dict(zip(names, names, strict=True)), *rows):
        first, second, *rest = names
        words = [f"{row[first]:{widths[first]}}", f"{row[second]:{widths[second]}}"]
        yield "  ".join([*words, *(f"{row[name]:>{widths[name]}}" for name in rest)]).rstrip()


def _cells(each: "Measured", statuses: list[int]) -> Iterator[tuple[str, str]]:
    summary = each.summary
    yield from {"server": each.server, "load": each.load}.items()
    yield from {"offered": f"{summary.offered:,}", "answered": f"{summary.answered:,}"}.items()
    yield from ((str(status), str(summary.rejected.get(status, 0))) for status in statuses)
    yield from ((name, str(getattr(summary, name) or "")) for name in ("late", "left", "failed"))
    yield "requests/s", f"{summary.requests_per_second:.1f}"
    yield "tokens/s", "" if summary.tokens_per_second is None else f"{summary.tokens_per_second:,.0f}"
    for name, spread in (("", summary.latency), ("first ", summary.first_token)):
        for share in ("p50", "p90", "p99", "most") if not name else ("p50", "p99"):
            yield f"{name}{share}", "" if spread is None else f"{1000 * getattr(spread, share):.0f}"
    yield "x first", "" if each.beside_first_load is None else f"{each.beside_first_load:.2f}"
    yield "attendo / it", "" if each.first_beside_it is None else f"{each.first_beside_it:.2f}"


def _fields(body: str, key: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """What every request gets: fields of its body, and headers."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise UsageError("body_not_json_object", body=body)
    return fields, {} if key is None else {"Authorization": f"Bearer {key}"}


def _most_clients(loads: list["Load"]) -> int:
    return max((load.clients for load in loads if load.clients is not None), default=_CLIENTS)


def _numbers(option: str, text: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",")] if text else []
    except ValueError:
        found = [0.0]
    whole = option == "--clients"
    if not all(0 < each < 1e6 and (not whole or each.is_integer()) for each in found):
        raise UsageError("option_not_positive_numbers", option=option, value=text)
    return found


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
