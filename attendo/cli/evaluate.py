"""The `attendo evaluate` command: translates a text, scores it against references and compares two systems."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli.decoding_options import add_decoding_options, take_decoding_options
from attendo.cli.language import say
from attendo.cli.options import Device, ModelOrExport, Threads
from attendo.cli.output import align_columns, print_stderr
from attendo.cli.stdin import name_line_in_errors, to_single_line
from attendo.errors import DataError, UsageError

if TYPE_CHECKING:
    from attendo.metrics import Comparison, Likelihoods, MetricValues, Score
    from attendo.text_model import Result, TextModel

Facts = dict[str, Any]
ScoresByLabel = dict[str, tuple[int, "list[Score]"]]  # label → number of lines and their scores
LINES_AT_ONCE = 512  # lines of similar length per progress bar update
_METRIC_HELP = (
    "bleu, chrf, ter, rouge1, rouge2, rougeL, exact_match, error_rate, word_error_rate, distinct1, distinct2, "
    "perplexity, perplexity_per_word, perplexity_per_character; several with commas between."
)
_METRIC_ALIASES = {"wer": "word_error_rate", "rouge": "rougeL", "em": "exact_match", "ppl": "perplexity"}


@dataclass(frozen=True)
class EvaluationSet:
    """Lines to translate, with the references and the optional label of each."""

    source_path: Path
    sources: list[str]
    references: list[tuple[str, ...]]
    labels: list[str] | None


def read_evaluation_set(source: Path, references: Sequence[Path], by: Path | None) -> EvaluationSet:
    from attendo.data.corpus_files import read_parallel_lines

    labels = [] if by is None else [by]
    lines = list(read_parallel_lines(source, *references, *labels))
    if not lines:
        raise DataError("source_file_empty", path=source)
    return EvaluationSet(
        source,
        [line[0] for line in lines],
        [_drop_missing_references(line[1 : 1 + len(references)]) for line in lines],
        [line[-1].strip() for line in lines] if labels else None,
    )


def read_translations(other: Path | None, source: Path) -> list[str] | None:
    """Return the lines of a translation file, or None for a model folder."""
    if other is None or other.is_dir():
        return None
    if not other.exists():
        raise UsageError("comparison_not_found", path=other)
    from attendo.data.corpus_files import read_parallel_lines

    return [translation for _, translation in read_parallel_lines(source, other)]


def check_output(output: Path | None, inputs: Sequence[Path | None]) -> None:
    """Raise an error if the output file is also an input or cannot be written."""
    if output is None:
        return
    for path in inputs:
        if path is not None and output.exists() and output.samefile(path):
            raise UsageError("output_overwrites_input", output=output, path=path)
    output.open("a").close()


def _drop_missing_references(line: tuple[str, ...]) -> tuple[str, ...]:
    """Drop empty references: an empty line in one file is a missing reference, unless all are empty."""
    return tuple(each for each in line if each.strip()) or line[:1]


def print_scores(scores: "Sequence[Score]", by: ScoresByLabel, facts: Facts | None) -> None:
    """Print the scores, as one JSON object if `facts` are given."""
    if facts is not None:
        labelled = {
            label: {"lines": lines, "scores": {each.name: each.value for each in found}}
            for label, (lines, found) in by.items()
        }
        scored = {each.name: _score_to_dict(each) for each in scores}
        print(json.dumps({**facts, "scores": scored, **({"by": labelled} if by else {})}, ensure_ascii=False))
        return
    for each in scores:
        print(f"{each.name} {each.value:.2f} {each.signature}")
    if by:
        rows = [
            {"label": label or say("(none)"), "lines": str(lines), **{each.name: f"{each.value:.2f}" for each in found}}
            for label, (lines, found) in by.items()
        ]
        print(*align_columns(rows, ("label",)), sep="\n")


def print_comparisons(comparisons: "Sequence[Comparison]", names: tuple[object, object], facts: Facts | None) -> None:
    if facts is not None:
        scores = {each.one.name: _score_to_dict(each.one) for each in comparisons}
        compared = {each.one.name: _comparison_to_dict(each) for each in comparisons}
        print(json.dumps({**facts, "scores": scores, "other": str(names[1]), "comparisons": compared}))
        return
    print(*align_columns(list(map(_format_comparison, comparisons)), ("score",)), sep="\n")
    for each in comparisons:
        print(f"{each.one.name}: {_describe_comparison(each, *names)}")
    for each in comparisons:
        print(f"{each.one.name} {each.signature}")


def _format_comparison(each: "Comparison") -> dict[str, str]:
    low, high = each.interval
    return {
        "score": each.one.name,
        "model": f"{each.one.value:.2f}",
        "other": f"{each.other.value:.2f}",
        "difference": f"{each.difference:+.2f}",
        "95% interval": say("{low:+.2f} to {high:+.2f}", low=low, high=high),
        "p": f"{each.p_value:.3f}",
    }


def _describe_comparison(each: "Comparison", model: object, other: object) -> str:
    if each.significant:
        better, worse = (model, other) if each.one_is_better else (other, model)
        return say("{better} is better than {worse}, significant at 0.05", better=better, worse=worse)
    if each.p_value < 0.05:
        return say("not significant at 0.05: p is below it, but the interval holds 0")
    return say("not significant at 0.05")


def _score_to_dict(score: "Score") -> dict[str, str | float | bool]:
    return {"value": score.value, "signature": score.signature, "higher_is_better": score.higher_is_better}


def _comparison_to_dict(each: "Comparison") -> dict[str, Any]:
    return {
        "other": each.other.value,
        "difference": each.difference,
        "interval": list(each.interval),
        "p_value": each.p_value,
        "significant": each.significant,
        "signature": each.signature,
    }


@add_decoding_options("beam", "length_penalty", "preset")
def evaluate(
    model: ModelOrExport,
    source: Annotated[Path, typer.Option(help="Text to translate, one sentence per line (plain, .gz or .xz).")],
    reference: Annotated[
        list[Path],
        typer.Option(help="Reference translations, line by line; repeatable for several references."),
    ],
    metric: Annotated[str, typer.Option(help=_METRIC_HELP)] = "bleu,chrf",
    by: Annotated[
        Path | None, typer.Option(metavar="LABELS", help="File of labels, one per line: also score each label.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="OTHER", help="Model folder or file of translations to compare with (paired bootstrap)."),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    output: Annotated[Path | None, typer.Option(help="File for the translations.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    **given: Any,
) -> None:
    """Score a model on text that it was not trained on.

    Prints one line per score: name, value and signature, which describes how it was computed. With --by, a table
    has the scores of each label. With --compare, a table has both scores, their difference and its significance.
    """
    request = _EvaluationRequest(_parse_metrics(metric), take_decoding_options(given), output)
    request.check(by, compare)
    lines = read_evaluation_set(source, reference, by)
    others = read_translations(compare, source)
    check_output(output, [source, *reference, by, compare])

    from attendo.runs.load import load

    text_model = load(model, device)
    other_model = load(compare, device) if compare is not None and others is None else None
    for each in filter(None, (text_model, other_model)):
        request.check_model(each)
    one = _run_system(text_model, lines, request, f"{model}: " if other_model else "")
    if output is not None:
        output.write_text("".join(f"{to_single_line(text)}\n" for text in one.texts), "utf-8")
    facts = {"model": str(model), "lines": len(lines.sources), **_describe_decoding(text_model, one, request)}
    shown_facts = facts if as_json else None
    if compare is None:
        found = [_score(name, one, lines) for name in request.names]
        print_scores([each.score for each in found], _group_by_label(found, lines.labels), shown_facts)
    else:
        other = _SystemOutput(others or ())
        if other_model is not None:
            other = _run_system(other_model, lines, request, f"{compare}: ")
        compared = [_compare(name, one, other, lines) for name in request.names]
        print_comparisons(compared, (model, compare), shown_facts)


@dataclass(frozen=True)
class _EvaluationRequest:
    """Metrics, decoding options and output file of an evaluation."""

    names: list[str]
    options: dict[str, Any]
    output: Path | None

    @property
    def model_metrics(self) -> list[str]:
        """The metrics that need no translation (perplexities)."""
        from attendo.metrics import PERPLEXITIES

        return [name for name in self.names if name in PERPLEXITIES]

    @property
    def translates(self) -> bool:
        return len(self.model_metrics) < len(self.names) or self.output is not None

    def check_model(self, model: "TextModel") -> None:
        """Raise `UsageError` for a metric that the model cannot have: translations, or a likelihood."""
        if self.model_metrics and model.kind == "masked":
            raise UsageError("masked_model_has_no_likelihood")
        if model.continues_text and (others := [name for name in self.names if name not in self.model_metrics]):
            from attendo.metrics import PERPLEXITIES

            known = ", ".join(PERPLEXITIES)
            raise UsageError("metric_not_for_decoder_only", metric=others[0], metrics=known)

    def check(self, by: Path | None, compare: Path | None) -> None:
        """Raise an error if options are invalid or incompatible."""
        from attendo.decode.config import GenerationConfig
        from attendo.metrics import check_comparable

        GenerationConfig().override(**{name: value for name, value in self.options.items() if name != "preset"})
        if self.options and not self.translates:
            name = next(iter(self.options)).replace("_", "-")
            raise UsageError("decoding_option_without_translation", option=name, metrics=", ".join(self.names))
        if compare is None:
            return
        if by is not None:
            raise UsageError("by_with_compare")
        for name in self.names:
            check_comparable(name)
        if self.model_metrics and compare.is_file():
            raise UsageError("perplexity_of_translation_file", metric=self.model_metrics[0], path=compare)


@dataclass(frozen=True)
class _SystemOutput:
    """Translations of a system and likelihoods of the references, if requested."""

    texts: Sequence[str] = ()
    results: "Sequence[Result]" = ()
    likelihoods: "Likelihoods | None" = None


def _parse_metrics(metric: str) -> list[str]:
    from attendo.metrics import PERPLEXITIES, check_metric
    from attendo.metrics.scores import METRICS
    from attendo.settings import suggest_name

    known = [*METRICS, *PERPLEXITIES]
    names = list(dict.fromkeys(name.strip() for name in metric.split(",") if name.strip()))
    if not names:
        raise UsageError("metric_list_empty")
    for name in names:
        if name not in known:
            suggestion = suggest_name(_METRIC_ALIASES.get(name.lower(), name), known)
            raise UsageError("unknown_metric", name=name, suggestion=suggestion, known=", ".join(known))
        if name not in PERPLEXITIES:
            check_metric(name)
    return names


def _run_system(model: "TextModel", data: EvaluationSet, request: _EvaluationRequest, name: str) -> _SystemOutput:
    from attendo.metrics import compute_likelihoods

    results = _translate(model, data, request.options) if request.translates else []
    _report_faults(results, name, ends=not model.continues_text)
    with name_line_in_errors(
        data.source_path, line_indices=[n for n, right in enumerate(data.references) for _ in right]
    ):
        found = compute_likelihoods(model, data.sources, data.references) if request.model_metrics else None
    return _SystemOutput([result.text for result in results], results, found)


def _score(name: str, output: _SystemOutput, data: EvaluationSet) -> "MetricValues":
    from attendo.metrics import PERPLEXITIES, compute_metric, perplexity

    if name in PERPLEXITIES:
        assert output.likelihoods is not None  # `_run_system` computed them
        return perplexity(name, output.likelihoods)
    return compute_metric(name, output.texts, data.references)


def _compare(name: str, one: _SystemOutput, other: _SystemOutput, data: EvaluationSet) -> "Comparison":
    from attendo.metrics import PERPLEXITIES, compare, compare_perplexity

    if name in PERPLEXITIES:
        assert one.likelihoods is not None
        assert other.likelihoods is not None
        return compare_perplexity(name, one.likelihoods, other.likelihoods)
    return compare(name, one.texts, other.texts, data.references)


def _group_by_label(found: "Sequence[MetricValues]", labels: Sequence[str] | None) -> ScoresByLabel:
    if labels is None:
        return {}
    scores = [each.score_by_label(labels) for each in found]
    return {label: (count, [each[label] for each in scores]) for label, count in Counter(labels).items()}


def _describe_decoding(model: "TextModel", output: _SystemOutput, request: _EvaluationRequest) -> dict[str, Any]:
    if not request.translates:
        return {}
    config = model.settings(**request.options)
    cut = sum(result.cut for result in output.results)
    return {"cut": cut, "beam": config.beam, "length_penalty": config.length_penalty}


def _translate(model: "TextModel", data: EvaluationSet, options: dict[str, Any]) -> "list[Result]":
    """Translate all sources and return results in their order."""
    from rich.console import Console
    from rich.progress import Progress

    from attendo.data.bucketing import split_by_length

    console, sources = Console(stderr=True), data.sources
    results: dict[int, Result] = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(say("translating"), total=len(sources))
        for group in split_by_length(sources, LINES_AT_ONCE):
            with name_line_in_errors(data.source_path, line_indices=group):
                found = model.generate([sources[n] for n in group], **options)
            results.update(zip(group, found, strict=True))
            progress.advance(task, len(group))
    return [results[n] for n in range(len(sources))]


def _report_faults(results: "Sequence[Result]", model: str, ends: bool) -> None:
    cut, unknown = sum(result.cut for result in results), sum(bool(result.unknown) for result in results)
    if unknown:
        print_stderr(
            say(
                "{model}{unknown} of {count} lines have words that the vocabulary does not have",
                model=model,
                unknown=unknown,
                count=len(results),
            )
        )
    if cut and ends:
        print_stderr(
            say(
                "{model}{cut} of {count} answers were cut at the length limit",
                model=model,
                cut=cut,
                count=len(results),
            )
        )
