"""`attendo bench generate` and `attendo bench serve`: decoding speed and server load tests."""

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
    from attendo.bench.comparison import BenchmarkPlan, Measurement, Scoring, Sentences
    from attendo.bench.load_test import ConsistencyResult, Load, LoadMeasurement, LoadTestPlan
    from attendo.text_model import TextModel

LENGTH = 32  # of sources and answers, unless given
_CLIENTS = 32  # side by side, unless given


def generate(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Model folder; random weights unless given.")
    ] = None,
    rivals: Annotated[
        str,
        typer.Option(help="transformers, ctranslate2, ctranslate2_dealt, onnx; name:int8 has a precision of its own."),
    ] = "transformers,ctranslate2",
    batch: Annotated[str, typer.Option(help="Sentences side by side; one measurement each.")] = "1,64,256",
    beam: Annotated[str, typer.Option(help="Rows of a sentence; 1 is greedy. One measurement each.")] = "1,4",
    source_length: Annotated[int | None, typer.Option(min=2, help=f"Source tokens; {LENGTH} unless given.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help=f"Tokens of every answer; {LENGTH} unless given.")] = None,
    natural: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sources to answer, each answer as long as it comes.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --natural: the right answers, for each system's BLEU.")
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(min=5, help="Tokens of a random network; 32,000.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Size of a random network: tiny, small, base, big, paper; base.")
    ] = None,
    precision: Annotated[Literal["fp32", "fp16", "bf16"], typer.Option(help="What is computed in.")] = "fp32",
    rounds: Annotated[int, typer.Option(min=1, help="Times that all systems take turns; medians count.")] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Time generation: attendo, transformers and CTranslate2 with the same weights, encoder included.

    A rival that is not installed or cannot hold the network is named and left out. Before timing, all answer once: how
    many of their tokens are the same is part of the result, and with --references the BLEU of each.

    All are asked for the same: a sentence is done when as many hypotheses have ended as the beam has rows, and the one
    with the best mean log-probability is its answer.
    """
    if model is not None and (vocabulary or preset):
        raise UsageError("random_network_options_with_model")
    if natural is not None and (source_length or steps):
        raise UsageError("fixed_lengths_with_natural")
    if natural is not None and model is None:
        raise UsageError("natural_without_model")
    if references is not None and natural is None:
        raise UsageError("references_without_natural")
    beams, batches = _parse_integers("--beam", beam), _parse_integers("--batch", batch)

    from attendo.bench.comparison import BenchmarkPlan, forced_work, natural_work, parse_rivals
    from attendo.bench.random_network import random_network
    from attendo.interop.load import load
    from attendo.metrics import check_metric
    from attendo.text_model import pick_device

    if references is not None:
        check_metric("bleu")
    entrants, where = parse_rivals(rivals, precision), pick_device(device)
    loaded = load(model, "cpu") if model is not None else None
    network = loaded.network if loaded else random_network(preset or "base", vocabulary or 32_000)
    scoring = None
    if natural is not None and loaded is not None:
        sentences, scoring = _read(natural, references, loaded)
        works = natural_work(sentences, network.config, beams, batches)
    else:
        works = forced_work(network.config, source_length or LENGTH, steps or LENGTH, beams, batches)
    of = str(model) if model else f"random weights, preset {preset or 'base'}"
    _run(BenchmarkPlan(network, precision, entrants, works, rounds, where, scoring), of, as_json)


def _read(natural: Path, references: Path | None, model: "TextModel") -> tuple["Sentences", "Scoring | None"]:
    from attendo.bench.comparison import Scoring, read_sentences

    sentences = read_sentences(natural, model.source_tokenizer, references)
    if sentences.references is None:
        return sentences, None
    return sentences, Scoring(sentences.references, model.target_tokenizer)


def _parse_integers(option: str, text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError("option_not_positive_integers", option=option, value=text)
    return [int(word) for word in words]


def _run(plan: "BenchmarkPlan", of: str, as_json: bool) -> None:
    from attendo.bench.comparison import Doing, LeftOut, Measurement, compare, facts

    known = {**facts(plan.device), **_task(plan, of)}
    _print(json.dumps({"facts": known}) if as_json else _format_benchmark_header(known))
    if not as_json:
        bleu = "" if plan.scoring is None else f"  {'BLEU':>6}"
        _print(
            f"{'beam':>4} {'batch':>5}  {'system':{_WIDTH}} {'tokens/s':>10}  {'attendo / it':>12}  same tokens{bleu}"
        )
    for report in compare(plan):
        match report:
            case Doing():
                print(report.text, file=sys.stderr, flush=True)
            case LeftOut():
                _print(json.dumps(asdict(report)) if as_json else f"left out: {report.name}: {report.reason}")
            case Measurement():
                _print(json.dumps({**asdict(report), "tokens_per_second": report.speed}) if as_json else _row(report))


def _task(plan: "BenchmarkPlan", of: str) -> dict[str, Any]:
    first = plan.works[0]
    if first.forced:
        lengths = f"{len(first.sources[0]) + 1} source tokens, {first.most} forced steps"
    else:
        lengths = f"{len(first.sources):,} sources, natural lengths"
    return {
        "network": of,
        "parameters": sum(parameter.numel() for parameter in plan.network.parameters()),
        "precision": plan.precision,
        "lengths": lengths,
        "rounds": plan.rounds,
        "bleu": plan.scoring.signature if plan.scoring is not None else None,
    }


def _format_benchmark_header(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {facts[name]}" for name in _VERSIONS if facts[name])
    bleu = f"\nBLEU {facts['bleu']}" if facts["bleu"] else ""
    return (
        f"{facts['hardware']}, {facts['device']}, {facts['threads']} of {facts['cores']} threads; {versions}\n"
        f"{facts['network']}, {facts['parameters']:,} parameters, {facts['precision']}; {facts['lengths']}, "
        f"encoder included; {facts['rounds']} rounds, medians{bleu}"
    )


_VERSIONS = ("attendo", "torch", "transformers", "ctranslate2")
_WIDTH = 29  # of the longest name: ctranslate2 fp32 by sentences


def _row(measured: "Measurement") -> str:
    ratio = "" if measured.ratio is None else f"{measured.ratio:.2f}"
    same = "" if measured.same is None else f"{measured.same:.1%}"
    bleu = "" if measured.bleu is None else f"{measured.bleu:.2f}"
    start = f"{measured.beam:4} {measured.batch:5}  {measured.system:{_WIDTH}} {measured.speed:10,.0f}"
    return f"{start}  {ratio:>12}  {same:>11}  {bleu:>6}".rstrip()


def _print(line: str) -> None:
    """At once: whoever ends a long run early keeps what it has told."""
    print(line, flush=True)


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

    from attendo.bench.load_test import Load, LoadTestPlan, texts_of

    several = _parse_numbers("--clients", clients or ("" if rate else f"1,{_CLIENTS}"))
    common: dict[str, Any] = {
        "seconds": seconds,
        "deadline": deadline,
        "leaving": leave,
        "leave_within": leave_within,
        "seed": seed,
    }
    loads = [Load(clients=round(each), **common) for each in several]
    loads += [Load(rate=each, **common) for each in _parse_numbers("--rate", rate or "")]
    fields, headers = _fields(body, key)
    asked = texts_of(texts, count)
    options = [] if device == "auto" else ["--device", device]
    options += ["--languages", languages] if languages else []
    import asyncio

    with _servers(url, model, rival, options) as servers:
        plan = LoadTestPlan(servers, loads, asked, api, fields, headers, rounds, warm_up)
        if check_equal:
            raise typer.Exit(asyncio.run(_compare(plan, _most_clients(loads), as_json)))
        raise typer.Exit(asyncio.run(_measure(plan, as_json)))


@contextmanager
def _servers(url: str | None, model: Path | None, rival: str | None, options: list[str]) -> Iterator[Mapping[str, str]]:
    """By name; those that are started have said that they are ready, and end with the block."""
    from attendo.bench.load_test import exported, ready, started

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


async def _measure(plan: "LoadTestPlan", as_json: bool) -> int:
    from attendo.bench.load_test import Doing, measured

    found: list[LoadMeasurement] = []
    async for report in measured(plan):
        if isinstance(report, Doing):
            _tell(report.text)
        else:
            found.append(report)
    if as_json:
        for each in found:
            print(json.dumps(asdict(each)), flush=True)
    else:
        print(_format_load_header(plan), *_table(found), sep="\n", flush=True)
    for reason in dict.fromkeys(why for each in found for why in _reasons(each)):
        _tell(reason)
    answered, unwanted = (sum(map(count, found)) for count in (_answered, _unwanted))
    if unwanted and not answered:
        _tell("not one request was answered: there is nothing to measure")
    return int(unwanted > 0 and answered == 0)


def _reasons(each: "LoadMeasurement") -> Iterator[str]:
    """Of what failed, and of what was rejected for another reason than that there was too much of it."""
    yield from (f"failed: {why}" for why in each.summary.failures)
    yield from (f"rejected with {status}: {told}" for status, told in each.summary.told.items() if status != 429)


def _answered(each: "LoadMeasurement") -> int:
    return each.summary.answered


def _unwanted(each: "LoadMeasurement") -> int:
    """Who left, left; these would have stayed."""
    return sum(each.summary.rejected.values()) + each.summary.failed + each.summary.late


async def _compare(plan: "LoadTestPlan", clients: int, as_json: bool) -> int:
    from attendo.bench.load_test import compared

    code = 0
    async for each in compared(plan, clients):
        code |= not each.equal
        print(json.dumps(asdict(each) | {"equal": each.equal}) if as_json else _verdict(each), flush=True)
    return code


def _verdict(found: "ConsistencyResult") -> str:
    same = found.texts - found.unanswered - len(found.different)
    lines = [
        f"{found.server}: {same} of {found.texts} texts are the same from {found.clients} clients at once as alone"
    ]
    if found.unanswered:
        lines.append(f"{found.unanswered} were not answered")
    lines += [f"{source!r}: alone {alone!r}, under load {crowded!r}" for source, alone, crowded in found.different[:5]]
    return "\n".join(lines)


def _format_load_header(plan: "LoadTestPlan") -> str:
    load = plan.loads[0]
    leaving = f", {load.leaving:.0%} leave within {load.leave_within:g} s" if load.leaving else ""
    return (
        f"{', '.join(plan.servers.values())}; {plan.api}, {len(plan.texts):,} texts; "
        f"{load.seconds:g} s, deadline {load.deadline:g} s{leaving}; {plan.rounds} rounds, medians; times in ms"
    )


def _table(found: list["LoadMeasurement"]) -> Iterator[str]:
    """A column for every status that a request was rejected with, and none for what nobody told."""
    statuses = sorted({status for each in found for status in each.summary.rejected})
    rows = [dict(_cells(each, statuses)) for each in found]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    for row in (dict(zip(names, names, strict=True)), *rows):
        first, second, *rest = names
        words = [f"{row[first]:{widths[first]}}", f"{row[second]:{widths[second]}}"]
        yield "  ".join([*words, *(f"{row[name]:>{widths[name]}}" for name in rest)]).rstrip()


def _cells(each: "LoadMeasurement", statuses: list[int]) -> Iterator[tuple[str, str]]:
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


def _parse_numbers(option: str, text: str) -> list[float]:
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
