"""The documentation of decoding lists every setting and its default."""

from pathlib import Path

from attendo.decode.config import GenerationConfig

PAGES = Path(__file__).resolve().parents[3] / "docs" / "decoding"


def test_the_index_lists_every_setting_with_its_default() -> None:
    text = (PAGES / "README.md").read_text("utf-8")
    for name, field in GenerationConfig.model_fields.items():
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        assert f"| `{name}` | {default} | {field.description} |" in text


def test_the_index_links_to_every_page() -> None:
    text = (PAGES / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES.glob("*.md") if page.name != "README.md" and f"({page.name})" not in text] == []
