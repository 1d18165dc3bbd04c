"""`attendo serve`: the models and hosts it serves, and errors in its arguments."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import Command, tiny_model

from attendo.errors import UsageError
from attendo.interop.onnx.folder import to_onnx
from attendo.serve import server, settings
from attendo.serve.app import Application
from attendo.serve.http.auth import read_keys
from attendo.serve.http.connections import uvicorn_options
from attendo.serve.settings import LOOPBACK
from attendo.text_model import load

KEY = "a-key-of-some-length"


@pytest.fixture
def translator(tmp_path: Path) -> Path:
    """A model folder whose card has a task and languages."""
    model = tiny_model()
    model.about.update(task="translation", source_language="en", target_language="zh")
    model.save(tmp_path / "translator" / "model")
    return tmp_path / "translator" / "model"


@pytest.fixture
def start_server(attendo: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Application, str]]:
    """Runs the command with a stub server. Returns the application and standard error."""
    apps: list[Application] = []

    def run(app: Application, bound: server.BoundSocket, on_ready: Callable[[], None], quiet: bool = False) -> int:
        apps.append(app)
        on_ready()
        return 0

    monkeypatch.setattr(server, "serve", run)

    def start(*arguments: str | Path) -> tuple[Application, str]:
        outcome = attendo("serve", *arguments, "--port", "0")
        assert outcome.code == 0, outcome.errors
        assert outcome.output.startswith("http://")
        return apps[-1], outcome.errors

    return start


def test_check_prints_the_models_and_exits(attendo: Command, translator: Path, model_folder: Path) -> None:
    outcome = attendo("serve", translator, model_folder, "--check")
    assert outcome.code == 0
    first, second = outcome.output.splitlines()
    assert first.startswith("translator  translation  en→zh  torch on cpu  ")
    assert " parameters  sha256 " in first
    assert "→" not in second
    assert "does not say which languages it translates" in outcome.errors
    assert "--languages" in outcome.errors


def test_a_config_file_sets_missing_options(
    start_server: Callable[..., tuple[Application, str]], attendo: Command, translator: Path, tmp_path: Path
) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        f'models = ["{translator}"]\nallow-host = ["x.org"]\nport = 1\ndeadline = 5.0\n[set]\nmax_queued = 3\n', "utf-8"
    )
    app, _ = start_server("--config", file, "--deadline", "4")  # and --port 0
    settings = app.gateway.settings
    assert (settings.max_queued, settings.deadline_seconds, "x.org" in settings.allowed_hosts) == (3, 4.0, True)
    assert app.gateway.pairs() == [("en", "zh")]
    for content, text in (("prot = 1", "did you mean port"), ("port =", "is not TOML"), ('port = "x"', "port")):
        file.write_text(content, "utf-8")
        failed = attendo("serve", translator, "--config", file)
        assert failed.code == 2
        assert text in failed.errors


def test_check_needs_no_port(attendo: Command, translator: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        assert attendo("serve", translator, "--check", "--port", port).code == 0
        failed = attendo("serve", translator, "--port", port)
    assert failed.code == 2
    assert failed.error.startswith(fragment("port_in_use", port=port, host="127.0.0.1"))


def test_languages_and_tasks_apply_to_models_in_order(
    start_server: Callable[..., tuple[Application, str]], translator: Path, model_folder: Path
) -> None:
    app, errors = start_server(translator, model_folder, "--languages", "zh-Hans-en", "--languages", "EN-de")
    assert app.gateway.pairs() == [("zh", "en"), ("en", "de")]
    assert [each.about.task for each in app.gateway.registry.all()] == ["translation"] * 2
    assert "warning" not in errors
    app, errors = start_server(translator, model_folder, "--task", "translation", "--task", "summarization")
    assert [each.about.task for each in app.gateway.registry.all()] == ["translation", "summarization"]
    assert app.gateway.pairs() == [("en", "zh")]
    assert "warning" not in errors


def test_options_become_settings(
    start_server: Callable[..., tuple[Application, str]],
    translator: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ATTENDO_KEYS", f"{KEY}, another-key")
    options = ("--deadline", "2.5", "--cors-origin", "https://a.example", "--cors-origin", "https://b.example")
    more = ("--documents-folder", tmp_path, "--metrics-open", "--log-format", "json", "--set", "max_queued=7")
    more += ("--log-level", "warning")
    app, _ = start_server(translator, *options, *more)
    settings = app.gateway.settings
    assert settings.keys == (KEY, "another-key")
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert (settings.deadline_seconds, settings.max_queued) == (2.5, 7)
    assert (settings.log_format, settings.log_level) == ("json", "warning")
    assert uvicorn_options(settings)["log_config"]["loggers"]["attendo"]["level"] == "WARNING"
    assert (settings.documents_folder, settings.metrics_open, settings.allowed_hosts) == (tmp_path, True, (*LOOPBACK,))


def test_public_hosts_are_allowed_by_name_and_warn_without_keys(
    start_server: Callable[..., tuple[Application, str]], translator: Path, tmp_path: Path
) -> None:
    app, errors = start_server(translator, "--host", "0.0.0.0", "--allow-host", "Translate.example.org")
    assert app.gateway.settings.allowed_hosts == (*LOOPBACK, "translate.example.org")
    assert "warning: every client that can reach 0.0.0.0 can use this server" in errors
    (tmp_path / "keys").write_text(f"# ours\n\n{KEY}\n", "utf-8")
    app, errors = start_server(
        translator, "--host", "0.0.0.0", "--allow-host", "a.example", "--key-file", tmp_path / "keys"
    )
    assert app.gateway.settings.keys == (KEY,)
    assert "warning" not in errors
    assert KEY not in errors


def test_precision_is_applied_and_models_are_not_compiled(
    start_server: Callable[..., tuple[Application, str]], tmp_path: Path
) -> None:
    model = tiny_model()
    model.stored_model.generation["compile"] = True
    model.save(tmp_path / "one")
    app, _ = start_server(tmp_path / "one", "--precision", "bf16")
    generation = app.gateway.get_model(None).model.generation
    assert (generation.precision, generation.compile, generation.max_length_extra) == ("bf16", False, 7)


def test_an_exported_folder_keeps_its_model_card(
    start_server: Callable[..., tuple[Application, str]], attendo: Command, translator: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    to_onnx(load(translator), tmp_path / "exported")
    app, errors = start_server(tmp_path / "exported")
    assert app.gateway.pairs() == [("en", "zh")]
    assert "onnx on cpu" in errors
    failed = attendo("serve", tmp_path / "exported", "--precision", "bf16", "--check")
    assert (failed.code, fragment("precision_for_exported_model") in failed.error) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--languages", "en"], 2, fragment("invalid_language_pair", value="en")),
        (["--languages", "en-qq"], 2, fragment("invalid_language_pair", value="en-qq")),
        (
            ["--languages", "en-zh", "--languages", "zh-en"],
            2,
            fragment("option_model_count_mismatch", given=2, models=1),
        ),
        (["--task", "chess"], 2, "task must be 'translation'"),
        (
            ["--task", "generation", "--task", "generation"],
            2,
            fragment("option_model_count_mismatch", option="--task", given=2),
        ),
        (["--host", "0.0.0.0"], 2, fragment("allow_host_missing")),
        (["--host", "::"], 2, fragment("allow_host_missing")),
        (["--host", "192.0.2.1", "--port", "0"], 2, fragment("host_not_local")),
        (["--key-file", "nowhere"], 2, message("key_file_unreadable", path="nowhere", reason="No such file")),
        (["--device", "tpu"], 2, fragment("unknown_device", name="tpu")),
        (["--precision", "int3"], 2, "precision must be"),
        (["--deadline", "0"], 2, "--deadline must be above 0"),
        (["--log-format", "xml"], 2, "--log-format must be 'text' or 'json'"),
        (
            ["--set", "max_queud=3"],
            2,
            fragment("unknown_setting", name="max_queud", suggestion=" (did you mean max_queued?)"),
        ),
        (["--port", "70000"], 2, "65535"),
        (["--cors-origin", "example.org"], 2, fragment("invalid_cors_origin", origin="example.org")),
        (["--cors-origin", "https://example.org/"], 2, fragment("invalid_cors_origin")),
        (["--cors-origin", "https://Example.org"], 2, fragment("invalid_cors_origin")),
        (["--allow-host", "http://x.org"], 2, fragment("invalid_host_name", host="http://x.org")),
        (["--allow-host", "x.org:8800"], 2, fragment("invalid_host_name", host="x.org:8800")),
        (["--allow-host", "*"], 2, fragment("invalid_host_name", host="*")),
        (["--documents-folder", "/proc/nope"], 2, fragment("documents_folder_unusable", path="/proc/nope")),
        (["--documents-folder", __file__], 2, fragment("documents_folder_unusable", reason="File exists")),
        (["--set", f"documents_folder={__file__}"], 2, fragment("documents_folder_unusable", reason="File exists")),
        (["--set", 'keys=["a"]'], 2, fragment("invalid_api_key", place="--set keys", min_length=8)),
    ],
)
def test_bad_arguments_are_one_line_errors(
    attendo: Command, model_folder: Path, arguments: list[str], code: int, text: str
) -> None:
    """`--check` runs first: an argument that it accepts would start a server that does not end."""
    for more in (("--check",), ()):
        failed = attendo("serve", model_folder, *arguments, *more)
        assert (failed.code, text in failed.error) == (code, True), failed.errors


def test_max_connections_needs_enough_open_files(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.resource, "getrlimit", lambda _: (1024, 4096))
    text = fragment("connections_exceed_open_files", connections=897, limit=896, files=1024)
    for more in (("--check",), ()):
        failed = attendo("serve", model_folder, "--set", "max_connections=897", *more)
        assert (failed.code, text in failed.error) == (2, True), failed.errors


def test_check_creates_no_folder(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    before = {*tmp_path.rglob("*")}
    for folder in (tmp_path / "there", tmp_path / "not" / "there"):
        assert attendo("serve", model_folder, "--documents-folder", folder, "--check").code == 0
    assert {*tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    "content", ["", "# only a remark\n", "short\n", "one and-another\n", "ключ-подлиннее\n", b"\xff\xfe"]
)
def test_an_invalid_key_is_rejected_without_being_printed(tmp_path: Path, content: str | bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as raised:
        read_keys(file, None)
    assert str(file) in str(raised.value)
    assert not [line for line in str(content).split() if len(line) > 4 and line in str(raised.value)]


def test_keys_of_file_and_environment_are_merged_once(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n  second-key  \n", "utf-8")
    assert read_keys(tmp_path / "keys", f"second-key\n{KEY},third-key-") == (KEY, "second-key", "third-key-")
    assert read_keys(None, None) == read_keys(None, " , ") == ()


def test_missing_packages_name_the_install_command(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uvicorn", "prometheus_client"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, None)
            patched.delitem(sys.modules, "attendo.serve.server")
            failed = attendo("serve", model_folder)
        assert failed.code == 2
        assert f"needs {name}: pip install 'attendo[serve]'" in failed.error
