"""The `attendo calibrate` command: measures the limits of the fault detectors on validation text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli.decoding_options import add_decoding_options, take_decoding_options
from attendo.cli.language import say
from attendo.cli.options import Device, ModelFolder, Threads
from attendo.cli.output import align_columns, print_stderr
from attendo.cli.stdin import name_line_in_errors
from attendo.errors import LocalizedText

if TYPE_CHECKING:
    from attendo.metrics.fault_limits import FaultLimits


@add_decoding_options("beam", "length_penalty")
def calibrate(
    model: ModelFolder,
    source: Annotated[Path, typer.Option(help="Validation text, one sentence per line (plain, .gz or .xz).")],
    reference: Annotated[Path, typer.Option(help="Reference translations, line by line.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the limits as one JSON object.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    **given: Any,
) -> None:
    """Measure on validation text which outputs are unusual, for generate --check.

    The limits are quantiles of the references and of the model's own outputs. They are stored in the model folder
    (calibration.json). Use text that the model was not trained on, and the decoding options that you generate with.
    """
    from attendo.data.corpus_files import read_parallel_lines
    from attendo.interop.load import load_torch_model, require_model_folder
    from attendo.model_folder import CALIBRATION, update_json

    require_model_folder(model)
    text_model = load_torch_model(model, device)
    pairs = list(read_parallel_lines(source, reference))
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    with name_line_in_errors(source, 0):
        limits = text_model.calibrate(sources, references, **take_decoding_options(given))
    update_json(model, CALIBRATION, text_model.stored_model.calibration)
    if as_json:
        print(json.dumps({"pairs": limits.pairs, "limits": _list_limits(limits)}))
        return
    rows = [
        {"fault": LocalizedText(kind.replace("_", " ")), "limit": f"{limit:.2f}"}
        for kind, limit in _list_limits(limits).items()
    ]
    print(*align_columns([{name: str(value) for name, value in row.items()} for row in rows], ("fault",)), sep="\n")
    print_stderr(say("{pairs:,} pairs; stored in {path}", pairs=limits.pairs, path=model / CALIBRATION))


def _list_limits(limits: "FaultLimits") -> dict[str, float]:
    """Return the limits that do not depend on the length, by the kind of fault."""
    return {
        "loop": limits.loop,
        "copy": limits.copied_share,
        "untranslated_segment": float(limits.copied_words),
        "wrong_language": limits.language,
        "low_probability": limits.least_z,
        "detached_from_source": limits.contrast.low,
    }
