"""Checks your answers to the exercises: `python check.py 3` those of page 3, `python check.py` those of all pages.

`--lang zh` prints Chinese, as does a Chinese locale. `--solutions` checks the solutions.
"""

import argparse
import importlib
import os
import sys

from exercises.checks import CHECKS, Say, WrongAnswerError


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the exercises of the lesson.")
    parser.add_argument("pages", nargs="*", type=int, metavar="PAGE", help=f"1 to {max(CHECKS)}; without it, all")
    parser.add_argument("--lang", choices=("en", "zh"), default=system_language())
    parser.add_argument("--solutions", action="store_true", help="check exercises/solutions instead of your answers")
    options = parser.parse_args()
    unknown = [page for page in options.pages if page not in CHECKS]
    if unknown:
        parser.error(f"no page {unknown[0]}: pages are 1 to {max(CHECKS)}")

    def say(english: str, chinese: str) -> str:
        return chinese if options.lang == "zh" else english

    folder = "exercises.solutions" if options.solutions else "exercises"
    results = [check_page(page, folder, say) for page in options.pages or CHECKS]
    return 0 if all(results) else 1


def check_page(page: int, folder: str, say: Say) -> bool:
    """Print one line for each exercise of a page. Return whether all are right."""
    print(say(f"page {page}", f"第 {page} 页"))
    name = f"{folder}.page_{page:02}"
    place = f"{name.replace('.', '/')}.py"
    try:
        answers = importlib.import_module(name)
    except (SyntaxError, ImportError, NameError) as error:
        print("  ✗", say(f"{place} cannot be loaded: {error}", f"无法加载 {place}：{error}"))
        return False
    passed = []
    for check in CHECKS[page]:
        problem = find_problem(check, answers, place, say)
        print(f"  {'✗' if problem else '✓'} {check.__name__}{': ' if problem else ''}{problem}")
        passed.append(not problem)
    return all(passed)


def find_problem(check, answers, place: str, say: Say) -> str:  # type: ignore[no-untyped-def]
    """Return what is wrong with an answer, or nothing."""
    answer = getattr(answers, check.__name__, None)
    if answer is None:
        return say(f"{place} has no function of this name", f"{place} 里没有这个函数")
    try:
        check(answer, say)
    except NotImplementedError:
        return say(f"not written yet. Write it in {place}", f"还没有写。请写在 {place} 里")
    except WrongAnswerError as wrong:
        return str(wrong)
    except Exception as error:  # whatever the answer raises is shown to its author
        return say(f"raised {type(error).__name__}: {error}", f"抛出了 {type(error).__name__}：{error}")
    return ""


def system_language() -> str:
    named = next((value for key in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(key))), "")
    return "zh" if named.lower().startswith("zh") else "en"


if __name__ == "__main__":
    sys.exit(main())
