"""X10: what is installed is what constraints.txt says, and every package of it is known with its licence."""

import importlib.util
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from installed_packages import ROOT, asked_for, constraints, listed

SCRIPT = ROOT / "deploy" / "sbom.py"
ALLOWED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"),
    *("CNRI-Python", "ISC", "MIT", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib"),
}


@pytest.fixture(scope="module")
def wanted() -> dict[str, set[str]]:
    return asked_for("dev")


def test_all_that_is_asked_for_is_found(wanted: dict[str, set[str]]) -> None:
    assert len(wanted) > 100
    assert "attendo" in wanted["torch"]
    assert "starlette" in wanted  # of fastapi, of the extra serve, of the extra dev
    assert "attendo" not in wanted


def test_what_is_installed_is_what_constraints_say(wanted: dict[str, set[str]]) -> None:
    """But for the mark of a build, such as +cpu."""
    installed = {name: metadata.version(name).partition("+")[0] for name in wanted}
    assert installed == {name: constraints().get(name) for name in wanted}


def test_every_package_is_on_the_list_and_the_list_has_no_other(wanted: dict[str, set[str]]) -> None:
    assert sorted(wanted.keys() - listed().keys()) == []
    assert sorted(listed().keys() - constraints().keys()) == []


def test_every_licence_may_be_used_and_everything_is_for_something() -> None:
    found = {name: licences(licence) - ALLOWED for name, (licence, _) in listed().items()}
    assert {name: bad for name, bad in found.items() if bad} == {}
    assert [name for name, (_, why) in listed().items() if len(why) < 3] == []


def test_a_package_has_the_licence_that_the_list_says(wanted: dict[str, set[str]]) -> None:
    told = {name: metadata.metadata(name).get("License-Expression") for name in wanted}
    assert sum(licence is not None for licence in told.values()) > 50
    assert {name: listed()[name][0] for name, licence in told.items() if licence} == {
        name: licence for name, licence in told.items() if licence
    }


def test_the_extras_that_are_not_here_are_in_the_constraints_too() -> None:
    """Every package that pyproject.toml names has its version."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    block = re.search(r"^dependencies = .*?^\[project\.scripts\]", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    named = {each.lower().replace("_", "-") for each in re.findall(r'"([\w-]+)(?:\[|>|")', block[0])} - {"attendo"}
    assert "ray" in named
    assert sorted(named - constraints().keys()) == []


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("sbom", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bill_of_materials_names_everything_once(script: Any, wanted: dict[str, set[str]]) -> None:
    told = script.bill(metadata.distributions())
    assert (told["bomFormat"], told["specVersion"], told["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "1.6",
        "attendo",
    )
    versions = {each["name"]: each["version"] for each in told["components"]}
    assert {name: versions.get(name) for name in wanted} == {name: metadata.version(name) for name in wanted}
    refs = [told["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in told["components"])]
    assert len(set(refs)) == len(refs)
    assert sorted(each["ref"] for each in told["dependencies"]) == sorted(refs)
    needs = {each["ref"]: each["dependsOn"] for each in told["dependencies"]}
    assert {ref for each in needs.values() for ref in each} <= set(refs)
    (torch,) = (each for each in told["components"] if each["name"] == "torch")
    assert torch["purl"].startswith("pkg:pypi/torch@")
    assert any("pkg:pypi/sympy@" in ref for ref in needs[torch["bom-ref"]])


@pytest.mark.slow
def test_it_is_written_to_a_file_the_same_each_time_by_a_python_alone(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        subprocess.run([sys.executable, str(SCRIPT), str(tmp_path / name)], check=True)
    first = (tmp_path / "one.json").read_text("utf-8")
    assert first == (tmp_path / "two.json").read_text("utf-8")
    assert len(json.loads(first)["components"]) > 100
    done = subprocess.run([sys.executable, str(SCRIPT), "--help"], check=False, capture_output=True)
    assert done.returncode == 2


def licences(expression: str) -> set[str]:
    return {each.strip("() ") for each in re.split(r" AND | OR ", expression)}
