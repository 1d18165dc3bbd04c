"""`attendo families` lists what `attendo import` reads; the documentation lists the same."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from tiny import Command

from attendo.interop.families import FAMILIES, MARIAN_FAMILIES, REFUSED
from attendo.messages import MESSAGES

DOCS = Path(__file__).parents[3] / "docs"


def test_every_family_is_listed(attendo: Command) -> None:
    output = attendo("families").output
    families = (*FAMILIES, *MARIAN_FAMILIES)
    listed = [line for line in output.splitlines() if line[0] != " "]
    assert all(line.startswith(each.model_type) for line, each in zip(listed, families, strict=True))
    for family in families:
        for value in (family.models, family.network, family.tokenizer, family.model_class or "", *family.exports):
            assert value in output


def test_json_has_all_fields(attendo: Command) -> None:
    found = [json.loads(line) for line in attendo("families", "--json").output.splitlines()]
    assert found == [json.loads(json.dumps(asdict(each))) for each in (*FAMILIES, *MARIAN_FAMILIES)]


@pytest.mark.parametrize("page", ["exchange/import.md", "exchange/families.md", "zh/exchange/families.md"])
def test_the_documentation_lists_every_family(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    missing = [each.model_type for each in FAMILIES if f"| `{each.model_type}` |" not in text]
    assert not missing
    if page != "exchange/import.md":
        assert not [kind for kind in REFUSED if f"`{kind}`" not in text]


def test_every_refusal_has_a_reason() -> None:
    assert {*REFUSED.values()} <= MESSAGES.keys()
    assert len({each.model_type for each in FAMILIES}) == len(FAMILIES)
