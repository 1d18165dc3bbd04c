"""Markup: which texts are translated, and where the tags go."""

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from error_codes import has_code

from attendo.errors import UsageError
from attendo.text.markup import Markup, MarkupFormat, TagRules
from attendo.text.markup.segments import WordSpans

Links = list[tuple[int, int]]

HOSTILE: dict[str, Callable[[int], str]] = {
    "no tag": lambda size: "<" * size,
    "tags that do not end": lambda size: "<a " * (size // 3),
    "values that do not end": lambda size: '<a ="' * (size // 5),
    "values that end too late": lambda size: '<a ="' * (size // 5) + ">",
    "values in values": lambda size: "<a " + '="<a "' * (size // 6),
    "both quotes": lambda size: "<a ='\"=" * (size // 7) + ">",
    "equals": lambda size: "<a" + "=   " * (size // 4) + "<a",
    "deep": lambda size: "<b>" * (size // 8) + "x" + "</b>" * (size // 8),
    "deep with text": lambda size: "a <b>" * (size // 10) + "x" + "</b>" * (size // 10),
    "never closed": lambda size: "<b>x" * (size // 4),
    "never opened": lambda size: "<i>" * (size // 7) + "</b>" * (size // 7),
    "crossed": lambda size: "<b>x<i>y</b>z</i>" * (size // 17),
    "comments": lambda size: "x<!--" * (size // 5),
    "document types": lambda size: "x<!DOCTYPE [ " * (size // 13),
    "ends of none": lambda size: "<!D[" + "] " * (size // 2),
    "instructions": lambda size: "x<?" * (size // 3),
    "scripts": lambda size: "<script>x</scrip" * (size // 16),
    "ampersands": lambda size: "&" * size,
    "references": lambda size: "&#1" * (size // 3),
    "a long name": lambda size: "x&" + "a" * size + ";",
    "a long number": lambda size: "x&#" + "1" * size + ";",
    "braces": lambda size: "x{{" * (size // 3),
    "percents": lambda size: "%(a" * (size // 3),
    "spaces": lambda size: "x" + " " * size + "<b>x</b>",
    "one word": lambda size: "x<i>y</i>" * (size // 9),
    "atoms": lambda size: "a %s " * (size // 5),
    "attributes": lambda size: "<a translate" + " a" * (size // 2) + ">x</a> y",
    "marks": lambda size: "<b>x</b>a" + "\u0300" * size,
}


def reverse_words(text: str) -> str:
    """A translation with reversed word order."""
    return " ".join(reversed(text.split()))


def reversed_links(text: str) -> Links:
    """Links from the first letters of the words to those of the translation."""
    return list(zip(word_starts(text), reversed(word_starts(reverse_words(text))), strict=True))


def word_starts(text: str) -> list[int]:
    return [at for at in range(len(text)) if text[at] != " " and (at == 0 or text[at - 1] == " ")]


@pytest.mark.parametrize(
    ("kind", "document", "texts"),
    [
        ("html", "plain", ["plain"]),
        ("html", "<p>One <b>two</b>.</p>\n<p>Three</p>", ["One two.", "Three"]),
        ("html", "<ul><li>One<li>Two</ul>", ["One", "Two"]),
        ("html", "one<br>two<BR/>three", ["one", "two", "three"]),
        ("html", "<p>\n  One\n   two </p>", ["One two"]),
        ("html", "<pre>one\n two</pre>", ["one", "two"]),
        ("html", "<script>var a = '<p>no</p>'</script>yes<style>no</style>", ["yes"]),
        ("html", "call <code>no()</code> now <kbd>no</kbd>", ["call now"]),
        ("html", "<p translate='no'>no</p> <i Translate=NO>no</i> yes", ["yes"]),
        ("html", "<i title='translate=no'>yes</i>", ["yes"]),
        ("html", "<!-- no --> yes <!DOCTYPE no> yes <?no?>", ["yes", "yes"]),
        ("html", "caf&eacute; &amp; bar &lt;3 &unknown; &#x41;&#66", ["café & bar <3 AB"]),
        ("html", "AT&T &copy 2020", ["AT&T © 2020"]),
        ("html", "use %d, %(all)s, {{ a b }}, {a}, %1$s, %.2f: 100% sure, 5%d", ["use , , , , , : 100% sure, 5%d"]),
        ("html", "<p>2024</p><p>&nbsp;</p><p>%s</p><p>-</p>", []),
        ("html", '<a title="a > b" href=c>link</a>', ["link"]),
        ("html", "a < b, <1> and <b>c", ["a < b, <1> and c"]),
        ("html", "<b>one <p>two</p></b>", ["one", "two"]),
        ("html", "<my-tag>one</my-tag> two", ["one two"]),
        ("html", "a <img src=x> b <a href=c/>d</a>", ["a b d"]),
        ("html", "a <x <b>c</b>", ["a <x c"]),
        ("html", "", []),
        ("xml", "<r><p>One <b>two</b></p><p>Three</p></r>", ["One two", "Three"]),
        ("xml", "One <P>two</P> <p/> three", ["One two three"]),
        ("xml", "<?xml version='1.0'?><!DOCTYPE r [<!ENTITY e 'no'>] ><r>a &e; b &eacute; &lt;</r>", ["a b <"]),
        ("xml", "<r>a <![CDATA[<no>]]> b</r>", ["a b"]),
        ("xml", "<r><script>yes</script><code>yes</code></r>", ["yes", "yes"]),
        ("xml", "<名>yes</名>", ["yes"]),
    ],
)
def test_texts_are_extracted_from_markup(kind: MarkupFormat, document: str, texts: list[str]) -> None:
    assert Markup(document, kind).texts == texts


@pytest.mark.parametrize(
    ("document", "translation", "expected"),
    [
        ("<p> Hello <b>big</b> world </p>", "HELLO BIG WORLD", "<p> HELLO <b>BIG</b> WORLD </p>"),
        ("<b> <i>Hello</i> </b>", "HELLO", "<b> <i>HELLO</i> </b>"),
        ("<img> <b>Hello</b> you <br>", "HELLO YOU", "<img> <b>HELLO</b> YOU <br>"),
        ("Hello", "1 < 2 & <script>", "1 &lt; 2 &amp; &lt;script&gt;"),
        ("Hello <b>you</b>", "a\x00<\ud800b\x1f", "a&lt;<b>b</b>"),
        ("You have %d new messages", "您有新消息", "您有新%d消息"),
        ("Dear %s, hi", "Liebe, HI", "Liebe %s, HI"),
        ("Hey %s, hi", "嘿，嗨", "嘿%s，嗨"),
        ("Ask <code>a</code> <code>b</code> now", "FRAG JETZT", "FRAG <code>a</code> <code>b</code> JETZT"),
        ("Ask <i><img></i> now", "FRAG JETZT", "FRAG <i><img></i> JETZT"),
        ("one <b>two three four</b> five", "ONE FIVE", "<b>ONE FIVE</b>"),
        ("<b>one</b> <i>two</i> <u>three</u>", "ONE TWO", "<b>ONE</b> <i>TWO</i><u></u>"),
        ("one <b>two</b>", "", "<b></b>"),
        ("H<sub>2</sub>O and air", "H2O UND LUFT", "H<sub>2</sub>O UND LUFT"),
        ("<b>不</b>好", "不 好", "<b>不</b> 好"),
        ("<p>caf&eacute; <b>x</b>", "café x", "<p>caf&eacute; <b>x</b>"),
        ("a <b>b <i>c</b> d</i> e", "A B C D E", "A <b>B <i>C</b> D</i> E"),
    ],
)
def test_tags_and_placeholders_are_inserted_into_the_translation(
    document: str, translation: str, expected: str
) -> None:
    assert Markup(document, "html").insert_translations([translation]) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("a <b>red</b> car of <a href=x>my old dad</a>", "<a href=x>dad old my</a> of car <b>red</b> a"),
        ("one %s two three", "three %s two one"),
        ("one <a href=c/>two</a>", "<a href=c/>two</a> one"),
        ("one <i>two <b>three four</b></i>", "<i>four <b>three two</b></i> one"),  # proportional inside the element
    ],
)
def test_with_links_tags_follow_their_words(document: str, expected: str) -> None:
    markup = Markup(document, "html")
    (text,) = markup.texts
    assert (
        markup.insert_translations([f"{' ' * 9}{reverse_words(text)} "], [shift_links(reversed_links(text), 9)])
        == expected
    )


def test_an_element_with_several_spans_takes_the_longest() -> None:
    markup = Markup("x <b>one two</b> y <i>three</i>", "html")
    links = [(2, 0), (11, 2), (2, 4), (6, 6), (13, 8)]  # the words of b go to two positions
    assert markup.insert_translations(["1 y 1 2 3"], [links]) == "1 y <b>1 2</b> <i>3</i>"


def test_an_element_without_links_takes_a_free_word() -> None:
    markup = Markup("one <b>two</b> <i>three</i> %s four", "html")
    assert markup.texts == ["one two three four"]
    assert markup.insert_translations(["A B"], [[(0, 0), (14, 2)]]) == "<b>A</b> %s <i>B</i>"
    assert markup.insert_translations(["A B"], [[(4, 0), (4, 2)]]) == "<b>A B</b><i></i> %s"
    assert markup.insert_translations([""], [[]]) == "<b></b><i></i>%s"


def test_a_placeholder_stays_outside_a_foreign_element() -> None:
    markup = Markup("<b>one two</b> %s three", "html")
    assert markup.insert_translations(["TWO ONE"], [[(4, 0), (0, 4)]]) == "<b>TWO ONE</b> %s"


def test_word_spans_separate_words_and_unspaced_characters() -> None:
    units = WordSpans.from_text("नमस्ते, e\u0301t\u0301e ไม่ 가나 日本x1。")
    words = [units.text[begin:end] for begin, end in zip(units.begins, units.ends, strict=True)]
    assert words == ["नमस्ते", ",", "e\u0301t\u0301e", "ไ", "ม่", "가나", "日", "本", "x1", "。"]


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_ignored_tags_are_kept_unchanged(kind: MarkupFormat) -> None:
    document = 'Open <x id="1">{0}</x> and <x id="2"/> now'
    markup = Markup(document, kind, ignored_tags=["x"])
    assert markup.texts == ["Open and now"]
    assert markup.insert_translations(["OPEN AND NOW"]) == 'OPEN <x id="1">{0}</x> AND <x id="2"/> NOW'
    assert ("not" in Markup("a <X>not</X> b", kind, ["x"]).texts[0]) == (
        kind == "xml"
    )  # HTML tag names are case-insensitive


@pytest.mark.parametrize(
    ("document", "kind", "rules", "texts"),
    [
        ("<a>one</a><a>two</a>", "xml", TagRules(), ["one", "two"]),
        ("<a>one</a><a>two</a>", "xml", TagRules(non_splitting_tags=frozenset("a")), ["onetwo"]),
        ("<a>one</a> <a>two</a>", "xml", TagRules(outline_detection=False), ["one two"]),
        ("<a>one</a> <c>two</c>", "xml", TagRules(frozenset("c"), outline_detection=False), ["one", "two"]),
        ("one <c>two</c> three", "xml", TagRules(), ["one two three"]),
        ("one <c>two</c> three", "xml", TagRules(splitting_tags=frozenset("c")), ["one", "two", "three"]),
        ("one <b>two</b> three", "html", TagRules(splitting_tags=frozenset("B")), ["one", "two", "three"]),
        ("<p>one</p> <P>two</P>", "html", TagRules(non_splitting_tags=frozenset("p")), ["one two"]),
    ],
)
def test_tag_rules_override_the_defaults(document: str, kind: MarkupFormat, rules: TagRules, texts: list[str]) -> None:
    markup = Markup(document, kind, rules=rules)
    assert markup.texts == texts
    assert markup.insert_translations(texts) == document
    upper = markup.insert_translations([text.upper() for text in texts])
    assert upper.count("<") == document.count("<")


@pytest.mark.parametrize("kind", ["html", "xml"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_input_is_lost_and_run_time_is_linear(name: str, kind: MarkupFormat) -> None:
    """X11, by counting executed lines: twice the input, twice the lines."""
    counts = []
    for size in (600, 1200):
        document = HOSTILE[name](size)
        counts.append(count_executed_lines(lambda document=document: check_round_trip(document, kind)))
    assert counts[1] < 2.5 * counts[0] + 200


@pytest.mark.parametrize("name", HOSTILE)
def test_five_thousand_characters_round_trip_unchanged(name: str) -> None:
    document = HOSTILE[name](5000)
    assert Markup(document, "html").insert_translations(Markup(document, "html").texts) == document


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["html", "xml"])
@pytest.mark.parametrize("name", HOSTILE)
def test_five_thousand_characters_take_less_than_fifty_milliseconds(name: str, kind: MarkupFormat) -> None:
    assert min_cpu_seconds(HOSTILE[name](5000), kind) < 0.05


@pytest.mark.slow
def test_a_hundred_thousand_nested_tags_are_handled() -> None:
    document = "<b>" * 10**5 + "deep" + "</b>" * 10**5
    assert Markup(document, "html").insert_translations(["DEEP"]) == document.replace("deep", "DEEP")


def test_entities_are_not_expanded() -> None:
    entities = "".join(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 10))
    document = f"<!DOCTYPE r [<!ENTITY e0 SYSTEM 'file:///etc/passwd'>{entities}]><r>a &e9; b</r>"
    markup = Markup(document, "xml")
    assert markup.texts == ["a b"]
    assert markup.insert_translations(["A B"]) == document.replace("a &e9; b", "A &e9; B")


def test_unknown_kind_and_wrong_translation_count_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("markup_kind_unknown", kind="pdf", known="html or xml")):
        Markup("x", "pdf")  # type: ignore[arg-type]
    with pytest.raises(UsageError, check=has_code("translation_count_mismatch", count=1, expected=2)):
        Markup("<p>a<p>b", "html").insert_translations(["a"])


def check_round_trip(document: str, kind: MarkupFormat) -> None:
    markup = Markup(document, kind)
    assert markup.insert_translations(markup.texts) == document
    new = [f"y {text[::-1]}" for text in markup.texts]
    tags = [
        markup.insert_translations(new),
        markup.insert_translations(new, [[(at, at) for at in range(len(text))] for text in new]),
    ]
    for tag in ("<b>", "</b>", "<i>", "</i>", "%s", "<!--", "<script>"):
        assert [each.count(tag) for each in tags] == [document.count(tag)] * 2


def min_cpu_seconds(document: str, kind: MarkupFormat) -> float:
    """CPU time of extraction and insertion without links: the minimum of 5 runs, since other processes run too."""
    durations = []
    for _ in range(5):
        begin = time.process_time()
        markup = Markup(document, kind)
        markup.insert_translations(markup.texts)
        durations.append(time.process_time() - begin)
    return min(durations)


def shift_links(links: Links, by: int) -> Links:
    return [(one, other + by) for one, other in links]


def count_executed_lines(call: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "markup" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
