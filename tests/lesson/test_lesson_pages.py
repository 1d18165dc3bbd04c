"""The pages show the current output of their code, and both languages have the same content."""

import ast
import itertools
import re
from pathlib import Path
from urllib.parse import parse_qsl

import build
import diagrams
import drawing
import figures
import frame
import gallery
import pytest

HERE = build.HERE
NAMES = build.page_names()
QUICK = [name for name in NAMES if not build.needs_translator(name)]
TRAINED = [name for name in NAMES if build.needs_translator(name)]
ALL = sorted([*HERE.glob("*/*.md"), HERE / "README.md"])
CHINESE = "[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef]"
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
PLAIN = re.compile(r"\d+(?:\.\d+)?")
LINK = re.compile(r"\]\(([^)\s]*)\)")

# Outputs of the trained translators that the pages show.
TRANSLATIONS = [
    "我 爱 自然 语言 → 处理",
    "玛丽 从来 没 喝 过 牛奶",
    " 这只 猫 坐下 了\n",
    " 他 给 了 他们 这本 书\n",
    "那只 猫 坐下 了",
]

# The questions of the specification (1.P) by page, as text that must occur in a heading of the page.
QUESTIONS = {
    "01-tokens.md": [("Why share embeddings", "为什么要共享词嵌入")],
    "02-positions.md": [("expanded to `[max_len, 1]`", "扩展成 `[max_len, 1]`")],
    "03-attention.md": [
        ("Why √d_k", "除以 √d_k"),
        ("Why not merge", "合并成一个矩阵"),
        ("Does the low rank hurt", "低秩会有坏处吗"),
        ("not cosine similarity", "余弦相似度"),
    ],
    "04-heads.md": [
        ("cut into four dimensions", "拆成四维"),
        ("product of 4-D tensors", "四维张量怎么相乘"),
        ("`view` or `reshape`", "`view` 还是 `reshape`"),
        ("Why W^O", "乘 W^O"),
    ],
    "05-masks.md": [("Why mask?", "为什么要掩码"), ("Why mask at inference", "推理时为什么还要掩码")],
    "06-cross-attention.md": [
        ("Why queries from the decoder", "为什么查询来自解码器"),
        ("Why no causal mask", "为什么不用因果掩码"),
    ],
    "07-feed-forward.md": [("position-wise", "逐位置")],
    "08-residual-norm-dropout.md": [("Why a residual", "为什么要残差"), ("Why normalise features", "对特征归一化")],
    "09-whole-model.md": [("Why this order", "为什么是这个顺序")],
    "11-generating.md": [("trade-off", "如何取舍")],
}


@pytest.mark.parametrize("name", QUICK)
def test_page_shows_the_output_of_its_code(name: str) -> None:
    for language in build.LANGUAGES:
        text, _ = build.built(language, name)
        assert_alike((HERE / language / name).read_text("utf-8"), text)


@pytest.mark.slow
def test_pages_show_what_the_trained_translators_print() -> None:
    """Weights differ a little between machines. What the text relies on does not."""
    for name in TRAINED:
        for language in build.LANGUAGES:
            text, blocks = build.built(language, name)
            printed = "".join(output for _, output in blocks)
            stored = (HERE / language / name).read_text("utf-8")
            for words in TRANSLATIONS:
                assert (words in printed) == (words in stored.split("<!-- foot -->")[0]), (name, words)
            assert text.count("```text") == stored.count("```text")


@pytest.mark.parametrize("language", build.LANGUAGES)
def test_gallery_shows_the_measured_numbers(language: str) -> None:
    text = (HERE / "mistakes" / f"{language}.md").read_text("utf-8")
    assert_alike(text, build.filled(text, language))


@pytest.mark.parametrize("language", build.LANGUAGES)
@pytest.mark.parametrize("name", [*figures.QUICK, *diagrams.DRAWN, "map-09", "map-14", "mistake-e5", "mistake-e10"])
def test_picture_is_the_output_of_its_code(name: str, language: str) -> None:
    drawn = {**figures.QUICK, **figures.MISTAKES, **diagrams.DRAWN, **figures.maps()}[name](
        lambda *words: words[build.LANGUAGES.index(language)]
    )
    stored = (HERE / "pictures" / language / f"{name}.svg").read_text("utf-8")
    computed = drawing.picture(drawn)
    assert PLAIN.sub("0", stored) == PLAIN.sub("0", computed)
    for old, new in zip(PLAIN.findall(stored), PLAIN.findall(computed), strict=True):
        # Numbers up to 1 are weights that people read. Larger ones are positions and colours.
        assert float(old) == pytest.approx(float(new), abs=0.011 if float(new) <= 1 else 1.0)


