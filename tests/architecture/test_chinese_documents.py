"""Each page of docs/zh has the content of the English page of the same path, and is written as Chinese text."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
from documents import CHINESE, ROOT, blocks, headings

DOCS = ROOT / "docs"
PAGES = {page: DOCS / page.relative_to(DOCS / "zh") for page in CHINESE if (DOCS / "zh") in page.parents}
PAIRS = {**PAGES, ROOT / "README.zh-CN.md": ROOT / "README.md"}
TRANSLATED = [
    *("README", "commands", "run-file", "doctor", "builtin-task", "exposure-bias", "three-kinds", "trust", "scale"),
    *("guides/your-data", "guides/pipelines", "guides/language-model", "guides/corpora"),
    *("guides/preparation", "guides/back-translation"),
    *("seeing/trace", "seeing/explore"),
    *(
        str(page.relative_to(DOCS).with_suffix(""))
        for area in ("decoding", "serving", "exchange")
        for page in (DOCS / area).glob("*.md")
    ),
]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
WIDE = r"\u4e00-\u9fff"
ITEM = re.compile(r"\s*([-*] |\d+\. )")
NEW_BLOCK = re.compile(r"\s*([-*] |\d+\. |#+ |\||!\[|$)")  # such a line does not continue a paragraph


@dataclass(frozen=True)
class Outline:
    """What both languages of a page must have in common."""

    headings: list[int]
    tables: list[tuple[int, int]]  # rows and columns
    pictures: list[Path]
    code: list[tuple[str, str]]  # a block without a language is a formula, which may have words
    paragraphs: int
    items: int  # of lists

    @classmethod
    def read(cls, page: Path) -> Self:
        text = page.read_text("utf-8")
        found = blocks(text, page.name)
        return cls(
            headings(text),
            tables(text),
            [(page.parent / target).resolve() for picture, target in LINK.findall(text) if picture],
            [(block.kind, block.text if block.kind else "") for block in found],
            *count_paragraphs_and_items(text),
        )


def tables(text: str) -> list[tuple[int, int]]:
    """The size of each table outside blocks of code."""
    sizes: list[tuple[int, int]] = []
    inside = False
    for line in FENCED.sub("", text).splitlines():
        row = line.strip()
        is_row = row.startswith("|") and row.endswith("|")
        if is_row:
            columns = len(re.findall(r"(?<!\\)\|", row)) - 1
            if not inside:
                sizes.append((0, columns))
            assert sizes[-1][1] == columns, f"another number of columns: {row}"
            sizes[-1] = (sizes[-1][0] + 1, columns)
        inside = is_row
    return sizes


def count_paragraphs_and_items(text: str) -> tuple[int, int]:
    """The number of paragraphs and of items of lists. An indented block of code is neither."""
    paragraphs, items, after_blank = 0, 0, True
    for line in FENCED.sub("", text).splitlines():
        items += bool(ITEM.match(line))
        paragraphs += after_blank and not NEW_BLOCK.match(line) and not line.startswith("    ")
        after_blank = not line.strip()
    return paragraphs, items


def anchors(text: str) -> list[str]:
    """The names that links to the headings of a page use, as GitHub makes them."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


def broken_lines(text: str) -> list[str]:
    """The lines that continue a paragraph or an item of a list after a line break."""
    found, continues = [], False
    for line in FENCED.sub("", text).splitlines():
        if line.startswith("    ") and not continues:
            continue  # an indented block of code
        if continues and not NEW_BLOCK.match(line):
            found.append(line)
        continues = bool(line.strip()) and not re.match(r"\s*(#+ |\|)", line)
    return found


def prose(text: str) -> str:
    """The text without code and the targets of links."""
    text = re.sub(r"^    .*$", "", FENCED.sub("", text), flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "`", text))


def link_to(page: Path, other: Path) -> str:
    return f"]({os.path.relpath(other, page.parent)})"


