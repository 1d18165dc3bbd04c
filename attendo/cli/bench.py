"""The `attendo bench generate` and `attendo bench serve` commands: decoding speed and server load tests."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attendo.cli.language import localise, pad_columns, say
from attendo.cli.options import Device, JsonLines
from attendo.cli.output import align_columns, print_stderr
from attendo.errors import LocalizedText, UsageError

if TYPE_CHECKING:
    from attendo.bench.comparison import BenchmarkPlan, BenchmarkSentences, BleuScorer, Measurement
    from attendo.bench.load_test.report import ConsistencyResult, LoadMeasurement, LoadTestPlan
    from attendo.text_model import TextModel

DEFAULT_LENGTH = 32  # tokens per source and per output
_DEFAULT_CLIENTS = 32  # concurrent clients


def generate(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Model folder; default: random weights.")
    ] = None,
    rivals: Annotated[
        str,
        typer.Option(help="transformers, ctranslate2, ctranslate2_dealt, onnx; name:int8 sets a system's precision."),
    ] = "transformers,ctranslate2",
    batch: Annotated[str, typer.Option(help="Batch sizes in sentences; one measurement each.")] = "1,64,256",
    beam: Annotated[str, typer.Option(help="Beam sizes; 1 is greedy. One measurement each.")] = "1,4",
    source_length: Annotated[int | None, typer.Option(min=2, help=f"Source tokens; default: {DEFAULT_LENGTH}.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help=f"Generated tokens per sentence; default: {DEFAULT_LENGTH}.")
    ] = None,
    natural: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Source sentences; each output ends at its own EOS.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --natural: references, for the BLEU of each system.")
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(min=5, help="Vocabulary size of a random network; default: 32,000.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Preset of a random network: tiny, small, base, big, paper; default: base.")
    ] = None,
    precision: Annotated[Literal["fp32", "fp16", "bf16"], typer.Option(help="Precision of the computation.")] = "fp32",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all systems; medians are reported.")] = 5,
    device: Device = "auto",
    as_json: JsonLines = False,
) -> None:
    """Compare generation speed of attendo, transformers and CTranslate2 with the same weights.

    A system that is not installed or cannot run the network is reported and skipped. Before timing, each system
    generates once. The result includes the share of equal tokens and, with --references, the BLEU of each system.

    All systems use the same search. A sentence ends when the number of finished hypotheses equals the beam size. Its
    output is the hypothesis with the best mean log-probability.
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

    from attendo.bench.comparison import BenchmarkPlan, make_forced_workloads, make_natural_workloads, parse_baselines
    from attendo.bench.random_network import make_random_network
    from attendo.metrics import check_metric
    from attendo.text_model import pick_device

    if references is not None:
        check_metric("bleu")
    baselines, where = parse_baselines(rivals, precision), pick_device(device)
    loaded = _load_autoregressive(model) if model is not None else None
    network = loaded.network if loaded else make_random_network(preset or "base", vocabulary or 32_000)
    scoring = None
    if natural is not None and loaded is not None:
        sentences, scoring = _read_natural(natural, references, loaded)
        workloads = make_natural_workloads(sentences, network.config, beams, batches)
    else:
        workloads = make_forced_workloads(
            network.config, source_length or DEFAULT_LENGTH, steps or DEFAULT_LENGTH, beams, batches
        )
    name = str(model) if model else LocalizedText("random weights, preset {preset}", preset=preset or "base")
    _run_benchmark(BenchmarkPlan(network, precision, baselines, workloads, rounds, where, scoring), name, as_json)


def _load_autoregressive(folder: Path) -> "TextModel":
    """Load a model whose speed can be compared with that of other systems."""
    from attendo.interop.load import load

    model = load(folder, "cpu")
    model.require_autoregressive("a speed comparison")
    return model


def _read_natural(
    natural: Path, references: Path | None, model: "TextModel"
) -> tuple["BenchmarkSentences", "BleuScorer | None"]:
    from attendo.bench.comparison import BleuScorer, read_sentences

    sentences = read_sentences(natural, model.source_tokenizer, references)
    if sentences.references is None:
        return sentences, None
    return sentences, BleuScorer(sentences.references, model.target_tokenizer)


