"""Writes what is installed beside attendo as a CycloneDX bill of materials: `python deploy/sbom.py attendo.cdx.json`.

It is about the environment whose Python runs it, asks nobody, and writes the same file for the same environment.
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
    """Of these packages; `attendo` among them is what it is about."""
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
    """As names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _component(name: str, package: metadata.Distribution) -> dict[str, Any]:
    place = f"pkg:pypi/{name}@{package.version.replace('+', '%2B')}"
    told = {"type": "library", "bom-ref": place, "name": name, "version": package.version, "purl": place}
    licences = _licences(package)
    return {**told, "licenses": licences} if licences else told


def _licences(package: metadata.Distribution) -> list[dict[str, Any]]:
    """An expression where there is one; else the names by which a package calls its licences."""
    told = package.metadata
    if "License-Expression" in told:
        return [{"expression": told["License-Expression"]}]
    classed = [each for each in told.get_all("Classifier") or [] if each.startswith("License :: OSI Approved :: ")]
    lines = told["License"].strip().splitlines() if "License" in told else []
    # Some put the whole text of a licence here.
    names = [each.rpartition(" :: ")[2] for each in classed] or lines[: len(lines) == 1]
    return [{"license": {"name": each}} for each in names]


def _needs(package: metadata.Distribution) -> set[str]:
    """What it always needs; of what it needs on some machines only, what is not here is left out later."""
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
