"""`attendo tokenize` and `attendo detokenize`."""

from pathlib import Path

from error_codes import fragment
from tiny import SOURCES, Command, tiny_model


def test_detokenize_restores_the_text(attendo: Command, model_folder: Path) -> None:
    lines = "".join(f"{line}\n" for line in (*SOURCES, ""))
    ids = attendo("tokenize", model_folder, "--ids", given=lines.encode())
    assert [[int(each) for each in line.split()] for line in ids.output.splitlines()] == [
        tiny_model().source_tokenizer.encode(line) for line in (*SOURCES, "")
    ]
    assert attendo("detokenize", model_folder, "--side", "source", given=ids.output.encode()).output == lines


def test_tokenize_uses_the_tokenizer_of_the_side(attendo: Command, model_folder: Path) -> None:
    assert attendo("tokenize", model_folder, given="the 猫\n".encode()).output == "the <unk>\n"
    assert attendo("tokenize", model_folder, "--side", "target", given="the 猫\n".encode()).output == "<unk> 猫\n"


def test_an_invalid_id_is_reported_with_its_line(attendo: Command, model_folder: Path) -> None:
    for given in (b"4\nthe cat\n", b"4\n99999\n", b"4\n-1\n"):
        failed = attendo("detokenize", model_folder, given=given)
        assert failed.code == 3
        assert fragment("line_not_token_ids", line=2) in failed.errors
