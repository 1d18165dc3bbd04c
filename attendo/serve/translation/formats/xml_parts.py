"""Safe parsing of XML inside documents, and the inner XML of an element as a segment."""

import re
from typing import Any

from lxml import etree

from attendo.serve.http.errors import ApiError

_ROOT = "segment"


def parse_xml(content: bytes, ending: str) -> Any:
    """Return the tree. Document type declarations, which can define entities, are rejected."""
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        tree = etree.fromstring(content, parser).getroottree()
    except etree.XMLSyntaxError as error:
        raise ApiError("document_damaged", ending=ending, detail=str(error)[:200]) from None
    if tree.docinfo.doctype or tree.docinfo.internalDTD is not None:
        raise ApiError("document_damaged", ending=ending, detail="it has a document type declaration")
    return tree


def write_xml(tree: Any) -> bytes:
    standalone = tree.docinfo.standalone
    written: bytes = etree.tostring(tree, xml_declaration=True, encoding="UTF-8", standalone=standalone)
    return written


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; empty for comments."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def inner_xml(element: Any) -> str:
    """Return the text and the elements inside an element as XML."""
    text: str = etree.tostring(element, encoding="unicode", with_tail=False)
    begin = re.match(r"<[^>]*>", text)
    assert begin is not None, "it is an element"
    return "" if begin[0].endswith("/>") else text[begin.end() : text.rindex("</")]


def set_inner_xml(element: Any, inner: str) -> None:
    """Replace what is inside an element. If a translation is not well-formed, only its text is kept."""
    tail, attributes = element.tail, dict(element.attrib)
    names = " ".join(f'xmlns{":" + prefix if prefix else ""}="{uri}"' for prefix, uri in element.nsmap.items())
    try:
        new = etree.fromstring(f"<{_ROOT} {names}>{inner}</{_ROOT}>")
    except etree.XMLSyntaxError:
        new = etree.fromstring(f"<{_ROOT}/>")
        new.text = re.sub(r"<[^>]*>", "", inner)
    element.clear()
    element.attrib.update(attributes)
    element.tail, element.text = tail, new.text
    element.extend(list(new))
