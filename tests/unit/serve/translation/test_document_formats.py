"""Document formats: what is translated, what stays, and files that are damaged or hostile."""

import re
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from lxml import etree

from attendo.serve.http.errors import ApiError
from attendo.serve.translation.formats import Draft, find_format, list_formats, read_document
from attendo.serve.translation.formats import archives as archives_module
from attendo.serve.translation.formats.plain import break_lines
from attendo.serve.translation.segmenter import SegmentedText

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"


def make_archive(**parts: str | bytes) -> bytes:
    """Return a zip file. `__` in a name stands for `/`, `_dot_` for `.`."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), part)
    return content.getvalue()


def read_bytes(content: bytes, name: str) -> bytes:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return archive.read(name)


def read_part(content: bytes, name: str) -> str:
    return read_bytes(content, name).decode()


def shout(text: str) -> str:
    """Translate a segment: letters outside of tags and references become capitals."""
    return "".join(part if part[:1] in "<&" else part.upper() for part in re.split(r"(<[^>]*>|&\w+;)", text))


def translate(draft: Draft) -> bytes:
    return draft.assemble([shout(segment.text) for segment in draft.segments])


def texts_of(draft: Draft) -> list[str]:
    return [segment.text for segment in draft.segments]


def make_word(body: str) -> bytes:
    return make_archive(
        word__document_dot_xml=f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>',
        word__media__image_dot_png=b"\x89PNG the picture",
    )


RED, BOLD = '<w:rPr><w:color w:val="FF0000"/></w:rPr>', "<w:rPr><w:b/></w:rPr>"


def run_of(text: str, formatting: str = "") -> str:
    return f'<w:r>{formatting}<w:t xml:space="preserve">{text}</w:t></w:r>'


# Subtitles


SUBTITLES = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\nthe <i>cat</i>\r\nsits here\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000\r\nyes\r\n"
)


def test_subtitles_keep_numbers_times_and_lines() -> None:
    draft = read_document(SUBTITLES.encode(), "srt")
    assert texts_of(draft) == ["the <i>cat</i> sits here", "yes"]
    written = translate(draft).decode()
    assert written == SUBTITLES.replace("the <i>cat</i>\r\nsits", "THE <i>CAT</i>\r\nSITS").replace(
        "here", "HERE"
    ).replace("yes", "YES")


def test_subtitles_without_times_are_rejected() -> None:
    with pytest.raises(ApiError, match="document_damaged"):
        read_document(b"only words", "srt")
    assert texts_of(read_document(b"", "srt")) == []


def test_lines_are_broken_evenly() -> None:
    assert break_lines("one two three four", 2) == ["one two", "three four"]
    assert break_lines("word", 3) == ["word"]
    assert break_lines("a b c d e f", 3) == ["a b", "c d", "e f"]
    assert break_lines("", 2) == []


# Catalogues


PO = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

#: main.c:3
msgid "the cat"
msgstr ""

msgid "done already"
msgstr "fertig"

msgid "one file"
msgid_plural "many files"
msgstr[0] ""
msgstr[1] ""
"""


def test_gettext_entries_without_translation_are_filled_and_marked() -> None:
    draft = read_document(PO.encode(), "po")
    assert texts_of(draft) == ["the cat", "one file", "many files"]
    written = translate(draft).decode()
    assert 'msgid "the cat"\nmsgstr "THE CAT"' in written
    assert 'msgstr[0] "ONE FILE"\nmsgstr[1] "MANY FILES"' in written
    assert 'msgstr "fertig"' in written
    assert written.count("#, fuzzy") == 2
    assert "main.c:3" in written


def test_the_path_of_a_file_is_no_gettext_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.po"
    secret.write_text(PO, "utf-8")
    with pytest.raises(ApiError, match="document_damaged"):
        read_document(str(secret).encode(), "po")


def xliff(units: str) -> bytes:
    names = 'version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"'
    return f"<xliff {names}><file><body>{units}</body></file></xliff>".encode()


