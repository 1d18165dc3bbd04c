"""Writes what every page has: objectives, the map, links, questions, exercises, and references.

The words are in `frames/`, one file a page, English and Chinese side by side. The papers are in `papers.toml`.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MARK = re.compile(r"<!-- (?P<kind>head|foot) -->.*?<!-- end -->", re.DOTALL)
EXPLORE = "http://127.0.0.1:8800/"  # where `attendo explore` serves its page
WORDS = {
    "en": {
        "all": "All pages", "other": "中文", "notebook": "Notebook", "previous": "← {}", "next": "{} →",
        "time": "**Time:** {} minutes to read, {} for the exercises.", "after": " After this page you can:",
        "map": "The whole model. Blue: the parts of this page.", "questions": "Questions", "exercises": "Exercises",
        "write": "Write the functions in [`{0}`](../code/{0}). Then check them in `docs/lesson/code`:",
        "explore": "In your own model", "references": "References",
        "open": "With `attendo explore runs/demo/model` running, open [{}]({}). {}",
    },
    "zh": {
        "all": "目录", "other": "English", "notebook": "笔记本", "previous": "← {}", "next": "{} →",
        "time": "**时间**：阅读 {} 分钟，练习 {} 分钟。", "after": "学完这一页，你能够：",
        "map": "整个模型。蓝色：本页讲的部分。", "questions": "想一想", "exercises": "练习",
        "write": "在 [`{0}`](../code/{0}) 里写出这些函数，然后在 `docs/lesson/code` 里检查：",
        "explore": "在你自己的模型里看", "references": "参考文献",
        "open": "运行 `attendo explore runs/demo/model` 之后，打开[{}]({})。{}",
    },
}  # fmt: skip


def names() -> list[str]:
    return sorted(path.name for path in (HERE / "en").glob("*.md"))


@cache
def frame_of(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / "frames" / Path(name).with_suffix(".toml")).read_text("utf-8"))


@cache
def papers() -> dict[str, dict[str, Any]]:
    return tomllib.loads((HERE / "papers.toml").read_text("utf-8"))


def framed(text: str, name: str, language: str) -> str:
    """Insert the head and the foot of a page at their marks."""
    makers = {"head": head, "foot": foot}

    def insert(match: re.Match[str]) -> str:
        kind = match["kind"]
        return f"<!-- {kind} -->\n{makers[kind](name, language)}\n<!-- end -->"

    return MARK.sub(insert, text)


def head(name: str, language: str) -> str:
    frame, words = frame_of(name), WORDS[language]
    objectives = "\n".join(f"- {pair(each, language)}" for each in frame["objectives"])
    return "\n\n".join(
        [
            links(name, language),
            words["time"].format(*frame["minutes"]) + words["after"],
            objectives,
            f"![{words['map']}](../pictures/{language}/map-{name[:2]}.svg)",
        ]
    )


def foot(name: str, language: str) -> str:
    frame, words = frame_of(name), WORDS[language]
    parts = [f"## {words['questions']}"]
    for question in frame["question"]:
        asked, answer = question[language]
        parts.append(f"<details>\n<summary>{asked}</summary>\n\n{answer}\n\n</details>")
    parts += [f"## {words['exercises']}", words["write"].format(f"exercises/page_{name[:2]}.py")]
    parts.append(f"```sh\npython check.py {int(name[:2])}\n```")
    parts.append("\n".join(f"- `{each['name']}`{colon(language)}{each[language]}" for each in frame["exercise"]))
    explore = frame["explore"]
    parts.append(f"## {words['explore']}")
    parts.append(words["open"].format(*explore[language][:1], f"{EXPLORE}#{explore['state']}", explore[language][1]))
    parts.append(f"## {words['references']}")
    parts.append("\n".join(f"- {reference(*each, language=language)}" for each in frame["papers"]))
    parts.append(links(name, language))
    return "\n\n".join(parts)


def links(name: str, language: str) -> str:
    """Links to the previous page, all pages, the other language, the notebook, and the next page."""
    words, every = WORDS[language], names()
    other = "zh" if language == "en" else "en"
    place = every.index(name)
    shown = [f"[{words['all']}](../README.md)", f"[{words['other']}](../{other}/{name})"]
    shown.append(f"[{words['notebook']}](../notebooks/{language}/{Path(name).with_suffix('.ipynb')})")
    if place > 0:
        shown.insert(0, f"[{words['previous'].format(title(every[place - 1], language))}]({every[place - 1]})")
    if place < len(every) - 1:
        shown.append(f"[{words['next'].format(title(every[place + 1], language))}]({every[place + 1]})")
    return " · ".join(shown)


def reference(key: str, *where: str, language: str) -> str:
    """Return authors, title, year and link of a paper, and the place in it, which has a text in each language."""
    paper = papers()[key]
    place = pair(where, language) if where else ""
    stop = ". " if language == "en" else "。"
    written = f"{paper['authors']}, *{paper['title']}*, {paper['year']}, [{paper['name']}]({paper['url']})"
    return f"{written}{stop}{place}".strip()


@cache
def title(name: str, language: str) -> str:
    first = (HERE / language / name).read_text("utf-8").split("\n", 1)[0]
    return first.removeprefix("# ")


def pair(texts: Any, language: str) -> str:
    english, chinese = texts
    return english if language == "en" else chinese


def colon(language: str) -> str:
    return ": " if language == "en" else "："
