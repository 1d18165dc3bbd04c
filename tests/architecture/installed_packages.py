"""What pyproject.toml asks for, what that asks for in turn, and what constraints.txt and the list of licences say."""

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
# A torch with CUDA brings these by itself, in the versions that it names.
OF_CUDA = ("nvidia-", "cuda-", "triton")
_ROW = re.compile(r"\| ([\w.-]+) \| ([^|]+) \| ([^|]+) \|")


def asked_for(extra: str) -> dict[str, set[str]]:
    """Every package that `attendo[extra]` needs on this machine, by the packages that ask for it.

    Read from pyproject.toml: what is installed as attendo may be older.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted: dict[str, set[str]] = defaultdict(set)
    todo = [(PROJECT, each) for each in _of(project["dependencies"])]
    todo += [(PROJECT, each) for each in _of(extras[extra])]
    seen: set[tuple[str, str]] = set()
    while todo:
        asking, each = todo.pop()
        name = canonicalize_name(each.name)
        if (asking, str(each)) in seen or name.startswith(OF_CUDA):
            continue
        seen.add((asking, str(each)))
        if name == PROJECT:
            todo += [(PROJECT, more) for named in each.extras for more in _of(extras[named])]
            continue
        wanted[name].add(asking)
        todo += [(name, more) for more in _of(metadata.requires(name) or [], each.extras)]
    return dict(wanted)


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    rows = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in rows}


def listed() -> dict[str, tuple[str, str]]:
    """By name: the licence, and what it is for."""
    rows = _ROW.findall((ROOT / "docs" / "dependencies.md").read_text("utf-8"))
    return {canonicalize_name(name): (licence.strip(), why.strip()) for name, licence, why in rows if name != "package"}


def _of(wanted: Iterable[str], extras: Iterable[str] = ()) -> list[Requirement]:
    """Those that this machine needs."""
    found = map(Requirement, wanted)
    return [each for each in found if each.marker is None or any(_holds(each, extra) for extra in ("", *extras))]


def _holds(each: Requirement, extra: str) -> bool:
    return each.marker is not None and each.marker.evaluate({"extra": extra})
