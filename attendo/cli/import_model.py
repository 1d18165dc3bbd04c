"""The `attendo import` command: converts another system's model into a model folder, with a certificate."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from attendo.cli.language import localise, say
from attendo.cli.options import JsonCertificate
from attendo.cli.output import print_certificate, print_stderr
from attendo.cli.signals import cleanup_on_signal
from attendo.errors import UsageError


@cleanup_on_signal()
def import_model(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Hugging Face transformers model (config.json and safetensors), or Marian model: a folder or zip "
            "file with decoder.yml and an npz file.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Model folder to write.")],
    source_language: Annotated[
        str | None,
        typer.Option(
            help="Source language, in the notation of the model, such as en (M2M100), eng_Latn (NLLB) or en_XX (mBART)."
        ),
    ] = None,
    target_language: Annotated[str | None, typer.Option(help="Target language.")] = None,
    dtype: Annotated[
        Literal["float32", "keep"], typer.Option(help="Precision of the written weights; keep leaves bf16 and fp16.")
    ] = "float32",
    proof: Annotated[
        Path | None, typer.Option(help="Sentences to compare with, one per line, instead of random ones.")
    ] = None,
    no_proof: Annotated[
        bool, typer.Option("--no-proof", help="Skip the comparison; transformers or pymarian is not needed.")
    ] = False,
    as_json: JsonCertificate = False,
) -> None:
    """Read a model of another system and compare the two on at least 200 sentences.

    `attendo families` lists the families of models.

    The other side of the comparison is transformers, or pymarian for files of Marian itself.

    Exit code 0: written, and both agree. 4: they differ or the model is not supported. Then nothing is written.
    """
    if no_proof and (proof is not None or as_json):
        raise UsageError("proof_options_with_no_proof")
    from attendo.data.corpus_files import read_lines
    from attendo.interop.export import ModelMismatchError
    from attendo.interop.import_model import import_model as write
    from attendo.interop.import_model import read_import, require_other_system

    if not no_proof:
        require_other_system(folder)
    texts = None if proof is None else [line for line in read_lines(proof) if line.strip()]
    imported = read_import(folder, source_language, target_language, keep_dtype=dtype == "keep")
    try:
        certificate = write(imported, out, texts, prove=not no_proof)
    except ModelMismatchError as error:
        print_certificate(error.certificate, as_json)
        raise
    if certificate is not None:
        print_certificate(certificate, as_json)
    print_stderr(say("{model_type} model written to {out}", model_type=imported.folder.model_type, out=out))
    if certificate is None or as_json:  # the table includes the remarks
        for remark in imported.remarks():
            print_stderr(localise(remark))
