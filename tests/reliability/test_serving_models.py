"""S13: a model that cannot be used is told in one line and never served; one that is replaced goes on being served."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from children import Children
from error_codes import fragment
from small_service import Asking, Service, different, free_port
from tiny import tiny_model

from attendo.model_folder import write_manifest
from attendo.text import Words


def _cut(name: str, left: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:left])

    return damage


def _flip(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    return damage


def _take(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _take_all(folder: Path) -> None:
    shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a model")


def _other_tokenizer(folder: Path) -> None:
    Words.build(["quite other words than it was trained with"]).save(folder, "target")
    _seal(folder)


def _swapped_tokenizers(folder: Path) -> None:
    source, target = folder / "source.tokenizer.json", folder / "target.tokenizer.json"
    of_source = source.read_bytes()
    source.write_bytes(target.read_bytes())
    target.write_bytes(of_source)


def _weights_of_another(folder: Path) -> None:
    other = folder.with_name("other")
    tiny_model(d_model=32).save(other)
    shutil.copy(other / "weights.safetensors", folder)
    _seal(folder)


def _no_numbers(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    _seal(folder)


def _seal(folder: Path) -> None:
    """With a manifest that fits: whoever swaps files may write that as well."""
    (folder / "manifest.json").unlink()
    write_manifest(folder, "attendo.model", 1)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights cut": (_cut("weights.safetensors", -100), "weights.safetensors has"),
    "weights empty": (_cut("weights.safetensors", 0), "weights.safetensors has 0 bytes"),
    "weights flipped": (_flip("weights.safetensors"), "weights.safetensors is damaged"),
    "weights missing": (_take("weights.safetensors"), "weights.safetensors is missing"),
    "weights of another": (_weights_of_another, "weights.safetensors"),
    "config cut": (_cut("config.json", 10), "config.json has"),
    "config flipped": (_flip("config.json"), "config.json is damaged"),
    "config missing": (_take("config.json"), "config.json is missing"),
    "config says nothing": (_no_numbers, "config.json"),
    "manifest cut": (_cut("manifest.json", 10), "manifest.json"),
    "manifest missing": (_take("manifest.json"), "manifest.json"),
    "source tokenizer missing": (_take("source.tokenizer.json"), "source.tokenizer.json is missing"),
    "target tokenizer missing": (_take("target.tokenizer.json"), "target.tokenizer.json is missing"),
    "target tokenizer cut": (_cut("target.tokenizer.json", 10), "target.tokenizer.json has"),
    "tokenizer of another": (_other_tokenizer, fragment("tokenizer_size_mismatch")),
    "tokenizers swapped": (_swapped_tokenizers, "tokenizer.json"),
    "generation missing": (_take("generation.json"), "generation.json is missing"),
    "a folder with nothing in it": (_empty, fragment("model_manifest_missing", reason="it is empty")),
    "a file": (_file, "is not a folder"),
    "no folder": (_take_all, "is not a folder"),
}
LIKELY = ("weights flipped", "tokenizer of another", "no folder")


@pytest.mark.short(8)
@pytest.mark.parametrize(
    ("kind", "check"),
    [*((kind, ()) for kind in DAMAGES), *((kind, ("--check",)) for kind in (*LIKELY, "weights missing"))],
)
def test_S13_a_bad_model_is_told_in_one_line(
    children: Children, tmp_path: Path, kind: str, check: tuple[str, ...]
) -> None:
    damage, told = DAMAGES[kind]
    tiny_model().save(tmp_path / "model")
    damage(tmp_path / "model")
    ended = children.attendo("serve", tmp_path / "model", "--port", "0", *check)
    assert ended.code == 4
    assert told in ended.error
    assert str(tmp_path / "model") in ended.error
    assert ended.errors.count("\n") == 1


@pytest.mark.parametrize("kind", LIKELY)
def test_S13_whoever_asks_a_server_with_a_bad_model_is_never_answered(
    children: Children, tmp_path: Path, kind: str
) -> None:
    """Also who asks from the first moment, when its port is taken already."""
    tiny_model().save(tmp_path / "model")
    DAMAGES[kind][0](tmp_path / "model")
    with Service(children, tmp_path / "model", port=free_port()) as service:
        asking = Asking(service, different(4))
        answered = {service.get("/readyz").status, service.get("/livez").status}
        assert service.wait().code == 4
        assert answered | {each.status for each in asking.answers()} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["weights cut", *LIKELY])
def test_S13_a_bad_model_is_told_within_five_seconds_of_the_command(tmp_path: Path, kind: str) -> None:
    tiny_model().save(tmp_path / "model")
    DAMAGES[kind][0](tmp_path / "model")
    assert min(seconds_to_tell(tmp_path / "model") for _ in range(3)) < 5


def seconds_to_tell(folder: Path) -> float:
    """Of the process alone, which has to import everything first: others may be computing too."""
    command = [sys.executable, "-m", "attendo", "serve", str(folder), "--port", "0"]
    before = os.times()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (4, "", 1)
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_S13_a_good_model_beside_a_bad_one_is_not_served_either(children: Children, tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "good")
    ended = children.attendo("serve", tmp_path / "good", tmp_path / "bad", "--port", "0")
    assert (ended.code, "bad is not a folder" in ended.error) == (4, True)


def test_a_port_that_is_taken_is_told_before_any_model_is_read(children: Children, tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "model")
    DAMAGES["weights flipped"][0](tmp_path / "model")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = children.attendo("serve", tmp_path / "model", "--port", str(port))
    assert ended.code == 2
    assert ended.error.startswith(fragment("port_in_use", port=port, host="127.0.0.1"))


@pytest.mark.slow
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