def test_xliff_sources_get_targets() -> None:
    content = xliff(
        '<trans-unit id="1"><source>the <g id="1">cat</g> &amp; dog</source></trans-unit>\n'
        '<trans-unit id="2"><source>old</source><target>alt</target></trans-unit>'
        '<trans-unit id="3"><source>empty</source><target/></trans-unit>'
        '<trans-unit id="4" translate="no"><source>name</source></trans-unit>'
        '<trans-unit id="5"><source>sees</source><alt-trans><source>proposal</source></alt-trans></trans-unit>'
    )
    draft = read_document(content, "xliff")
    assert texts_of(draft) == ['the <g id="1">cat</g> &amp; dog', "empty", "sees"]
    tree = etree.fromstring(translate(draft))
    targets = {unit.get("id"): unit.findall("{*}target") for unit in tree.iter("{*}trans-unit")}
    assert etree.tostring(targets["1"][0], method="text", encoding="unicode", with_tail=False) == "THE CAT & DOG"
    assert targets["1"][0].find("{*}g").text == "CAT"
    assert [each.text for each in (*targets["2"], *targets["3"], *targets["5"])] == ["alt", "EMPTY", "SEES"]
    assert targets["4"] == []


# Archives


def test_a_word_paragraph_is_one_segment_and_runs_keep_their_formatting() -> None:
    content = make_word(
        f"<w:p>{run_of('the ')}{run_of('red', RED)}{run_of(' c')}{run_of('at')}</w:p>"
        f"<w:p>{run_of('one')}<w:r><w:tab/></w:r>{run_of('two')}</w:p><w:p>{run_of('12')}</w:p>"
    )
    draft = read_document(content, "docx")
    assert texts_of(draft) == ['<g id="0">the </g><g id="1">red</g><g id="2"> cat</g>', "one", "two"]
    written = translate(draft)
    part = read_part(written, "word/document.xml")
    assert re.findall(r"<w:t[^>]*>([^<]*)</w:t>|<w:t/>", part) == ["THE ", "RED", " CAT", "", "ONE", "TWO", "12"]
    assert f'{RED}<w:t xml:space="preserve">RED' in part
    assert read_bytes(written, "word/media/image.png").endswith(b"the picture")


def test_formatting_follows_words_that_change_places() -> None:
    content = make_word(f"<w:p>{run_of('the ')}{run_of('red', RED)}{run_of(' cat', BOLD)}</w:p>")
    draft = read_document(content, "docx")
    part = read_part(draft.assemble(['<g id="2">Katze</g><g id="1"> rot</g>']), "word/document.xml")
    assert f'{BOLD}<w:t xml:space="preserve">Katze</w:t>' in part
    assert f'{RED}<w:t xml:space="preserve"> rot</w:t>' in part
    assert "the" not in part


def test_words_of_a_link_that_change_places_keep_the_text() -> None:
    link = f'<w:hyperlink w:anchor="x">{run_of("here")}</w:hyperlink>'
    draft = read_document(make_word(f"<w:p>{run_of('look ')}{link}</w:p>"), "docx")
    assert texts_of(draft) == ['<g id="0">look </g><g id="1">here</g>']
    part = read_part(draft.assemble(['<g id="1">hier</g><g id="0"> sehen</g>']), "word/document.xml")
    assert "".join(re.findall(r"<w:t[^>]*>([^<]*)</w:t>", part)) == "hier sehen"


def test_a_text_box_in_a_paragraph_is_its_own_segment() -> None:
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run_of('inside')}</w:p></w:txbxContent></w:pict></w:r>"
    draft = read_document(make_word(f"<w:p>{run_of('around')}{box}</w:p>"), "docx")
    assert sorted(texts_of(draft)) == ["around", "inside"]
    assert sorted(re.findall(r"<w:t [^>]*>([^<]*)", read_part(translate(draft), "word/document.xml"))) == [
        "AROUND",
        "INSIDE",
    ]


def test_slides_and_cells_are_translated() -> None:
    number = '<a:fld type="slidenum"><a:t>page</a:t></a:fld>'
    slide = f'<p:sld xmlns:p="p" xmlns:a="{A}"><a:p><a:r><a:t>the cat</a:t></a:r>{number}</a:p></p:sld>'
    slides = make_archive(ppt__slides__slide1_dot_xml=slide, ppt__presentation_dot_xml="<x>untouched words</x>")
    assert texts_of(read_document(slides, "pptx")) == ["the cat"]
    assert "<a:t>THE CAT</a:t>" in read_part(translate(read_document(slides, "pptx")), "ppt/slides/slide1.xml")
    rich = "<si><r><t>a</t></r><r><rPr><b/></rPr><t> bird</t></r></si>"
    strings = f'<sst xmlns="{S}"><si><t>the dog</t></si>{rich}<si><t>3.5</t></si></sst>'
    sheet = f'<worksheet xmlns="{S}"><c t="inlineStr"><is><t>inline</t></is></c><c><f>SUM(A1)</f></c></worksheet>'
    book = make_archive(xl__sharedStrings_dot_xml=strings, xl__worksheets__sheet1_dot_xml=sheet)
    draft = read_document(book, "xlsx")
    assert texts_of(draft) == ["the dog", '<g id="0">a</g><g id="1"> bird</g>', "inline"]
    written = translate(draft)
    assert "<b/></rPr><t> BIRD</t>" in read_part(written, "xl/sharedStrings.xml")
    assert "<f>SUM(A1)</f>" in read_part(written, "xl/worksheets/sheet1.xml")


