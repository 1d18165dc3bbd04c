"""The `attendo families` command: the models of other systems that attendo imports."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from attendo.cli.language import list_names, pad_columns, say, translate
from attendo.cli.options import JsonLines

if TYPE_CHECKING:
    from attendo.interop.families import Family


def families(as_json: JsonLines = False) -> None:
    """List the families that `attendo import` reads: network, tokenizer files, oracle and exports.

    The oracle is the system that a certificate compares with. A folder of a family also works directly:
    `attendo generate FOLDER`.
    """
    from attendo.interop.families import FAMILIES, MARIAN_FAMILIES

    found = (*FAMILIES, *MARIAN_FAMILIES)
    width = max(len(each.model_type) for each in found) + 2
    for each in found:
        if as_json:
            print(json.dumps(asdict(each), ensure_ascii=False))
        else:
            print(*_format_family(each, width), sep="\n")


def _format_family(family: "Family", width: int) -> Iterator[str]:
    yield f"{family.model_type:{width}}{translate(family.models)}"
    facts = {
        say("network"): family.network,
        say("tokenizer"): family.tokenizer,
        say("oracle"): " ".join(filter(None, (family.oracle, family.model_class))),
        say("export to"): list_names(family.exports) or "-",
    }
    for name, value in facts.items():
        yield f"{'':{width}}{pad_columns(name, 11)}{translate(value)}"
