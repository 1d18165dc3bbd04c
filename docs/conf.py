"""The documentation as a web site: `make docs` writes it to `site/`. It opens from disk and needs no network.

The READMEs order the pages: each becomes the table of contents of its folder. The build fails for a page that no README
links.
"""

import gettext
import posixpath
import re
from pathlib import Path
from typing import Any

import sphinx.locale
from bs4 import BeautifulSoup
from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.highlighting import lexers
from sphinx.search.en import SearchEnglish
from sphinx.writers.html5 import HTML5Translator

DOCS = Path(__file__).resolve().parent

project = "attendo"
extensions = ["myst_parser"]
root_doc = "README"
html_theme = "furo"
html_title = "attendo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_use_index = False
html_permalinks_icon = "#"
html_show_search_summary = False  # it fetches every page found, which browsers refuse for files
html_math_renderer = "mathml"
html_static_path = ["web/site.css", "web/landing.css", "images/home.webp"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "landing.html"}
html_context: dict[str, Any] = {}
templates_path = ["web"]
exclude_patterns = ["web"]
suppress_warnings = ["myst.header"]  # subheadings of the lesson
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_fence_as_directive = ["math"]  # GitHub's name of a formula block
lexers["output"] = lexers["mermaid"] = TextLexer()

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")
TABLE_TITLE = re.compile(r"^\| ([^|]+) \|( \|)+$")
CHINESE = re.compile(r"[\u4e00-\u9fff]+")
BILINGUAL = ("README", "index", "search", "glossary", "lesson/README")


class SearchBothLanguages(SearchEnglish):
    """Index English words by their stems and Chinese text by pairs of characters.

    Sphinx's own Chinese search needs a dictionary of words, and its script fails in the browser (9.0.4).
    """

    js_splitter_code = r"""
var splitQuery = (query) => query.split(/[^\p{Letter}\p{Number}_]+/gu).filter(Boolean).flatMap((word) =>
  word.match(/[\u4e00-\u9fff]+|[^\u4e00-\u9fff]+/g).flatMap((run) =>
    /[\u4e00-\u9fff]/.test(run) && run.length > 1
      ? Array.from({ length: run.length - 1 }, (_, start) => run.slice(start, start + 2))
      : [run]));
"""

    def split(self, text: str) -> list[str]:
        words = super().split(CHINESE.sub(lambda run: f" {run[0]} ", text))
        return [piece for word in words for piece in split_pairs(word)]


def split_pairs(word: str) -> list[str]:
    if not CHINESE.match(word) or len(word) == 1:
        return [word]
    return [word[start : start + 2] for start in range(len(word) - 1)]


def adapt_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Remove links to files outside the documentation, and append the table of contents to a README."""
    folder = (DOCS / page).parent

    def keep_link(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[0] if target.is_relative_to(DOCS) and target.is_file() else link[1]

    source[0] = LINK.sub(keep_link, source[0])
    if posixpath.basename(page) == "README":
        source[0] += "".join(write_contents(folder, source[0]))


def write_contents(folder: Path, text: str) -> list[str]:
    """Return the links of a README in order as tables of contents, one for each titled table.

    The first page lists the Chinese pages too, so that they are not below an English title.
    """
    groups = list_links(text)
    if folder == DOCS and (chinese := DOCS / "zh" / "README.md").exists():
        groups += [
            (title, [posixpath.join("zh", link) for link in links])
            for title, links in list_links(chinese.read_text("utf-8"))
        ]
    elif folder == DOCS / "zh":
        return []
    listed: set[tuple[bool, str]] = set()
    blocks = []
    for title, links in groups:
        chinese_title = bool(CHINESE.search(title))
        pages = [posixpath.normpath(link).removesuffix(".md") for link in links]
        pages = [page for page in dict.fromkeys(pages) if page != "README" and not page.startswith("..")]
        pages = [page for page in pages if (chinese_title, page) not in listed]
        listed.update((chinese_title, page) for page in pages)
        if pages:
            caption = f":caption: {title}\n" if title else ""
            blocks.append("\n\n```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(pages) + "\n```\n")
    return blocks


def list_links(text: str) -> list[tuple[str, list[str]]]:
    """Return the pages that each titled table links, with its title. The first group is the text before the tables."""
    groups: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if title := TABLE_TITLE.match(line):
            groups.append((title[1], []))
        groups[-1][1].extend(link[2] for link in LINK.finditer(line) if link[2].endswith(".md"))
    return groups


def is_chinese(page: str) -> bool:
    return "zh" in page.split("/")


def localise_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Show the words of the theme and the contents in the page's language."""
    chinese = is_chinese(page)
    if chinese:
        translate = translate_theme()
        context.update(language="zh-CN", _=translate.gettext, gettext=translate.gettext, ngettext=translate.ngettext)
    contents = BeautifulSoup(context.get("furo_navigation_tree", ""), "html.parser")
    here = posixpath.dirname(page)
    for link in contents.select("li > a"):
        if link.decomposed:
            continue
        target = posixpath.normpath(posixpath.join(here, str(link["href"]))).removesuffix(".html")
        if (
            target not in BILINGUAL
            and link["href"] != "#"
            and is_chinese(target) != chinese
            and link.parent is not None
        ):
            link.parent.decompose()
    for caption in contents.select("p.caption"):
        entries = caption.find_next_sibling("ul")
        if entries is not None and (entries.find("li") is None or bool(CHINESE.search(caption.text)) != chinese):
            entries.decompose()
            caption.decompose()
    context["furo_navigation_tree"] = str(contents)


def translate_theme() -> gettext.NullTranslations:
    folder = Path(sphinx.locale.__file__).parent
    return gettext.translation("sphinx", folder, languages=["zh_CN"])


def visit_formula(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_formula_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def link_live_page(path: Path) -> None:
    """Let the views of the page link the lesson and the documentation of this site."""
    content = path.read_text("utf-8")
    if "data-documentation" not in content:
        path.write_text(content.replace("<html ", '<html data-documentation="." ', 1), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    live_page = Path(app.outdir) / "live.html"
    html_context["live_page"] = live_page.exists()
    if live_page.exists():
        link_live_page(live_page)
    app.connect("source-read", adapt_page)
    app.connect("html-page-context", localise_page, priority=900)  # after the theme's own function
    app.add_search_language(SearchBothLanguages)
    app.add_html_math_renderer("mathml", (visit_formula, None), (visit_formula_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