def test_open_documents_keep_spans_and_the_first_entry() -> None:
    inner = 'the <text:span text:style-name="T1">red</text:span> cat<text:line-break/>'
    paragraphs = f"<text:h>title</text:h><text:p>{inner}</text:p>"
    body = f'<office:text xmlns:office="{OFFICE}" xmlns:text="{TEXT}">{paragraphs}</office:text>'
    draft = read_document(make_archive(mimetype="application/vnd.oasis.opendocument.text", content_dot_xml=body), "odt")
    assert texts_of(draft) == ["title", inner]
    written = translate(draft)
    part = read_part(written, "content.xml")
    assert "<text:h>TITLE</text:h>" in part
    assert '<text:p>THE <text:span text:style-name="T1">RED</text:span> CAT<text:line-break/></text:p>' in part
    with zipfile.ZipFile(BytesIO(written)) as archive:
        assert archive.namelist()[0] == "mimetype"


def test_a_book_is_translated_page_by_page() -> None:
    page = "<html><head><title>book</title></head><body><p>the <b>cat</b></p></body></html>"
    content = make_archive(mimetype="application/epub+zip", OEBPS__one_dot_xhtml=page, OEBPS__style_dot_css="p {}")
    draft = read_document(content, "epub")
    plans = [SegmentedText(each.text, each.text_format) for each in draft.segments]
    assert [sentence for plan in plans for sentence in plan.sentences] == ["book", "the cat"]
    assert read_part(draft.assemble([page.replace("cat", "Katze")]), "OEBPS/one.xhtml").count("Katze") == 1


@pytest.mark.parametrize("ending", ["docx", "pptx", "xlsx", "odt", "odp", "epub"])
@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 damaged", make_archive(other_dot_txt="x")])
def test_damaged_archives_are_rejected(ending: str, content: bytes) -> None:
    with pytest.raises(ApiError, match="document_damaged"):
        read_document(content, ending)


def is_refused(content: bytes) -> bool:
    try:
        read_document(content, "docx")
    except ApiError as refusal:
        return refusal.code.startswith("document_")
    return False


def test_every_damaged_byte_gives_an_error_or_a_document() -> None:
    content = make_word(f"<w:p>{run_of('the cat')}</w:p>")
    for position in range(0, len(content), 3):
        damaged = content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]
        for changed in (damaged, content[:position]):
            assert is_refused(changed) or zipfile.is_zipfile(BytesIO(translate(read_document(changed, "docx"))))


def test_archives_that_are_large_unpacked_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = make_archive(word__document_dot_xml="<a/>", bomb=b"0" * 1_000_000)
    assert len(bomb) < 5_000
    with pytest.raises(ApiError, match="document_too_large_unpacked"):
        read_document(bomb, "docx")
    monkeypatch.setattr(archives_module, "MAX_EXPANSION", 10_000)
    monkeypatch.setattr(archives_module, "MAX_UNPACKED_BYTES", 100_000)
    with pytest.raises(ApiError, match="document_too_large_unpacked"):
        read_document(bomb, "docx")
    monkeypatch.setattr(archives_module, "MAX_UNPACKED_BYTES", 10_000_000)
    monkeypatch.setattr(archives_module, "MAX_PART_BYTES", 3)
    with pytest.raises(ApiError, match="document_too_large_unpacked"):
        read_document(bomb, "docx")


@pytest.mark.parametrize(
    "declaration", ['<!DOCTYPE w [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>', '<!DOCTYPE w SYSTEM "file:///etc/passwd">']
)
def test_entities_are_rejected(declaration: str) -> None:
    part = f'{declaration}<w:document xmlns:w="{W}"><w:p>{run_of("cat")}</w:p></w:document>'
    with pytest.raises(ApiError, match="document_damaged"):
        read_document(make_archive(word__document_dot_xml=part), "docx")
    with pytest.raises(ApiError, match="document_damaged"):
        read_document(f"{declaration}<xliff/>".encode(), "xliff")


