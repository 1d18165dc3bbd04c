"""`attendo plot`: the picture file, messages and errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from error_codes import has_code
from typer.testing import CliRunner, Result

from attendo.cli.plot import plot
from attendo.errors import DataError, UsageError


def run_plot(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(plot)
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two steps in the working folder."""
    monkeypatch.chdir(tmp_path)
    folder = Path("runs") / "first"
    write_metrics(folder)
    return folder


def write_metrics(folder: Path) -> None:
    folder.mkdir(parents=True)
    lines = [{"kind": "step", "step": n, "loss": 9.0 - n, "lr": 1e-3, "tokens": 9, "seconds": n} for n in (1, 2)]
    lines.append({"kind": "validation", "step": 2, "loss": 8.0, "scores": {"bleu": 3.0}, "best": True})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def test_the_picture_of_one_run_goes_into_its_folder(run: Path) -> None:
    done = run_plot(run)
    assert (done.exit_code, done.stdout) == (0, "runs/first/curves.png\n")
    assert done.stderr == "learning curves of first written to runs/first/curves.png\n"
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert run_plot(run / "metrics.jsonl", "--metric", "lr").stdout == "runs/first/curves.png\n"


def test_the_picture_of_several_runs_goes_into_the_working_folder(run: Path) -> None:
    write_metrics(Path("runs/second"))
    done = run_plot(run, "runs/second", "--metric", "lr")
    assert (done.exit_code, done.stdout) == (0, "curves.png\n")
    assert done.stderr == "learning curves of 2 runs written to curves.png\n"
    assert Path("curves.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("new/folder/a.PDF", b"%PDF"), ("b.png", b"\x89PNG")])
def test_the_file_suffix_sets_the_picture_format(run: Path, name: str, start: bytes) -> None:
    done = run_plot(run, "-o", name, "--metric", "bleu", "--x", "tokens")
    assert (done.exit_code, done.stdout) == (0, f"{name}\n")
    assert Path(name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.jpg", "a", "png", "a.png.txt"])
def test_an_unknown_format_is_rejected_before_reading(run: Path, name: str) -> None:
    with pytest.raises(UsageError, check=has_code("unknown_picture_format")):
        plot([run / "missing"], Path(name))
    assert not Path(name).exists()


def test_errors_leave_no_file(run: Path) -> None:
    with pytest.raises(UsageError, check=has_code("unknown_run_metric", metric="chrf")):
        plot([run], Path("a.png"), ["chrf"])
    with pytest.raises(DataError, check=has_code("metrics_file_unreadable")):
        plot([run, Path("missing")], Path("a.png"))
    failed = run_plot(run, "-o", "a.png", "--x", "epochs")
    assert failed.exit_code == 2
    assert "epochs" in failed.stderr
    assert run_plot().exit_code == 2
    assert not Path("a.png").exists()


@pytest.mark.slow
def test_plot_does_not_import_torch(run: Path) -> None:
    code = "import sys; from pathlib import Path; from attendo.cli.plot import plot; plot([Path(sys.argv[1])])"
    code += "; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, run], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "runs/first/curves.png\n"), done.stderr
