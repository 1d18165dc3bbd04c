"""`attendo bench generate`: speed beside other systems with the same weights."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.recipes.bench import Measured, Plan, Scoring, Sentences
    from attendo.text_model import TextModel

LENGTH = 32  # of sources and answers, unless given


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
    beams, batches = _numbers("--beam", beam), _numbers("--batch", batch)

    from attendo.interop.opening import load
    from attendo.metrics import check_metric
    from attendo.recipes.bench import Plan, forced_work, natural_work, parse_rivals, random_network
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
    _run(Plan(network, precision, entrants, works, rounds, where, scoring), of, as_json)


def _read(natural: Path, references: Path | None, model: "TextModel") -> tuple["Sentences", "Scoring | None"]:
    from attendo.recipes.bench import Scoring, read_sentences

    sentences = read_sentences(natural, model.source_tokenizer, references)
    if sentences.references is None:
        return sentences, None
    return sentences, Scoring(sentences.references, model.target_tokenizer)


def _numbers(option: str, text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError("option_not_positive_integers", option=option, value=text)
    return [int(word) for word in words]


def _run(plan: "Plan", of: str, as_json: bool) -> None:
    from attendo.recipes.bench import Doing, LeftOut, Measured, compare, facts

    known = {**facts(plan.device), **_task(plan, of)}
    _print(json.dumps({"facts": known}) if as_json else _headline(known))
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
            case Measured():
                _print(json.dumps({**asdict(report), "tokens_per_second": report.speed}) if as_json else _row(report))


def _task(plan: "Plan", of: str) -> dict[str, Any]:
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


def _headline(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {facts[name]}" for name in _VERSIONS if facts[name])
    bleu = f"\nBLEU {facts['bleu']}" if facts["bleu"] else ""
    return (
        f"{facts['hardware']}, {facts['device']}, {facts['threads']} of {facts['cores']} threads; {versions}\n"
        f"{facts['network']}, {facts['parameters']:,} parameters, {facts['precision']}; {facts['lengths']}, "
        f"encoder included; {facts['rounds']} rounds, medians{bleu}"
    )


_VERSIONS = ("attendo", "torch", "transformers", "ctranslate2")
_WIDTH = 29  # of the longest name: ctranslate2 fp32 by sentences


def _row(measured: "Measured") -> str:
    ratio = "" if measured.ratio is None else f"{measured.ratio:.2f}"
    same = "" if measured.same is None else f"{measured.same:.1%}"
    bleu = "" if measured.bleu is None else f"{measured.bleu:.2f}"
    start = f"{measured.beam:4} {measured.batch:5}  {measured.system:{_WIDTH}} {measured.speed:10,.0f}"
    return f"{start}  {ratio:>12}  {same:>11}  {bleu:>6}".rstrip()


def _print(line: str) -> None:
    """At once: whoever ends a long run early keeps what it has told."""
    print(line, flush=True)
