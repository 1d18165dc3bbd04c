"""P8: a wheel built and installed without Node serves the same page."""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import tiny_model

import attendo.explore

for package in ("hatchling", "fastapi", "uvicorn"):
    pytest.importorskip(package, reason=f"a wheel that serves needs {package}: pip install {package}")

PAGE = Path(attendo.explore.__file__).parent / "page"
PROJECT = PAGE.parents[2]
PATIENCE = 240  # seconds; only a hang reaches it
RECIPES = [path for path in (PROJECT / "recipes").rglob("*") if path.is_file()]
TOOLS = ("node", "nodejs", "npm", "npx", "yarn", "pnpm", "deno", "bun", "esbuild", "tsc")


@pytest.fixture(scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment without any JavaScript build tool."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("sh", "env", "uname"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    assert not any(shutil.which(tool, path=str(folder)) for tool in TOOLS)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("NODE", "npm_", "PYTHON"))}
    return {**variables, "PATH": str(folder), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, bare_environment: dict[str, str]) -> Path:
    """A wheel built from this tree by the project's build system, without network access."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=PROJECT, env=bare_environment, check=True, capture_output=True)
    (found,) = folder.glob("attendo-*.whl")
    return found


@pytest.fixture(scope="module")
def served(wheel: Path, bare_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `attendo explore`, run from the installed wheel."""
    installed, model = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("run") / "model"
    with zipfile.ZipFile(wheel) as archive:  # as an installer does for a pure Python wheel
        archive.extractall(installed)
    tiny_model().save(model)
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(installed)!r}); import attendo.cli.main as m; "
        "assert m.__file__.startswith(sys.path[0]); m.main()",
    ]
    process = subprocess.Popen(
        [*command, "explore", str(model), "--port", "0", "--no-open"],
        cwd=installed,
        env=bare_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


def test_every_file_of_the_page_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name: archive.read(name) for name in archive.namelist() if name.startswith("attendo/explore/page/")}
    here = {f"attendo/explore/page/{path.relative_to(PAGE).as_posix()}": path for path in PAGE.rglob("*")}
    assert in_wheel == {name: path.read_bytes() for name, path in here.items() if path.is_file()}
    assert len(in_wheel) > 30


def test_every_file_of_the_package_and_every_recipe_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    package = {path.relative_to(PROJECT) for path in (PROJECT / "attendo").rglob("*") if path.is_file()}
    recipes = {Path("attendo/recipes/run_files", path.relative_to(PROJECT / "recipes")) for path in RECIPES}
    expected = {path.as_posix() for path in package | recipes if "__pycache__" not in path.parts}
    assert sorted(expected - in_wheel) == []
    assert len(recipes) > 10
    assert not [name for name in in_wheel if "tests" in name.split("/")]


def test_wheel_contains_only_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"attendo", next(top for top in tops if top.endswith(".dist-info"))}


def test_page_has_no_build_step() -> None:
    files = {path.name for path in (*PROJECT.iterdir(), *PAGE.rglob("*"))}
    assert files.isdisjoint({"package.json", "package-lock.json", "node_modules", "tsconfig.json", "vite.config.js"})


def test_installed_wheel_serves_the_page_and_its_files(served: str) -> None:
    without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def fetch(path: str) -> bytes:
        with without_proxy.open(f"{served}{path}", timeout=PATIENCE) as response:
            assert response.status == 200
            return bytes(response.read())

    index = fetch("").decode()
    assert index == (PAGE / "index.html").read_text("utf-8")
    loaded = re.findall(r'(?:href|src)="/(page/[^"]+)"', index)
    assert len(loaded) > 30
    for path in loaded:
        assert fetch(path) == (PAGE.parent / path).read_bytes()
    assert b'"models"' in fetch("api/v1/models")
