"""The `attendo backtranslate` command: makes pairs from monolingual text with a model of the other direction."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attendo.cli.language import say
from attendo.cli.options import Device, Threads
from attendo.cli.output import OutputStyle, print_stderr
from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.recipes.backtranslation import BackTranslation


def backtranslate(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model folder that translates from the language of the text.")
    ],
    text: Annotated[
        list[str], typer.Option(metavar="FILE", help="Monolingual text: a file, a folder or a pattern; repeatable.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write: source.txt and target.txt.")],
    method: Annotated[
        Literal["beam", "sample", "noised-beam"],
        typer.Option(help="Sources from a beam, from sampling, or from a beam with noise."),
    ] = "beam",
    tag: Annotated[
        str | None, typer.Option(metavar="SYMBOL", help="Symbol before every source; default: none.")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, max=1000, help="Beam size; default: 5.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample from the k most probable tokens; default: from all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of sampling and noise.")] = 1,
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="Field or column of the text in .jsonl, .tsv and .parquet files.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Processes of this machine.")] = 1,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Make sentence pairs from monolingual text: its translations become the sources.

    The text is in the target language of the model to train, and MODEL translates from it. Blank lines are left out.
    The same command continues an interrupted one.
    """
    from attendo import atomic_files
    from attendo.cli.generate_corpus import CorpusCommand, compute_model_checksum, generate_corpus
    from attendo.recipes.backtranslation import BackTranslation, list_texts
    from attendo.recipes.files import compute_checksums
    from attendo.runs.run_folder import make_folder

    search = _make_search(method, beam, top_k, seed)
    if tag is not None and (not tag or any(character.isspace() for character in tag)):
        raise UsageError("backtranslation_tag_invalid", tag=tag)
    work = BackTranslation(out, list_texts(text), field, method, tag, seed)
    options = {**search, "split": False, "long_source": "truncate"}
    texts = compute_checksums({str(path): path for path in work.texts})
    settings: dict[str, Any] = {"model": compute_model_checksum(model), "text": [*texts.values()], "field": field}
    settings |= {"method": method, "tag": tag, "seed": seed, "options": options}
    _check_model(model, device, options)
    make_folder(out)
    with atomic_files.folder_lock(out):
        work.begin(settings)
        work.split()
        command = CorpusCommand(model, [], None, device, options, OutputStyle(), {"source": None, "output": "output"})
        make_folder(work.output_folder)
        generate_corpus(command, str(work.text_folder), work.output_folder, workers)
        _report(work)


def _make_search(method: str, beam: int | None, top_k: int | None, seed: int) -> dict[str, Any]:
    """Return the decoding options. An option of another method is an error."""
    if method == "sample":
        if beam is not None:
            raise UsageError("backtranslation_option_unused", option="--beam", method=method)
        return {"sample": True, "seed": seed, "top_k": top_k or 0}
    if top_k is not None:
        raise UsageError("backtranslation_option_unused", option="--top-k", method=method)
    return {"beam": beam or 5}


def _check_model(model: Path, device: str, options: dict[str, Any]) -> None:
    """Raise for a model without a source, or without these options, before the text is read."""
    from attendo.runs.load import load_models

    loaded = load_models(model, [], None, device)
    if loaded.continues_text:
        raise UsageError("distillation_model_without_source", model=model)
    loaded.settings(**options)


def _report(work: "BackTranslation") -> None:
    pairs, blank = work.merge()
    source, target = work.results
    print_stderr(say("{lines:,} lines written to {source} and {target}", lines=pairs, source=source, target=target))
    if blank:
        print_stderr(say("{count:,} lines left out, because their translation is blank", count=blank))
