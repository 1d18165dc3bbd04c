"""Whatever text with tags and whatever translation: nothing is lost, and what was well-formed stays so."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

from hypothesis import given
from hypothesis import strategies as some

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
KINDS: list[MarkupFormat] = ["html", "xml"]

WILD = some.lists(some.sampled_from([*WORDS, *ATOMS, *TAGS, *TRAPS, "{{", "&e;", "<pre>", "</pre>"])).map("".join)
# What a model may say: its own words with others, less or more of them.
SAID = some.lists(some.sampled_from([*WORDS, "<b>", "</p>", "&lt;"]), max_size=8).map(" ".join)
LINKS = some.none() | some.lists(some.tuples(some.integers(0, 40), some.integers(0, 40)), max_size=12)


@some.composite
def well_formed(draw: Callable[..., Any]) -> str:
    """An XML document whose elements are numbered."""
    count = 0

    def element(depth: int) -> str:
        nonlocal count
        count += 1
        name, number = draw(some.sampled_from(["p", "b", "i", "a", "x", "code"])), count
        inner = "".join(content(depth + 1) for _ in range(draw(some.integers(0, 3))))
        return f'<{name} n="{number}">{inner}</{name}>' if inner else f'<{name} n="{number}"/>'

    def content(depth: int) -> str:
        if depth < 5 and draw(some.booleans()):
            return element(depth)
        return draw(some.sampled_from([*map(escape, WORDS), *ATOMS, "<!-- c -->", "<?i?>", "<![CDATA[<&]]>", "&#233;"]))

    return f"<r>{''.join(content(0) for _ in range(draw(some.integers(0, 6))))}</r>"


@given(WILD | some.text(), some.sampled_from(KINDS))
def test_texts_that_stay_as_they_are_leave_the_input_as_it_was(document: str, kind: MarkupFormat) -> None:
    markup = Markup(document, kind, ["x"])
    assert markup.insert_translations(markup.texts) == document


@given(WILD, some.sampled_from(KINDS), SAID, LINKS)
def test_every_tag_is_kept_once(
    document: str, kind: MarkupFormat, said: str, links: list[tuple[int, int]] | None
) -> None:
    markup = Markup(document, kind, ["x"])
    translations = [f"{said} {text}" for text in markup.texts]
    answer = markup.insert_translations(translations, [links] * len(translations))
    for tag in TAGS:
        assert answer.count(tag) == document.count(tag)
    assert set(ATOMS) & set(re.findall(r"%s|\{\{ name \}\}|\{0\}|%1\$d", document)) <= {
        atom for atom in ATOMS if atom in answer
    }


@given(well_formed(), some.sampled_from(KINDS), SAID, LINKS)
def test_what_was_well_formed_stays_so_with_every_element(
    document: str, kind: MarkupFormat, said: str, links: list[tuple[int, int]] | None
) -> None:
    markup = Markup(document, kind, ["x"])
    answer = markup.insert_translations([said] * len(markup.texts), [links] * len(markup.texts))
    assert elements(answer) == elements(document)


@given(well_formed(), LINKS)
def test_no_word_is_lost_when_all_change_their_order(document: str, links: list[tuple[int, int]] | None) -> None:
    markup = Markup(document, "xml", ["x"])
    texts = markup.texts
    answer = markup.insert_translations([" ".join(reversed(text.split(" "))) for text in texts], [links] * len(texts))
    assert signs(answer) == signs(document)


def elements(document: str) -> Counter[tuple[str, str | None]]:
    return Counter((element.tag, element.get("n")) for element in ElementTree.fromstring(document).iter())


def signs(document: str) -> Counter[str]:
    """The characters of its text, but for white space."""
    return Counter("".join("".join(ElementTree.fromstring(document).itertext()).split()))
