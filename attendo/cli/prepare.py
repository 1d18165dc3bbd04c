"""The `attendo prepare` command: converts text into memory-mapped token ids for training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli.train import (
    Field,
    File,
    MaxBadRatio,
    RunFile,
    Source,
    SourceField,
    Target,
    TargetField,
    Text,
    ValidSource,
    ValidTarget,
)

if TYPE_CHECKING:
    from attendo.data.prepare import Tokenizers
    from attendo.data.prepared import PreparedData
    from attendo.runs.config import RunConfig
    from attendo.text.config import TokenizerConfig


def prepare(
    run_file: RunFile = None,
    source: Source = None,
    target: Target = None,
    file: File = None,
    source_field: SourceField = None,
    target_field: TargetField = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    text: Text = None,
    field: Field = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the prepared data.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the files named in the run file.")] = None,
    max_bad_ratio: MaxBadRatio = None,
    change: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")] = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Verify every byte of prepared data, then exit.")
    ] = None,
) -> None:
    """Convert text into memory-mapped shards of token ids, for any number of runs.

    attendo train does this itself when it is given text. Bad lines are counted by reason and listed.
    """
    from attendo.errors import UsageError

    if verify is not None:
        from attendo.data.prepared import open_prepared

        whole = open_prepared(verify, verify=True)
        print(f"{verify} is whole: {_format_size(whole)}")
        return
    if out is None:
        raise UsageError("prepared_folder_missing")

    from attendo.cli.progress import show_preparation
    from attendo.cli.train import make_config, merge_changes
    from attendo.data.prepare import prepare as prepare_data
    from attendo.data.prepared import open_prepared
    from attendo.runs.corpora import make_corpora

    names: dict[str, Any] = {"source": source, "target": target, "file": file, "source_field": source_field}
    names |= {"target_field": target_field, "valid_source": valid_source, "valid_target": valid_target}
    names |= {"text": text, "text_field": field, "folder": data}
    changes = merge_changes(change, {"--max-bad-ratio": ("data.max_bad_ratio", max_bad_ratio)})
    config = make_config(run_file, names, changes, shown_prefix="tokenizer.")
    if config.data.prepared is not None:
        raise UsageError("data_already_prepared", folder=config.data.prepared)
    training, valid = make_corpora(config.data, config.seed)
    show_preparation(prepare_data(training, valid, config.data, _choose_tokenizer(config), config.seed, out))
    done = open_prepared(out)
    print(f"{_format_size(done)}, written to {out}")
    for corpus in done.corpora:
        if corpus.cut:
            print(f"{corpus.name}: {corpus.cut:,} sources cut to data.cut_source")
        for reason, count in sorted(corpus.bad.items()):
            print(f"{corpus.name}: {count:,} lines left out: {reason} (listed in {out / 'bad-lines.tsv'})")
    typer.echo(f"next: attendo train --set data.prepared={out} --out runs/NAME", err=True)


def _format_size(data: "PreparedData") -> str:
    if data.window is None or data.valid_windows is None:
        return f"{data.pairs:,} pairs, {len(data.valid):,} to validate with"
    return f"{data.pairs:,} windows of {data.window} tokens, {len(data.valid_windows):,} to validate with"


def _choose_tokenizer(config: "RunConfig") -> "TokenizerConfig | Tokenizers":
    """Return the tokenizer config, or the tokenizers of the model in `start_from`."""
    if config.start_from is None:
        return config.tokenizer
    from attendo.model_folder import load_model

    model = load_model(config.start_from)
    return model.source_tokenizer, model.target_tokenizer
