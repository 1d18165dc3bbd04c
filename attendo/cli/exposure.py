"""The `attendo exposure` command: measures of exposure bias as a table, as JSON and as a picture."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attendo.cli.language import say, translate
from attendo.cli.options import Device, Threads
from attendo.cli.output import align_columns, check_picture_format, print_stderr, write_picture
from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.explore.exposure import ExposureReport, ExposureSettings, ParallelText
    from attendo.text_model import TextModel

_CORRUPTIONS = {
    "random": "random token",
    "wrong": "best wrong token",
    "dropped": "dropped token",
    "doubled": "doubled token",
}
_GAP_POSITIONS = (1, 5, 10)  # positions of the distractor gap in the table
_LABEL = ""  # heading of the first column


def exposure(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="Model folders; several are compared.")],
    source: Annotated[
        Path, typer.Option(metavar="FILE", help="Source text, one sentence per line (plain, .gz or .xz).")
    ],
    reference: Annotated[Path, typer.Option(metavar="FILE", help="Reference translations, line by line.")],
    oracle: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MODEL", help="A better model with the same vocabularies, for ExAccErr; repeatable: an ensemble."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N lines.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all random choices.")] = 0,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a picture: .svg, .png or .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all results.")] = False,
    batch_tokens: Annotated[
        int, typer.Option(min=0, metavar="N", help="Positions per batch; 0 is 1,024, or 4,096 on a GPU.")
    ] = 0,
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"], typer.Option(help="Precision of the networks.")
    ] = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Measure exposure bias: predictions after the model's own or a corrupted prefix.

    In training, a model reads the prefix of the reference. When it generates, it reads its own output. The table has
    one column per model. Random choices follow from --seed and the line number, so all models get the same ones.
    """
    file_format = "" if figure is None else check_picture_format(figure, "attendo exposure --figure")
    from attendo.explore.exposure import ExposureSettings, ParallelText
    from attendo.runs.load import load

    names = _name_models(models)
    text = ParallelText.read(source, reference, limit)
    loaded = dict(zip(names, [load(each, device) for each in models], strict=True))
    better = _load_oracle(oracle or [], device)
    _check_models(loaded, better)
    settings = ExposureSettings(seed=seed, batch_tokens=batch_tokens, precision=precision)
    reports = {name: _measure(name, each, text, better, settings) for name, each in loaded.items()}
    if as_json:
        facts = {
            "source": str(source),
            "reference": str(reference),
            "seed": seed,
            "oracle": list(map(str, oracle or [])),
        }
        found = [
            {"model": str(path), **report.as_json()} for path, report in zip(models, reports.values(), strict=True)
        ]
        print(json.dumps({**facts, "models": found}, ensure_ascii=False))
    else:
        print(*align_columns(list(_make_rows(reports)), (_LABEL,), translates=False), sep="\n")
    _print_notes(reports)
    if figure is not None:
        from attendo.explore.exposure.figure import draw_exposure

        write_picture(figure, draw_exposure(reports, file_format))
        print_stderr(say("picture written to {figure}", figure=figure))


def _name_models(models: Sequence[Path]) -> list[str]:
    """Return a short, unique name for each model: that of its run, or of its folder."""
    from attendo.explore.curves import find_unique_names

    folders = [each.resolve() for each in models]
    for model, folder in zip(models, folders, strict=True):
        if folders.count(folder) > 1:
            raise UsageError("exposure_model_repeated", model=model)
    runs = [each.parent if each.name == "model" else each for each in folders]
    return list(find_unique_names(runs if len({*runs}) == len(runs) else folders))


def _load_oracle(folders: Sequence[Path], device: str) -> "TextModel | None":
    if not folders:
        return None
    from attendo.runs.load import load

    first, *others = (load(each, device) for each in folders)
    return first.ensemble(others) if others else first


def _check_models(models: "dict[str, TextModel]", oracle: "TextModel | None") -> None:
    """Raise for a model that cannot be measured, before any is. Report tokenizers that differ."""
    from attendo.explore.exposure.run_measures import check_model

    first = next(iter(models.values()))
    for name, model in models.items():
        check_model(model, oracle)
        if model.target_tokenizer != first.target_tokenizer:
            print_stderr(
                say(
                    "{name} has another target tokenizer: its positions and probabilities are of other tokens",
                    name=name,
                )
            )


