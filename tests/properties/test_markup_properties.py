"""For any text with tags and any translation, no tag is lost, and well-formed documents stay well-formed."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

from hypothesis import given
from hypothesis import strategies as st

from attendo.text.markup import Markup, MarkupFormat

WORDS = ["one", "two", "H2O", "您好", "ไทย", "नमस्ते", "가나다", "don't", ",", "。", "&", "<", "x > y", "", " ", "\n  "]
ATOMS = ["%s", "{{ name }}", "{0}", "%1$d"]
TAGS = [
    "<b>",
    "</b>",
    "<i class='a'>",
    "</i>",
    "<p>",
    "</p>",
    "<br>",
    "<img>",
    '<x id="1"/>',
    "</x>",
    "<code>",
    "</code>",
]
TRAPS = [
    "<",
    ">",
    "<!--",
    "-->",
    "<!",
    "<?",
    "]]>",
    '"',
    "'",
    "=",
    "<a b='",
    "</",
    "<script>",
    "</script>",
    "&amp;",
    "&#1;",
]
FORMATS: list[MarkupFormat] = ["html", "xml"]

WILD = st.lists(st.sampled_from([*WORDS, *ATOMS, *TAGS, *TRAPS, "{{", "&e;", "<pre>", "</pre>"])).map("".join)
# Translations have other words than the text, fewer or more of them.
TRANSLATIONS = st.lists(st.sampled_from([*WORDS, "<b>", "</p>", "&lt;"]), max_size=8).map(" ".join)
LINKS = st.none() | st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


@st.composite
def well_formed(draw: Callable[..., Any]) -> str:
    """An XML document whose elements are numbered."""
    count = 0

    def element(depth: int) -> str:
        nonlocal count
        count += 1
        name, number = draw(st.sampled_from(["p", "b", "i", "a", "x", "code"])), count
        inner = "".join(content(depth + 1) for _ in range(draw(st.integers(0, 3))))
        return f'<{name} n="{number}">{inner}</{name}>' if inner else f'<{name} n="{number}"/>'

    def content(depth: int) -> str:
        if depth < 5 and draw(st.booleans()):
            return element(depth)
        return draw(st.sampled_from([*map(escape, WORDS), *ATOMS, "<!-- c -->", "<?i?>", "<![CDATA[<&]]>", "&#233;"]))

    return f"<r>{''.join(content(0) for _ in range(draw(st.integers(0, 6))))}</r>"


@given(WILD | st.text(), st.sampled_from(FORMATS))
def test_unchanged_texts_give_the_input_back(document: str, kind: MarkupFormat) -> None:
    markup = Markup(document, kind, ["x"])
    assert markup.insert_translations(markup.texts) == document


@given(WILD, st.sampled_from(FORMATS), TRANSLATIONS, LINKS)
def test_every_tag_is_kept_once(
    document: str, kind: MarkupFormat, translation: str, links: list[tuple[int, int]] | None
) -> None:
    markup = Markup(document, kind, ["x"])
    translations = [f"{translation} {text}" for text in markup.texts]
    answer = markup.insert_translations(translations, [links] * len(translations))
    for tag in TAGS:
        assert answer.count(tag) == document.count(tag)
    assert set(ATOMS) & set(re.findall(r"%s|\{\{ name \}\}|\{0\}|%1\$d", document)) <= {
        atom for atom in ATOMS if atom in answer
    }


@given(well_formed(), st.sampled_from(FORMATS), TRANSLATIONS, LINKS)
def test_well_formed_documents_keep_every_element(
    document: str, kind: MarkupFormat, translation: str, links: list[tuple[int, int]] | None
) -> None:
    markup = Markup(document, kind, ["x"])
    answer = markup.insert_translations([translation] * len(markup.texts), [links] * len(markup.texts))
    assert elements(answer) == elements(document)


@given(well_formed(), LINKS)
def test_reordered_words_are_all_kept(document: str, links: list[tuple[int, int]] | None) -> None:
    markup = Markup(document, "xml", ["x"])
    texts = markup.texts
    answer = markup.insert_translations([" ".join(reversed(text.split(" "))) for text in texts], [links] * len(texts))
    assert characters(answer) == characters(document)


def elements(document: str) -> Counter[tuple[str, str | None]]:
    return Counter((element.tag, element.get("n")) for element in ElementTree.fromstring(document).iter())


def characters(document: str) -> Counter[str]:
    """The characters of its text without white space."""
    return Counter("".join("".join(ElementTree.fromstring(document).itertext()).split()))