def test_every_picture_exists_and_is_shown() -> None:
    for language in build.LANGUAGES:
        pages = [*(HERE / language).glob("*.md"), HERE / "mistakes" / f"{language}.md"]
        shown = {
            Path(each).stem for page in pages for each in LINK.findall(page.read_text("utf-8")) if each.endswith("svg")
        }
        assert shown == {*figures.QUICK, *figures.TRAINED, *figures.MISTAKES, *diagrams.DRAWN, *figures.maps()}
        assert {path.stem for path in (HERE / "pictures" / language).iterdir()} == shown


@pytest.mark.parametrize("name", [*NAMES, "mistakes"])
def test_both_languages_have_the_same_headings_code_and_pictures(name: str) -> None:
    english, chinese = (page(language, name) for language in build.LANGUAGES)
    assert [level for level, _ in headings(english)] == [level for level, _ in headings(chinese)]
    assert [structure(block) for block in fenced(english)] == [structure(block) for block in fenced(chinese)]
    assert [match["what"] for match in build.MARK.finditer(english)] == [
        match["what"] for match in build.MARK.finditer(chinese)
    ]
    pictures = [
        [each.replace("/zh", "/en") for each in LINK.findall(text) if each.endswith("svg")]
        for text in (english, chinese)
    ]
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("name", [*NAMES, "mistakes"])
def test_both_languages_have_the_same_tables(name: str) -> None:
    """Tables have the same numbers of rows and columns and the same code names."""
    english, chinese = (
        [each for each in page(language, name).splitlines() if each.startswith("|")] for language in build.LANGUAGES
    )
    assert [row.count("|") for row in english] == [row.count("|") for row in chinese]
    assert [re.findall(r"`[A-Za-z_.]+`", row) for row in english] == [
        re.findall(r"`[A-Za-z_.]+`", row) for row in chinese
    ]


def test_dropout_table_and_pre_norm_formula_are_on_the_page() -> None:
    for language in build.LANGUAGES:
        text = page(language, "08-residual-norm-dropout.md")
        rows = [row for row in text.splitlines() if row.startswith("|") and "ropout`" in row]
        assert [re.findall(r"`(\w*dropout)`", row) for row in rows] == [
            *(["dropout"], ["attention_dropout"], ["activation_dropout"], ["dropout"])
        ]
        assert r"\text{LN}' \cdot (1 + F')" in text


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_a_heading(name: str) -> None:
    for position, language in enumerate(build.LANGUAGES):
        titles = [title for _, title in headings(page(language, name))]
        for question in QUESTIONS[name]:
            assert any(question[position] in title for title in titles), question


def test_every_mistake_has_a_heading_in_both_languages() -> None:
    for language in build.LANGUAGES:
        titles = [title for _, title in headings(page(language, "mistakes"))]
        for name in ("E5", "E6", "E8", "E10", "E13", "E15", "E24", "E31"):
            assert any(re.match(rf"{name}\b", title) for title in titles), name


def test_lesson_links_lead_to_pages_and_headings() -> None:
    for path in ALL:
        for link in LINK.findall(path.read_text("utf-8")):
            if link.startswith(("https://", frame.EXPLORE)):
                continue
            target, _, anchor = link.partition("#")
            linked = (path.parent / target).resolve() if target else path
            assert linked.exists(), f"{path}: {link}"
            if anchor:
                assert anchor in {slug(title) for _, title in headings(linked.read_text("utf-8"))}, f"{path}: {link}"


@pytest.mark.parametrize("name", NAMES)
def test_page_has_objectives_map_questions_exercises_and_references(name: str) -> None:
    each = frame.frame_of(name)
    assert 2 <= len(each["objectives"]) <= 4
    assert 1 <= len(each["exercise"]) <= 3
    assert len(each["question"]) >= 2
    for language in build.LANGUAGES:
        text = page(language, name)
        assert text.count("<details>") == len(each["question"])
        assert f"map-{name[:2]}.svg" in text
        assert f"python check.py {int(name[:2])}\n" in text
        assert text.count("https://arxiv.org/abs/") >= len(each["papers"])
        for part in ("head", "foot"):
            assert text.count(frame.links(name, language)) == 2, part


