"""The files of the page are small, contact no other host and have every text in both languages."""

import gzip
import re
from pathlib import Path

import pytest

import attendo.explore

PAGE = Path(attendo.explore.__file__).parent / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())
MODULES = [path for path in FILES if path.suffix == ".js"]
KEY = re.compile(r'"([^"\\]+)": "((?:[^"\\]|\\.)*)"')
NAME = re.compile(r'"([a-z]+(?:\.\w+)*)"')
MADE = re.compile(r"\bt\(`([^`]+)`")


def strings(language: str) -> dict[str, str]:
    return dict(KEY.findall((PAGE / "strings" / f"{language}.js").read_text("utf-8")))


def test_both_languages_have_the_same_keys_and_placeholders() -> None:
    english, chinese = strings("en"), strings("zh")
    assert len(english) > 200
    assert list(english) == list(chinese)
    for key, text in english.items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", chinese[key])), key


def test_chinese_texts_are_translated() -> None:
    same = {key for key, text in strings("zh").items() if text == strings("en")[key]}
    assert same <= {
        *("decoder.top_p", "tree.log", "compare.log", "ablation.delta", "ablation.change", "training.bleu"),
        *("steps.total", "step.logits", "calculator.rows.none", "home.part.softmax", "home.layers", "tour.softmax.0"),
    }


def test_every_used_text_exists_and_none_is_unused() -> None:
    keys = set(strings("en"))
    sources = [without_comments(path.read_text("utf-8")) for path in MODULES if path.parent.name != "strings"]
    groups = {key.split(".")[0] for key in keys}
    named = {name for source in sources for name in NAME.findall(source) if name.split(".")[0] in groups}
    modules = {name for name in named if re.match(r"(?:en|de)coder\.(?:\d|self|cross)", name)}
    assert {name for name in named if "." in name} - keys - modules == set()
    assert {name for source in sources for name in re.findall(r'\bt\("([^"]+)"', source)} - keys == set()
    # `site.${site}` matches any key of that group.
    made = [
        re.compile(re.sub(r"\$\{[^}]*\}+", ".+", text).replace(".explain", "[.]explain"))
        for source in sources
        for text in MADE.findall(source)
    ]
    assert {key for key in keys - named if not any(each.fullmatch(key) for each in made)} == set()


def test_every_style_has_an_element() -> None:
    """A class name of a style occurs in a module, perhaps with a replaced part, as in `wide-${stack}`."""
    source = "".join(path.read_text("utf-8") for path in FILES if path.suffix in (".js", ".html"))
    made = [
        re.compile(re.sub(r"\\\$\\\{.*?\\\}", r"[\\w-]+", re.escape(each)))
        for each in re.findall(r"[\w-]+\$\{\w+\}", source)
    ]
    for path in FILES:
        rules = re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL) if path.suffix == ".css" else ""
        names = {
            name for rule in re.findall(r"([^{}]+)\{", rules) for name in re.findall(r"[.#]([a-zA-Z][\w-]*)", rule)
        }
        unused = {name for name in names if not re.search(rf"(?<![\w-]){name}(?![\w-])", source)}
        assert {name for name in unused if not any(each.fullmatch(name) for each in made)} == set(), path.name


def without_comments(source: str) -> str:
    return re.sub(r"^\s*(?://|/\*\*|\*).*$", "", source, flags=re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_page_file_names_no_other_host_and_builds_no_html(path: Path) -> None:
    text = path.read_text("utf-8")
    hosts = set(re.findall(r"https?://[\w.]+", text))
    assert hosts <= {"http://www.w3.org", "http://page"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_page_module_is_short_and_starts_with_a_comment(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("// ")
    assert text.count("\n") < 300 or path.parent.name == "strings"


def test_all_modules_of_the_first_view_are_preloaded() -> None:
    index = (PAGE / "index.html").read_text("utf-8")
    loaded = re.findall(r'(?:modulepreload" href|type="module" src)="/page/([^"]+)"', index)
    later = {"offline.js"}  # only an export needs it
    assert set(loaded) | later == {str(path.relative_to(PAGE)) for path in MODULES}


def test_page_is_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in FILES) < 180_000