def _parse_integers(option: str, text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError("option_not_positive_integers", option=option, value=text)
    return [int(word) for word in words]


def _run_benchmark(plan: "BenchmarkPlan", network_name: str, as_json: bool) -> None:
    from attendo.bench import Progress
    from attendo.bench.comparison import Measurement, SkippedSystem, collect_environment, compare

    known = {**collect_environment(plan.device), **_describe_task(plan, network_name)}
    print(json.dumps({"facts": known}) if as_json else _format_benchmark_header(known), flush=True)
    if not as_json:
        bleu = "" if plan.scorer is None else f"  {'BLEU':>6}"
        print(
            pad_columns(say("beam"), 4, align_right=True),
            pad_columns(say("batch"), 5, align_right=True),
            "",
            pad_columns(say("system"), _SYSTEM_WIDTH),
            pad_columns(say("tokens/s"), 10, align_right=True),
            pad_columns(say("attendo / it"), 13, align_right=True),
            "",
            f"{say('same tokens')}{bleu}",
            flush=True,
        )
    for report in compare(plan):
        match report:
            case Progress():
                print_stderr(localise(report.text))
            case SkippedSystem():
                line = say("left out: {name}: {reason}", name=report.name, reason=report.reason)
                print(json.dumps(asdict(report)) if as_json else line, flush=True)
            case Measurement():
                content = {**asdict(report), "tokens_per_second": report.speed}
                print(json.dumps(content) if as_json else _format_benchmark_row(report), flush=True)


def _describe_task(plan: "BenchmarkPlan", network_name: str) -> dict[str, Any]:
    first = plan.workloads[0]
    if first.has_fixed_length:
        lengths = LocalizedText(
            "{num_sources} source tokens, {max_tokens} forced steps",
            num_sources=len(first.sources[0]) + 1,
            max_tokens=first.max_tokens,
        )
    else:
        lengths = LocalizedText("{num_sources:,} sources, natural lengths", num_sources=len(first.sources))
    return {
        "network": network_name,
        "parameters": sum(parameter.numel() for parameter in plan.network.parameters()),
        "precision": plan.precision,
        "lengths": lengths,
        "rounds": plan.rounds,
        "bleu": plan.scorer.signature if plan.scorer is not None else None,
    }


def _format_benchmark_header(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {facts[name]}" for name in _PACKAGE_NAMES if facts[name])
    bleu = f"\nBLEU {facts['bleu']}" if facts["bleu"] else ""
    first = say("{hardware}, {device}, {threads} of {cores} threads; {versions}", **facts | {"versions": versions})
    second = say(
        "{network}, {parameters:,} parameters, {precision}; {lengths}, encoder included; {rounds} rounds, medians",
        **facts,
    )
    return f"{first}\n{second}{bleu}"


_PACKAGE_NAMES = ("attendo", "torch", "transformers", "ctranslate2")
_SYSTEM_WIDTH = 29  # length of the longest name: ctranslate2 fp32 by sentences


def _format_benchmark_row(measurement: "Measurement") -> str:
    ratio = "" if measurement.ratio is None else f"{measurement.ratio:.2f}"
    same = "" if measurement.same is None else f"{measurement.same:.1%}"
    bleu = "" if measurement.bleu is None else f"{measurement.bleu:.2f}"
    start = (
        f"{measurement.beam:4} {measurement.batch:5}  {measurement.system:{_SYSTEM_WIDTH}} {measurement.speed:10,.0f}"
    )
    return f"{start}  {ratio:>12}  {same:>11}  {bleu:>6}".rstrip()


def serve(
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="URL of a running server, such as :8800.")] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Start a server with this model on a free port instead.")
    ] = None,
    rival: Annotated[
        str | None,
        typer.Option(help="With --model: also start a server with ctranslate2, with onnx or with this model folder."),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(help=f"Concurrent clients in a closed loop; default without --rate: 1,{_DEFAULT_CLIENTS}."),
    ] = None,
    rate: Annotated[str | None, typer.Option(help="Requests per second in an open loop; one load each.")] = None,
    seconds: Annotated[float, typer.Option(help="Duration of each load in seconds.")] = 10.0,
    deadline: Annotated[float, typer.Option(help="Client timeout in seconds.")] = 10.0,
    leave: Annotated[float, typer.Option(help="Share of clients that disconnect before the response.")] = 0.0,
    leave_within: Annotated[float, typer.Option(help="Seconds within which those clients disconnect.")] = 0.5,
    api: Annotated[
        Literal["libretranslate", "own", "openai"], typer.Option(help="API to call; openai streams.")
    ] = "libretranslate",
    texts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts to send, one per line; default: demo sentences.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of different texts.")] = 500,
    body: Annotated[str, typer.Option(metavar="JSON", help="Fields for every request body, as a JSON object.")] = "{}",
    key: Annotated[str | None, typer.Option(envvar="ATTENDO_KEY", help="API key, if the server requires one.")] = None,
    check_equal: Annotated[
        bool, typer.Option("--check-equal", help="Only compare: is every output under load the same as alone?")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all servers and loads.")] = 1,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of load before measuring.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of arrival times and disconnecting clients.")] = 1,
    device: Annotated[str, typer.Option(help="Device of a started server: auto, cpu, cuda or cuda:N.")] = "auto",
    languages: Annotated[
        str | None, typer.Option(metavar="SOURCE-TARGET", help="Languages, if the model folder does not name them.")
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Load-test a server: throughput, latency and rejections as clients see them.

    With --rate, requests arrive at random times, even if the server falls behind (an open loop). With --clients, each
    client sends its next request after the response (a closed loop). Latency counts from the time a request was due.
    Throughput counts responses that arrive during the load. With several loads it is also given relative to the first.

    Exit codes: 0 measured, 1 every request failed, or with --check-equal an output differs.
    """
    if (url is None) == (model is None):
        raise UsageError("url_or_model_required")
    if rival is not None and model is None:
        raise UsageError("rival_without_model")

    from attendo.bench.load_test.load import Load
    from attendo.bench.load_test.report import LoadTestPlan
    from attendo.bench.load_test.server import load_texts

    clients = clients or (None if rate else f"1,{_DEFAULT_CLIENTS}")
    client_counts = [] if clients is None else _parse_integers("--clients", clients)
    try:
        rates = [float(word) for word in rate.split(",")] if rate else []
    except ValueError:
        raise UsageError("option_not_numbers", option="--rate", value=rate) from None
    make_load = partial(Load, seconds=seconds, deadline=deadline, leaving=leave, leave_within=leave_within, seed=seed)
    loads = [*(make_load(clients=each) for each in client_counts), *(make_load(rate=each) for each in rates)]
    fields, headers = _parse_body_fields(body, key)
    requests = load_texts(texts, count)
    options = [] if device == "auto" else ["--device", device]
    options += ["--languages", languages] if languages else []
    import asyncio

    with _start_servers(url, model, rival, options) as servers:
        plan = LoadTestPlan(servers, loads, requests, api, fields, headers, rounds, warm_up)
        if check_equal:
            most = max(client_counts, default=_DEFAULT_CLIENTS)
            raise typer.Exit(asyncio.run(_check_equal_texts(plan, most, as_json)))
        raise typer.Exit(asyncio.run(_measure_load(plan, as_json)))


@contextmanager
def _start_servers(
    url: str | None, model: Path | None, baseline: str | None, options: list[str]
) -> Iterator[Mapping[str, str]]:
    """Yield server URLs by name. Started servers are ready and stop when the block ends."""
    from attendo.bench.load_test.report import wait_until_ready
    from attendo.bench.load_test.server import export_temporarily, start_server

    if model is None:
        yield {"server": f"http://127.0.0.1{url}" if str(url).startswith(":") else str(url)}
        return
    import asyncio

    with ExitStack() as stack:
        folders = {"attendo": model}
        if baseline in ("ctranslate2", "onnx"):
            print_stderr(say("exporting to {baseline}", baseline=baseline))
            folders[baseline] = stack.enter_context(export_temporarily(model, baseline))
        elif baseline is not None:
            folders[Path(baseline).name] = Path(baseline)
        servers = {}
        for name, folder in folders.items():
            print_stderr(say("starting {name}", name=name))
            servers[name] = stack.enter_context(start_server([folder], *options)).url
            asyncio.run(wait_until_ready(servers[name]))
        yield servers


async def _measure_load(plan: "LoadTestPlan", as_json: bool) -> int:
    from attendo.bench import Progress
    from attendo.bench.load_test.report import run_load_test

    found: list[LoadMeasurement] = []
    async for report in run_load_test(plan):
        if isinstance(report, Progress):
            print_stderr(localise(report.text))
        else:
            found.append(report)
    if as_json:
        for each in found:
            print(json.dumps(asdict(each)), flush=True)
    else:
        print(_format_load_header(plan), *_format_load_table(found), sep="\n", flush=True)
    for reason in dict.fromkeys(why for each in found for why in _list_reasons(each)):
        print_stderr(reason)
    # A client that disconnected on purpose is no failure.
    ends = [each.summary for each in found]
    if all_failed := not any(each.answered for each in ends) and any(
        each.rejected or each.failed or each.late for each in ends
    ):
        print_stderr(say("not one request was answered: there is nothing to measure"))
    return int(all_failed)


def _list_reasons(each: "LoadMeasurement") -> Iterator[str]:
    """Yield the reasons of failures and of rejections, except status 429."""
    yield from (say("failed: {why}", why=why) for why in each.summary.failures)
    yield from (
        say("rejected with {status}: {text}", status=status, text=text)
        for status, text in each.summary.rejection_bodies.items()
        if status != 429
    )


async def _check_equal_texts(plan: "LoadTestPlan", clients: int, as_json: bool) -> int:
    from attendo.bench.load_test.report import check_consistency

    code = 0
    async for each in check_consistency(plan, clients):
        code |= not each.equal
        print(json.dumps(asdict(each) | {"equal": each.equal}) if as_json else _format_consistency(each), flush=True)
    return code


def _format_consistency(found: "ConsistencyResult") -> str:
    same = found.texts - found.unanswered - len(found.different)
    lines = [
        say(
            "{server}: {same} of {texts} texts are the same from {clients} clients at once as alone",
            server=found.server,
            same=same,
            texts=found.texts,
            clients=found.clients,
        )
    ]
    if found.unanswered:
        lines.append(say("{unanswered} were not answered", unanswered=found.unanswered))
    lines += [
        say("{source!r}: alone {alone!r}, under load {loaded!r}", source=source, alone=alone, loaded=loaded)
        for source, alone, loaded in found.different[:5]
    ]
    return "\n".join(lines)


def _format_load_header(plan: "LoadTestPlan") -> str:
    load = plan.loads[0]
    leaving = (
        say(", {leaving:.0%} leave within {leave_within:g} s", leaving=load.leaving, leave_within=load.leave_within)
        if load.leaving
        else ""
    )
    return say(
        "{servers}; {api}, {texts:,} texts; {seconds:g} s, deadline {deadline:g} s{leaving}; {rounds} rounds, medians; "
        "times in ms",
        servers=", ".join(plan.servers.values()),
        api=plan.api,
        texts=len(plan.texts),
        seconds=load.seconds,
        deadline=load.deadline,
        leaving=leaving,
        rounds=plan.rounds,
    )


def _format_load_table(found: list["LoadMeasurement"]) -> Iterator[str]:
    """Yield the table with one column per rejection status."""
    statuses = sorted({status for each in found for status in each.summary.rejected})
    return align_columns([dict(_format_load_cells(each, statuses)) for each in found], ("server", "load"))


def _format_load_cells(each: "LoadMeasurement", statuses: list[int]) -> Iterator[tuple[str, str]]:
    summary = each.summary
    yield from {"server": each.server, "load": localise(each.load)}.items()
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


def _parse_body_fields(body: str, key: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body fields and the headers of every request."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise UsageError("body_not_json_object", body=body)
    return fields, {} if key is None else {"Authorization": f"Bearer {key}"}