def test_links_to_the_page_of_the_model_name_views_that_exist() -> None:
    source = (Path(build.HERE).parents[1] / "attendo" / "explore" / "page" / "store.js").read_text("utf-8")
    defaults = source[source.index("DEFAULTS") : source.index("CHOICES")]
    choices = source[source.index("CHOICES") : source.index("FRACTIONS")]
    for name in NAMES:
        for key, value in parse_qsl(frame.frame_of(name)["explore"]["state"]):
            assert f"{key}:" in defaults, name
            assert key == "text" or f'"{value}"' in choices, name


@pytest.mark.parametrize("name", [*NAMES, "mistakes"])
def test_chinese_pages_print_chinese_and_have_no_line_breaks_inside_paragraphs(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", page("zh", name), flags=re.MULTILINE | re.DOTALL)
    for first, second in itertools.pairwise(text.splitlines()):
        assert not (re.search(f"{CHINESE}$", first) and re.match(f"{CHINESE}|[A-Za-z`]", second)), f"{first} / {second}"
    for bold, following in re.findall(r"\*\*(.+?)\*\*(.?)", text):
        assert not (bold[-1] in "：。，；" and following.isalnum()), f"not bold on GitHub: {bold}"
    for block in fenced(page("zh", name)):
        for said in re.findall(r"print\([^\n]*", block):
            words = re.findall(r"(?<![\w.])[fr]?\"([^\"]*)\"", said)
            english = [each for each in words if re.search(r"[a-z]{3,} [a-z]{2,}", re.sub(r"\{[^}]*\}", "", each))]
            assert english == [], name


def test_measured_numbers_support_the_gallery_text() -> None:
    measured = gallery.kept()
    assert measured["right"]["exact"] == 1.0
    assert measured["no mask"]["last"] < measured["right"]["last"]
    assert measured["no mask"]["exact"] < 0.05
    assert measured["E5"]["exact"] < measured["E5 right"]["exact"] - 0.1
    assert measured["E6"]["last"] < 0.01 < 0.05 > measured["E6"]["exact"]
    assert measured["E8"]["gradients"][0] == 0
    assert measured["E10"]["exact"] < 0.1
    assert measured["E13"]["losses"][0] > measured["E13 right"]["losses"][0] + 0.3
    assert measured["E15"]["last"] > measured["E15 right"]["last"]
    assert measured["E24"]["last"] == pytest.approx(gallery.softmax_twice(13)[0], abs=0.01)
    assert measured["E31 infinity"]["last"] is None
    assert measured["E31 billion"]["exact"] == 1.0


def test_texts_are_compared_with_a_tolerance_for_numbers() -> None:
    assert_alike("loss 0.5000 x", "loss 0.5001 x")
    for other in ("loss 0.6 x", "loss 0.5 y", "loss 0.5 0.5 x"):
        with pytest.raises(AssertionError):
            assert_alike("loss 0.5 x", other)


def structure(block: str) -> str:
    """Code without its strings, comments and docstrings, and output without its words."""
    language, code = block.removeprefix("```").removesuffix("```").split("\n", 1)
    if not language.startswith("python"):
        return " ".join(NUMBER.findall(code)) if language == "text" else code
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
        elif isinstance(node, ast.JoinedStr):
            node.values = [each for each in node.values if isinstance(each, ast.FormattedValue)]
    return ast.dump(tree)


def assert_alike(stored: str, computed: str, tolerance: float | None = 2e-3) -> None:
    """Texts have the same words and, up to rounding, the same numbers. With `tolerance` None, numbers may differ."""
    assert NUMBER.sub("0", stored) == NUMBER.sub("0", computed)
    if tolerance is not None:
        for old, new in zip(NUMBER.findall(stored), NUMBER.findall(computed), strict=True):
            assert float(old.replace(",", "")) == pytest.approx(float(new.replace(",", "")), abs=tolerance, rel=1e-2)


def page(language: str, name: str) -> str:
    path = HERE / "mistakes" / f"{language}.md" if name == "mistakes" else HERE / language / name
    return path.read_text("utf-8")


def headings(text: str) -> list[tuple[int, str]]:
    found, inside = [], False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        if not inside and (match := re.match(r"(#+) (.*)", line)):
            found.append((len(match[1]), match[2]))
    return found


def slug(title: str) -> str:
    """The anchor that GitHub gives a heading: lower case, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def fenced(text: str) -> list[str]:
    return re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)
