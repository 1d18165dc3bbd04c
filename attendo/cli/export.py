"""The `attendo export` command: writes a model in another system's format, with a certificate."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attendo.cli.language import say
from attendo.cli.options import JsonCertificate
from attendo.cli.output import print_certificate, print_stderr
from attendo.cli.signals import cleanup_on_signal
from attendo.errors import DataError, UsageError

if TYPE_CHECKING:
    from attendo.interop.argos import LanguagePair
    from attendo.text_model import TextModel


Format = Literal["ctranslate2", "hf", "onnx", "argos", "marian"]
Precision = Literal["float32", "float16", "int8"]


@cleanup_on_signal()
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; for argos an .argosmodel file.")],
    to: Annotated[Format, typer.Option(help="Output format; hf is a Hugging Face transformers folder.")],
    precision: Annotated[Precision, typer.Option(help="Precision of the weights.")] = "float32",
    source: Annotated[
        Path | None, typer.Option(help="Sentences to compare with, one per line, instead of the model's own.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(help="References of the sentences, line by line, for BLEU and chrF.")
    ] = None,
    max_loss: Annotated[
        float | None, typer.Option(min=0, help="Largest allowed BLEU loss; default: 0.5 in int8, 0.2 in float16.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a stored decoding setting: beam=4.")
    ] = None,
    from_lang: Annotated[str, typer.Option(help="Source language, for argos: en.")] = "",
    to_lang: Annotated[str, typer.Option(help="Target language, for argos: de.")] = "",
    as_json: JsonCertificate = False,
) -> None:
    """Export a model to another system's format and compare the two on at least 200 sentences.

    Exit code 0: written, and both agree. 4: they differ or the format does not support the model. Then nothing is
    written.
    """
    languages = _parse_languages(to, from_lang, to_lang)
    if target is not None and source is None:
        raise UsageError("target_without_source")
    from attendo.interop.certify import collect_sentences
    from attendo.interop.export import ModelMismatchError, check_packages
    from attendo.interop.export import export as write
    from attendo.interop.load import load
    from attendo.metrics import check_metric

    check_packages(to)
    if target is not None:
        check_metric("bleu")
    text_model = _apply_settings(load(model, "cpu"), change or [])
    texts, references = (None if path is None else _read_sentences(path) for path in (source, target))
    sentences = collect_sentences(text_model, texts, references)
    try:
        certificate = write(text_model, out, to, precision, sentences, languages, max_loss)
    except ModelMismatchError as error:
        print_certificate(error.certificate, as_json)
        raise
    print_certificate(certificate, as_json)
    print_stderr(say("{precision} model for {to} written to {out}", precision=precision, to=to, out=out))


def _parse_languages(to: Format, from_lang: str, to_lang: str) -> "LanguagePair | None":
    if to != "argos":
        if from_lang or to_lang:
            raise UsageError("language_options_not_argos", format=to)
        return None
    if not from_lang or not to_lang:
        raise UsageError("argos_languages_missing")
    from attendo.interop.argos import LanguagePair

    return LanguagePair(from_lang, to_lang)


def _apply_settings(model: "TextModel", changes: Sequence[str]) -> "TextModel":
    if not changes:
        return model
    from attendo.decode.config import GenerationConfig
    from attendo.runs.config import apply_changes
    from attendo.text_model import TextModel

    changed = GenerationConfig.with_new_names(apply_changes({}, changes))
    return TextModel(replace(model.stored_model, generation={**model.stored_model.generation, **changed}))


def _read_sentences(path: Path) -> list[str]:
    from attendo.data.corpus_files import read_lines

    lines = list(read_lines(path))
    if not any(line.strip() for line in lines):
        raise DataError("comparison_file_without_sentences", path=path)
    return lines
