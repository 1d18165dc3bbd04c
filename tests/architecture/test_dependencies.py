"""X10: installed versions match constraints.txt, and the licence of every package is listed."""

import importlib.util
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from installed_packages import ROOT, constraints, licence_list, required_packages

SCRIPT = ROOT / "deploy" / "sbom.py"
ALLOWED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"),
    *("CNRI-Python", "ISC", "MIT", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib"),
}


@pytest.fixture(scope="module")
def required() -> dict[str, set[str]]:
    return required_packages("dev")


def test_indirect_requirements_are_found(required: dict[str, set[str]]) -> None:
    assert len(required) > 100
    assert "attendo" in required["torch"]
    assert "starlette" in required  # fastapi needs it; the extra serve needs fastapi; the extra dev needs serve
    assert "attendo" not in required


def test_installed_versions_match_constraints(required: dict[str, set[str]]) -> None:
    """The build suffix of a version, such as +cpu, is ignored."""
    installed = {name: metadata.version(name).partition("+")[0] for name in required}
    assert installed == {name: constraints().get(name) for name in required}


def test_licence_list_matches_required_packages(required: dict[str, set[str]]) -> None:
    assert sorted(required.keys() - licence_list().keys()) == []
    assert sorted(licence_list().keys() - constraints().keys()) == []


def test_every_licence_is_allowed_and_every_purpose_is_given() -> None:
    found = {name: licences(licence) - ALLOWED for name, (licence, _) in licence_list().items()}
    assert {name: bad for name, bad in found.items() if bad} == {}
    assert [name for name, (_, purpose) in licence_list().items() if len(purpose) < 3] == []


def test_listed_licences_match_package_metadata(required: dict[str, set[str]]) -> None:
    licences_by_package = {name: metadata.metadata(name).get("License-Expression") for name in required}
    assert sum(licence is not None for licence in licences_by_package.values()) > 50
    assert {name: licence_list()[name][0] for name, licence in licences_by_package.items() if licence} == {
        name: licence for name, licence in licences_by_package.items() if licence
    }


def test_constraints_include_extras_not_installed_here() -> None:
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


def test_bill_of_materials_names_every_package_once(script: Any, required: dict[str, set[str]]) -> None:
    bill = script.bill(metadata.distributions())
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "1.6",
        "attendo",
    )
    versions = {each["name"]: each["version"] for each in bill["components"]}
    assert {name: versions.get(name) for name in required} == {name: metadata.version(name) for name in required}
    refs = [bill["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in bill["components"])]
    assert len(set(refs)) == len(refs)
    assert sorted(each["ref"] for each in bill["dependencies"]) == sorted(refs)
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert {ref for each in needs.values() for ref in each} <= set(refs)
    (torch,) = (each for each in bill["components"] if each["name"] == "torch")
    assert torch["purl"].startswith("pkg:pypi/torch@")
    assert any("pkg:pypi/sympy@" in ref for ref in needs[torch["bom-ref"]])


@pytest.mark.slow
def test_sbom_script_writes_the_same_file_each_time(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        subprocess.run([sys.executable, str(SCRIPT), str(tmp_path / name)], check=True)
    first = (tmp_path / "one.json").read_text("utf-8")
    assert first == (tmp_path / "two.json").read_text("utf-8")
    assert len(json.loads(first)["components"]) > 100
    done = subprocess.run([sys.executable, str(SCRIPT), "--help"], check=False, capture_output=True)
    assert done.returncode == 2


def licences(expression: str) -> set[str]:
    return {each.strip("() ") for each in re.split(r" AND | OR ", expression)}
