"""The files in deploy/ match the options, ports, limits and exit codes of the server."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from attendo.cli.main import app
from attendo.errors import DataError, ModelError, UsageError
from attendo.serve.settings import ServeSettings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT, IMAGE, PROXY = DEPLOY / "attendo@.service", ROOT / "Dockerfile", DEPLOY / "nginx.conf"
LIMITS = ServeSettings()


def joined_lines(path: Path) -> list[str]:
    """Lines without comments; continued lines are joined."""
    text = re.sub(r"\\\n\s*", "", path.read_text("utf-8"))
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def unit() -> dict[str, str]:
    return dict(line.split("=", 1) for line in joined_lines(UNIT) if "=" in line)


def image(word: str) -> list[str]:
    return [line.split(" ", 1)[1] for line in joined_lines(IMAGE) if line.startswith(f"{word} ")]


def serve_options() -> dict[str, Any]:
    """Every option of `attendo serve` with its default."""
    root: Any = typer.main.get_command(app)
    command = root.commands["serve"]
    found = command.get_params(typer.Context(command))
    return {name: each.default for each in found for name in each.opts if name.startswith("--")}


def directives(name: str) -> list[str]:
    return re.findall(rf"^\s*{name}\s+([^;]+);", PROXY.read_text("utf-8"), re.MULTILINE)


def seconds(text: str) -> int:
    assert re.fullmatch(r"\d+s", text)
    return int(text[:-1])


def size(text: str) -> int:
    return int(text[:-1]) * {"k": 1024, "m": 1024**2}[text[-1]]


def test_options_exist_in_the_serve_command() -> None:
    known = set(serve_options())
    assert "--key-file" in known
    in_unit = [word for word in shlex.split(unit()["ExecStart"]) if word.startswith("--")]
    in_image = re.findall(r'"(--[a-z-]+)"', image("ENTRYPOINT")[0])
    in_readme = re.findall(r"attendo serve [^\n]*", (DEPLOY / "README.md").read_text("utf-8"))
    documented = [word for line in in_readme for word in line.split() if word.startswith("--")]
    assert in_unit
    assert in_image
    assert documented
    assert {*in_unit, *in_image, *documented} <= known


def test_ports_match_in_all_files() -> None:
    words = re.findall(r'"([^"]*)"', image("ENTRYPOINT")[0])
    port = words[words.index("--port") + 1]
    assert int(port) == serve_options()["--port"]
    assert image("EXPOSE") == [port]
    assert f":{port}/readyz" in image("HEALTHCHECK")[0]
    assert f":{port}:{port}" in IMAGE.read_text("utf-8")
    assert "--port %i" in unit()["ExecStart"]
    ports = re.findall(r"server 127\.0\.0\.1:(\d+)", PROXY.read_text("utf-8"))
    documented = re.findall(r"attendo@(\d+)", (DEPLOY / "README.md").read_text("utf-8"))
    assert len(set(ports)) > 1
    assert set(ports) == set(documented) == set(re.findall(r"attendo@(\d+)", UNIT.read_text("utf-8")))


def test_systemd_unit_restricts_rights_and_waits_for_drain() -> None:
    found = unit()
    for name in (
        "DynamicUser",
        "ProtectHome",
        "NoNewPrivileges",
        "PrivateTmp",
        "RestrictNamespaces",
        "LockPersonality",
    ):
        assert found[name] == "yes", name
    assert found["ProtectSystem"] == "strict"
    assert found["CapabilityBoundingSet"] == ""
    assert found["IPAddressDeny"] == "any"
    assert int(found["TimeoutStopSec"]) > LIMITS.drain_seconds
    expected = {str(error.exit_code) for error in (UsageError, DataError, ModelError)}
    assert set(found["RestartPreventExitStatus"].split()) == expected
    assert found["Restart"] == "on-failure"
    assert found["LoadCredential"].startswith("keys:")
    assert "--key-file %d/keys" in found["ExecStart"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text("utf-8").replace("/opt/attendo/bin/attendo", sys.executable)
    (tmp_path / "attendo@8801.service").write_text(text, "utf-8")
    command = ["systemd-analyze", "verify", "--man=no", tmp_path / "attendo@8801.service"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "attendo" not in done.stderr
    assert done.returncode == 0


def test_image_has_a_plain_base_and_no_root_user() -> None:
    for source in image("FROM"):
        assert re.fullmatch(r"python:3\.\d+-slim( AS build)?", source)  # no host of a registry
    assert image("USER") == ["10001:10001"]
    assert image("STOPSIGNAL") == ["SIGTERM"]
    # The exec form: a shell in between would not pass SIGTERM on.
    assert image("ENTRYPOINT")[0].startswith('["attendo", "serve"')
    assert image("CMD")[0].startswith("[")
    assert image("VOLUME") == image("WORKDIR")[1:] == ["/models"]


def copied_files() -> list[str]:
    """Files and folders of the project that the image copies."""
    return [name for words in image("COPY") if not words.startswith("--from") for name in words.split()[:-1]]


def test_wheel_builds_from_the_files_copied_into_the_image(tmp_path: Path) -> None:
    """The wheel needs all of them: it contains the recipes, for example."""
    pytest.importorskip("hatchling", reason="a wheel is built with it")
    assert set(copied_files()) == {
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")
    }
    for name in copied_files():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_image_installs_torch_and_packages_by_the_constraints() -> None:
    (torch,) = (line for line in joined_lines(ROOT / "constraints.txt") if line.startswith("torch=="))
    assert f"TORCH={torch}" in image("ARG")
    assert f"TORCH ?= {torch}" in joined_lines(ROOT / "Makefile")
    installs = [line for line in image("RUN") if "pip install" in line]
    assert len(installs) == 2
    assert all("--constraint constraints.txt" in line for line in installs)


def test_installed_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for path in (IMAGE, DEPLOY / "README.md"):
        (named,) = re.findall(r"(?:attendo|\.)\[([a-z,]+)\]", path.read_text("utf-8"))
        assert set(named.split(",")) <= set(extras)
        assert {"serve", "detect"} <= set(named.split(","))


def test_nginx_matches_server_limits_and_does_not_buffer() -> None:
    assert "least_conn" in PROXY.read_text("utf-8")
    assert directives("proxy_buffering") == ["off"]
    assert directives("proxy_http_version") == ["1.1"]
    assert "Host $host" in directives("proxy_set_header")
    default, documents = map(size, directives("client_max_body_size"))
    assert default == LIMITS.body_bytes
    assert documents >= LIMITS.documents_bytes
    assert seconds(directives("proxy_read_timeout")[0]) > LIMITS.deadline_seconds
    assert seconds(directives("client_body_timeout")[0]) <= LIMITS.body_timeout
    count, each = directives("large_client_header_buffers")[0].split()
    assert int(count) * size(each) <= LIMITS.header_bytes
    assert directives("proxy_ignore_client_abort") == ["off"]
    upstreams = re.findall(r"^upstream (\w+)", PROXY.read_text("utf-8"), re.MULTILINE)
    assert sorted(directives("proxy_pass")) == sorted(f"http://{name}" for name in upstreams)


def test_nginx_blocks_and_statements_are_closed() -> None:
    depth = 0
    for line in joined_lines(PROXY):
        assert line.endswith((";", "{", "}")), line
        depth += line.endswith("{") - (line == "}")
        assert depth >= 0
    assert depth == 0


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx here")
def test_nginx_accepts_its_config(tmp_path: Path) -> None:
    text = re.sub(r"^\s*ssl_.*\n", "", PROXY.read_text("utf-8"), flags=re.MULTILINE).replace("443 ssl", "8443")
    config = f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; {text} }}"
    (tmp_path / "nginx.conf").write_text(config, "utf-8")
    command = ["nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
