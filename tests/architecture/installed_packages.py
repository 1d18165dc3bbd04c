"""Reads the dependencies in pyproject.toml with their own dependencies, constraints.txt and the list of licences."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "attendo"
# torch with CUDA depends on exact versions of these packages.
CUDA_PACKAGES = ("nvidia-", "cuda-", "triton")
_ROW = re.compile(r"\| ([\w.-]+) \| ([^|]+) \| ([^|]+) \|")


def required_packages(extra: str) -> dict[str, set[str]]:
    """Every package that `attendo[extra]` needs on this machine, with the packages that require it.

    Read from pyproject.toml, because the installed metadata of attendo may be older.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    required: dict[str, set[str]] = defaultdict(set)
    todo = [(PROJECT, each) for each in _parse_requirements(project["dependencies"])]
    todo += [(PROJECT, each) for each in _parse_requirements(extras[extra])]
    seen: set[tuple[str, str]] = set()
    while todo:
        parent, each = todo.pop()
        name = canonicalize_name(each.name)
        if (parent, str(each)) in seen or name.startswith(CUDA_PACKAGES):
            continue
        seen.add((parent, str(each)))
        if name == PROJECT:
            todo += [(PROJECT, more) for named in each.extras for more in _parse_requirements(extras[named])]
            continue
        required[name].add(parent)
        todo += [(name, more) for more in _parse_requirements(metadata.requires(name) or [], each.extras)]
    return dict(required)


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    rows = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in rows}


def licence_list() -> dict[str, tuple[str, str]]:
    """The licence and the purpose of each package of the list, by name."""
    rows = _ROW.findall((ROOT / "docs" / "dependencies.md").read_text("utf-8"))
    return {
        canonicalize_name(name): (licence.strip(), purpose.strip())
        for name, licence, purpose in rows
        if name != "package"
    }


def _parse_requirements(required: Iterable[str], extras: Iterable[str] = ()) -> list[Requirement]:
    """The requirements whose markers hold on this machine."""
    found = map(Requirement, required)
    return [each for each in found if each.marker is None or any(_marker_holds(each, extra) for extra in ("", *extras))]


def _marker_holds(each: Requirement, extra: str) -> bool:
    return each.marker is not None and each.marker.evaluate({"extra": extra})
