"""S13: a model that cannot be used is told in one line and never served; one that is replaced goes on being served."""

import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from children import Children
from small_service import Service
from tiny import tiny_model

from attendo.store import write_manifest
from attendo.text import Words


def _truncate(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _flip(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def _take_tokenizer(folder: Path) -> None:
    (folder / "target.tokenizer.json").unlink()


def _take_weights(folder: Path) -> None:
    (folder / "weights.safetensors").unlink()


def _take_all(folder: Path) -> None:
    shutil.rmtree(folder)


def _other_tokenizer(folder: Path) -> None:
    Words.build(["quite other words than it was trained with"]).save(folder, "target")
    (folder / "manifest.json").unlink()
    write_manifest(folder, "attendo.model", 1)


@pytest.mark.parametrize("check", [(), ("--check",)])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_truncate, "weights.safetensors has"),
        (_flip, "weights.safetensors is damaged"),
        (_take_weights, "weights.safetensors is missing"),
        (_take_tokenizer, "target.tokenizer.json is missing"),
        (_other_tokenizer, "they belong to different models"),
        (_take_all, "is not a folder"),
    ],
)
def test_S13_a_bad_model_is_told_in_one_line_and_never_served(
    children: Children, tmp_path: Path, damage: Callable[[Path], None], told: str, check: tuple[str, ...]
) -> None:
    tiny_model().save(tmp_path / "model")
    damage(tmp_path / "model")
    ended = children.attendo("serve", tmp_path / "model", "--port", "0", *check)
    assert ended.code == 4
    assert told in ended.error
    assert ended.errors.count("\n") == 1


def test_S13_a_good_model_beside_a_bad_one_is_not_served_either(children: Children, tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "good")
    ended = children.attendo("serve", tmp_path / "good", tmp_path / "bad", "--port", "0")
    assert (ended.code, "bad is not a folder" in ended.error) == (4, True)


def test_a_port_that_is_taken_is_told_before_any_model_is_read(children: Children, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = children.attendo("serve", tmp_path / "there-is-none", "--port", str(port))
    assert ended.code == 2
    assert ended.error.startswith(f"port {port} is taken")


def test_a_folder_that_is_replaced_meanwhile_goes_on_being_served_as_it_was(children: Children, tmp_path: Path) -> None:
    folder, text = tmp_path / "model", "I saw the small cat"
    tiny_model().save(folder)
    with Service(children, folder) as service:
        service.until_ready()
        before = service.generate(text).content
        tiny_model(seed=1).save(folder)
        assert service.generate(text).content == before
        shutil.rmtree(folder)
        assert service.generate(text).content == before
        assert service.get("/readyz").status == 200
        tiny_model(seed=1).save(folder)
        service.kill(signal.SIGTERM)
        assert service.wait().code == 0
    with Service(children, folder) as service:
        service.until_ready()
        assert service.generate(text).content != before
