"""S13: a damaged model ends the command with one error line; replacing the folder does not affect a running server."""

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
from small_service import ConcurrentRequests, Service, distinct_requests, free_port
from tiny import tiny_model

from attendo.model_folder import write_manifest
from attendo.text import Words


def _truncate(name: str, length: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:length])

    return damage


def _flip(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    return damage


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _empty_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a model")


def _replace_tokenizer(folder: Path) -> None:
    Words.build(["quite other words than it was trained with"]).save(folder, "target")
    _update_manifest(folder)


def _swap_tokenizers(folder: Path) -> None:
    source, target = folder / "source.tokenizer.json", folder / "target.tokenizer.json"
    source_content = source.read_bytes()
    source.write_bytes(target.read_bytes())
    target.write_bytes(source_content)


def _replace_weights(folder: Path) -> None:
    other = folder.with_name("other")
    tiny_model(d_model=32).save(other)
    shutil.copy(other / "weights.safetensors", folder)
    _update_manifest(folder)


def _empty_config(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    _update_manifest(folder)


def _update_manifest(folder: Path) -> None:
    """Write a matching manifest, because an attacker who swaps files can do so too."""
    (folder / "manifest.json").unlink()
    write_manifest(folder, "attendo.model", 1)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights cut": (_truncate("weights.safetensors", -100), "weights.safetensors has"),
    "weights empty": (_truncate("weights.safetensors", 0), "weights.safetensors has 0 bytes"),
    "weights flipped": (_flip("weights.safetensors"), "weights.safetensors is damaged"),
    "weights missing": (_remove("weights.safetensors"), "weights.safetensors is missing"),
    "weights of another": (_replace_weights, "weights.safetensors"),
    "config cut": (_truncate("config.json", 10), "config.json has"),
    "config flipped": (_flip("config.json"), "config.json is damaged"),
    "config missing": (_remove("config.json"), "config.json is missing"),
    "config says nothing": (_empty_config, "config.json"),
    "manifest cut": (_truncate("manifest.json", 10), "manifest.json"),
    "manifest missing": (_remove("manifest.json"), "manifest.json"),
    "source tokenizer missing": (_remove("source.tokenizer.json"), "source.tokenizer.json is missing"),
    "target tokenizer missing": (_remove("target.tokenizer.json"), "target.tokenizer.json is missing"),
    "target tokenizer cut": (_truncate("target.tokenizer.json", 10), "target.tokenizer.json has"),
    "tokenizer of another": (_replace_tokenizer, fragment("tokenizer_size_mismatch")),
    "tokenizers swapped": (_swap_tokenizers, "tokenizer.json"),
    "generation missing": (_remove("generation.json"), "generation.json is missing"),
    "a folder with nothing in it": (_empty_folder, fragment("model_manifest_missing", reason="it is empty")),
    "a file": (_replace_by_file, "is not a folder"),
    "no folder": (_remove_folder, "is not a folder"),
}
LIKELY = ("weights flipped", "tokenizer of another", "no folder")


@pytest.mark.short(8)
@pytest.mark.parametrize(
    ("kind", "check"),
    [*((kind, ()) for kind in DAMAGES), *((kind, ("--check",)) for kind in (*LIKELY, "weights missing"))],
)
def test_S13_damaged_model_gives_one_error_line(
    children: Children, tmp_path: Path, kind: str, check: tuple[str, ...]
) -> None:
    damage, expected = DAMAGES[kind]
    tiny_model().save(tmp_path / "model")
    damage(tmp_path / "model")
    ended = children.attendo("serve", tmp_path / "model", "--port", "0", *check)
    assert ended.code == 4
    assert expected in ended.error
    assert str(tmp_path / "model") in ended.error
    assert ended.errors.count("\n") == 1


@pytest.mark.parametrize("kind", LIKELY)
def test_S13_server_with_a_damaged_model_never_responds(children: Children, tmp_path: Path, kind: str) -> None:
    """Requests are sent from the start, when the port is already bound."""
    tiny_model().save(tmp_path / "model")
    DAMAGES[kind][0](tmp_path / "model")
    with Service(children, tmp_path / "model", port=free_port()) as service:
        requests = ConcurrentRequests(service, distinct_requests(4))
        statuses = {service.get("/readyz").status, service.get("/livez").status}
        assert service.wait().code == 4
        assert statuses | {each.status for each in requests.responses()} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["weights cut", *LIKELY])
def test_S13_damaged_model_is_reported_in_5_s(tmp_path: Path, kind: str) -> None:
    tiny_model().save(tmp_path / "model")
    DAMAGES[kind][0](tmp_path / "model")
    assert min(cpu_seconds_to_fail(tmp_path / "model") for _ in range(3)) < 5


def cpu_seconds_to_fail(folder: Path) -> float:
    """CPU seconds of the process, including all imports. Wall time would depend on the load of the machine."""
    command = [sys.executable, "-m", "attendo", "serve", str(folder), "--port", "0"]
    before = os.times()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (4, "", 1)
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_S13_one_damaged_model_stops_the_server(children: Children, tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "good")
    ended = children.attendo("serve", tmp_path / "good", tmp_path / "bad", "--port", "0")
    assert (ended.code, "bad is not a folder" in ended.error) == (4, True)


def test_occupied_port_is_reported_before_models_are_read(children: Children, tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "model")
    DAMAGES["weights flipped"][0](tmp_path / "model")
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        ended = children.attendo("serve", tmp_path / "model", "--port", str(port))
    assert ended.code == 2
    assert ended.error.startswith(fragment("port_in_use", port=port, host="127.0.0.1"))


@pytest.mark.slow
def test_replacing_the_folder_does_not_affect_a_running_server(children: Children, tmp_path: Path) -> None:
    folder, text = tmp_path / "model", "I saw the small cat"
    tiny_model().save(folder)
    with Service(children, folder) as service:
        service.wait_until_ready()
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
        service.wait_until_ready()
        assert service.generate(text).content != before