@pytest.mark.parametrize("chinese", PAIRS, ids=lambda page: str(page.relative_to(ROOT)))
def test_both_languages_have_the_same_outline(chinese: Path) -> None:
    assert Outline.read(chinese) == Outline.read(PAIRS[chinese])


def test_pages_that_readers_use_most_are_translated() -> None:
    assert [name for name in TRANSLATED if DOCS / "zh" / f"{name}.md" not in PAGES] == []


def test_both_languages_link_to_each_other_at_the_top() -> None:
    missing = [
        str(page.relative_to(ROOT))
        for pair in PAIRS.items()
        for page, other in (pair, pair[::-1])
        if link_to(page, other) not in "".join(page.read_text("utf-8").splitlines()[:3])
    ]
    assert missing == []


def test_chinese_pages_link_to_chinese_pages() -> None:
    wrong = []
    for page in PAIRS:
        for _, target in LINK.findall(
            page.read_text("utf-8").split("\n\n", 2)[2]
        ):  # below the link to the English page
            linked = (page.parent / target.partition("#")[0]).resolve()
            wrong += [f"{page.relative_to(ROOT)}: {target}"] if linked in PAIRS.values() else []
    assert wrong == []


def test_links_to_headings_of_both_languages_lead_to_one() -> None:
    wrong = []
    for page in [*PAIRS, *PAIRS.values()]:
        for _, target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            if (
                anchor
                and ":" not in path
                and linked.suffix == ".md"
                and anchor not in anchors(linked.read_text("utf-8"))
            ):
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert wrong == []


def test_paragraphs_of_chinese_pages_have_no_line_breaks() -> None:
    broken = [f"{page.relative_to(ROOT)}: {line}" for page in PAIRS for line in broken_lines(page.read_text("utf-8"))]
    assert broken == []


@pytest.mark.parametrize(
    "mistake",
    [
        rf"[{WIDE}][,;:!?(]",
        rf"[{WIDE}][A-Za-z0-9`]",
        rf"[A-Za-z0-9`][{WIDE}]",
        rf"[{WIDE}\w] [，。；：、（）！？]",
        rf"[，。；：、（）！？] [{WIDE}\w]",
    ],
)
def test_chinese_prose_has_wide_punctuation_and_spaces_beside_latin_words(mistake: str) -> None:
    pattern = rf".{{0,12}}(?:{mistake}).{{0,12}}"
    found = [(page.name, each) for page in PAIRS for each in re.findall(pattern, prose(page.read_text("utf-8")))]
    assert found == []


def test_outline_of_a_page_is_compared_part_by_part(tmp_path: Path) -> None:
    page, other = tmp_path / "one.md", tmp_path / "two.md"
    text = (
        "# 标题\n\n第一句。\n\n另一段。\n\n- 一项\n- 又一项\n\n```sh\nls # 1\n```\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n![图](a.png)\n"
    )
    page.write_text(text, "utf-8")
    changes = [("ls # 1", "ls"), ("| 1 | 2 |\n", ""), ("# 标题", "## 标题"), ("a.png", "b.png"), ("```sh", "```bash")]
    changes += [("\n\n另一段。", ""), ("- 又一项\n", ""), ("。\n\n另", "。另"), ("- 又一项", "又一项")]
    for old, new in changes:
        other.write_text(text.replace(old, new), "utf-8")
        assert Outline.read(page) != Outline.read(other), old
    other.write_text(text.replace("标题", "另一个标题").replace("第一句", "一句"), "utf-8")
    assert Outline.read(page) == Outline.read(other)


def test_line_breaks_are_found_in_paragraphs_and_items_but_not_elsewhere() -> None:
    assert broken_lines("# 标题\n正文\n继续\n\n- 一项\n  继续\n- 一项\n\n```\na\nb\n```\n| a |\n| b |\n") == [
        "继续",
        "  继续",
    ]
    assert broken_lines("正文：\n\n    a\n    b\n\n正文\n") == []


def test_anchors_are_those_of_github() -> None:
    assert anchors("# The page: `a b`\n## 一、二\n## 一、二\n") == ["the-page-a-b", "一二", "一二-1"]
