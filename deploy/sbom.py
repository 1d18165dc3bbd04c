"""Writes a CycloneDX bill of materials of the installed packages: `python deploy/sbom.py attendo.cdx.json`.

It describes the environment of the Python that runs it, needs no network, and is deterministic.
"""

import json
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = "attendo"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"\bextra\s*==")


def bill(found: Iterable[metadata.Distribution]) -> dict[str, Any]:
    """Return the bill of these packages; `attendo` is its subject."""
    packages = {normal(each.metadata["Name"]): each for each in found}
    components = {name: _component(name, each) for name, each in sorted(packages.items())}
    subject = components.pop(ROOT, None) or {"type": "application", "bom-ref": ROOT, "name": ROOT}
    refs = {ROOT: subject["bom-ref"], **{name: each["bom-ref"] for name, each in components.items()}}
    needs = {name: sorted({refs[each] for each in _needs(package) & refs.keys()}) for name, package in packages.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**subject, "type": "application"}},
        "components": list(components.values()),
        "dependencies": [{"ref": refs[name], "dependsOn": needs.get(name, [])} for name in sorted(refs)],
    }


def normal(name: str) -> str:
    """Normalise a package name for comparison (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _component(name: str, package: metadata.Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{package.version.replace('+', '%2B')}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": package.version, "purl": purl}
    licences = _licences(package)
    return {**component, "licenses": licences} if licences else component


def _licences(package: metadata.Distribution) -> list[dict[str, Any]]:
    """Return the licence expression of a package, or else its licence names."""
    fields = package.metadata
    if "License-Expression" in fields:
        return [{"expression": fields["License-Expression"]}]
    classed = [each for each in fields.get_all("Classifier") or [] if each.startswith("License :: OSI Approved :: ")]
    lines = fields["License"].strip().splitlines() if "License" in fields else []
    # Some packages put the full licence text here.
    names = [each.rpartition(" :: ")[2] for each in classed] or lines[: len(lines) == 1]
    return [{"license": {"name": each}} for each in names]


def _needs(package: metadata.Distribution) -> set[str]:
    """Return the required packages without extras. The caller removes packages of other platforms."""
    wanted = [each for each in package.requires or [] if not _EXTRA.search(each)]
    return {normal(found[0]) for each in wanted if (found := _NAME.match(each))}


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        sys.stderr.write("usage: python deploy/sbom.py [FILE]\n")
        return 2
    text = json.dumps(bill(metadata.distributions()), indent=2, ensure_ascii=False) + "\n"
    if arguments:
        Path(arguments[0]).write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