def _measure(
    name: str, model: "TextModel", text: "ParallelText", oracle: "TextModel | None", settings: "ExposureSettings"
) -> "ExposureReport":
    from rich.console import Console
    from rich.progress import Progress

    from attendo.explore.exposure import measure_exposure

    unknown = sum(
        bool(model.source_tokenizer.unknown(left) or model.target_tokenizer.unknown(right))
        for left, right in zip(text.sources, text.references, strict=True)
    )
    if unknown:
        print_stderr(
            say(
                "{name}: {unknown} of {num_sources} lines have words that the vocabulary does not have",
                name=name,
                unknown=unknown,
                num_sources=len(text.sources),
            )
        )
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(say("measuring {name}", name=name), total=1.0)
        return measure_exposure(model, text, oracle, settings, lambda share: bar.update(task, completed=share))


def _make_rows(reports: "dict[str, ExposureReport]") -> Iterator[dict[str, str]]:
    """Yield one row per number, with one column per model. Counts that are 0 for all models are left out."""
    columns = {name: dict(_list_numbers(report)) for name, report in reports.items()}
    for label in dict.fromkeys(label for numbers in columns.values() for label in numbers):
        values = {name: numbers.get(label, "-") for name, numbers in columns.items()}
        if {*values.values()} != {"0"}:
            yield {_LABEL: label, **values}


def _list_numbers(report: "ExposureReport") -> Iterator[tuple[str, str]]:
    """Yield label and value of each number in the table."""
    yield say("sentences"), f"{report.sentences:,}"
    yield say("reference tokens, EOS included"), f"{report.tokens:,}"
    yield say("negative log-likelihood per token"), f"{report.nll:.3f}"
    yield say("accuracy after gold prefixes, %"), _format_share(report.accuracy.gold_mean)
    yield say("accuracy after own prefixes, %"), _format_share(report.accuracy.own_mean)
    quarters = report.quarters
    for unit, values in ((say("unigram"), quarters.unigrams), (say("bigram"), quarters.bigrams)):
        yield say("{unit} precision, first quarter, %", unit=unit), _format_share(values[0])
        yield say("{unit} precision, last quarter, %", unit=unit), _format_share(values[-1])
    for name, recovery in report.recovery.items():
        label = translate(_CORRUPTIONS[name])
        half_life = str(recovery.half_life or f"> {recovery.max_distance}")
        yield say("{label}: Δ(1), nats", label=label), _format_number(recovery.deltas[0])
        yield say("{label}: standard error of Δ(1)", label=label), _format_number(recovery.standard_errors[0])
        yield say("{label}: half-life, tokens", label=label), half_life
        yield say("{label}: lines skipped", label=label), f"{recovery.skipped:,}"
    yield from _list_excess(report)
    for position in _GAP_POSITIONS:
        if position <= len(report.distractor.gap):
            label = say("distractor gap, position {position}, nats", position=position)
            yield label, _format_number(report.distractor.gap[position - 1])
    yield say("lines without a distractor"), f"{report.distractor.skipped:,}"
    yield say("own outputs cut at the length limit"), f"{report.cut:,}"


def _list_excess(report: "ExposureReport") -> Iterator[tuple[str, str]]:
    if report.excess is None:
        yield "%ExAccErr", say("no oracle")
        return
    for name, excess in report.excess.items():
        percent = excess.percent[-1]
        label = say("%ExAccErr({length}), {name} histories", length=len(excess.percent), name=translate(name))
        yield label, "-" if percent is None else f"{percent:.1f}"
    yield say("oracle: negative log-likelihood per token"), _format_number(report.oracle_nll)


def _print_notes(reports: "dict[str, ExposureReport]") -> None:
    if all(report.excess is None for report in reports.values()):
        print_stderr(say("ExAccErr is not measured without --oracle"))
    for name, report in reports.items():
        if report.oracle_nll is not None and report.oracle_nll >= report.nll:
            print_stderr(
                say(
                    "{name}: the oracle does not predict the references better, so its ExAccErr means little", name=name
                )
            )


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