def test_formats_without_their_package_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_format("a.DOCX") == "docx"
    assert find_format("a.xlf") == "xliff"
    monkeypatch.setattr("attendo.serve.translation.formats.find_spec", lambda name: None)
    assert list_formats() == ["txt", "html", "htm", "xml", "srt"]
    with pytest.raises(ApiError, match="format_needs_package"):
        find_format("a.docx")


PARTS = {
    "docx": "word/document.xml",
    "pptx": "ppt/slides/slide1.xml",
    "xlsx": "xl/sharedStrings.xml",
    "odt": "content.xml",
    "odp": "content.xml",
    "epub": "text/chapter.xhtml",
}
XML_FORMATS = [ending for ending in PARTS if ending != "epub"]


def zip_parts(**parts: str | bytes) -> bytes:
    """Return an archive. The names of the parts may be anything."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize("ending", PARTS)
def test_every_archive_format_rejects_bombs_and_names_outside(ending: str) -> None:
    part = {PARTS[ending]: "<a><p>cat</p></a>"}
    assert read_document(zip_parts(**part), ending) is not None
    with pytest.raises(ApiError, match="document_too_large_unpacked"):
        read_document(zip_parts(**part, bomb=b"0" * 2_000_000), ending)
    for name in ("../evil.xml", "/etc/evil.xml", "word/../../evil.xml", "..\\evil.xml", "C:/evil.xml"):
        with pytest.raises(ApiError, match="document_damaged"):
            read_document(zip_parts(**part, **{name: "x"}), ending)


@pytest.mark.parametrize("ending", [*XML_FORMATS, "xliff"])
def test_every_xml_format_rejects_entities_and_great_depth(ending: str) -> None:
    entities = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a><p>&x;</p></a>'
    for text in (entities, "<a>" * 100_000 + "</a>" * 100_000):
        content = text.encode() if ending == "xliff" else zip_parts(**{PARTS[ending]: text})
        with pytest.raises(ApiError, match=r"document_damaged|document_too_large_unpacked"):
            read_document(content, ending)


@pytest.mark.parametrize("ending", ["html", "epub", "xml"])
def test_deep_and_broken_markup_is_read_in_linear_time(ending: str) -> None:
    """The markup parser has no recursion, and resolves no entity of a document type."""
    entity = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>cat &x;</a>'
    for text in ("<b>" * 20_000 + "cat" + "</b>" * 20_000, "<" * 20_000, "&" * 20_000, entity):
        content = zip_parts(**{PARTS["epub"]: text}, a=b"") if ending == "epub" else text.encode()
        try:
            draft = read_document(content, ending)
        except ApiError:
            continue
        assert "root:" not in "".join(segment.text for segment in draft.segments)


@pytest.mark.parametrize(
    "text",
    [
        "1\n99:99:99,999 --> x\n" * 5_000,
        "-->" * 20_000,
        "1\n00:00:01,000 --> 00:00:02,000\n" + "a" * 100_000,
        "1\n00:00:01,000 --> 00:00:02,000\na\n" * 5_000,
        "1\n00:00:01,000 --> 00:00:02,000\n" + "a " * 50_000 + "\nb\n",
    ],
    ids=["times", "arrows", "long word", "no blank lines", "many words"],
)
def test_hostile_subtitles_take_linear_time(text: str) -> None:
    try:
        draft = read_document(text.encode(), "srt")
    except ApiError:
        return
    assert len(draft.assemble([segment.text for segment in draft.segments])) <= 2 * len(text)


def test_subtitles_without_blank_lines_end_before_the_next_cue() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\na cat\n2\n00:00:03,000 --> 00:00:04,000\na dog\n"
    draft = read_document(text.encode(), "srt")
    assert [segment.text for segment in draft.segments] == ["a cat", "a dog"]
    assert draft.assemble(["A CAT", "A DOG"]).decode() == text.replace("a cat", "A CAT").replace("a dog", "A DOG")


@pytest.mark.parametrize("text", ["/etc/passwd", 'msgid "a\nmsgstr', "msgid " * 10_000, '\nmsgid "' + "\\\\" * 20_000])
def test_hostile_catalogues_are_rejected_or_read(text: str) -> None:
    try:
        draft = read_document(text.encode(), "po")
    except ApiError:
        return
    assert not any("root:" in segment.text for segment in draft.segments)
