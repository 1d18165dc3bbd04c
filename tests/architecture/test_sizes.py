"""Files, functions and lists of parameters stay small enough to be read in one go."""

import ast
from collections import Counter

import pytest
from source_files import NAMES, ROOT, parsed

FILE_LINES, FUNCTION_LINES, PARAMETERS = 600, 40, 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_there_is_something_to_measure() -> None:
    assert len(NAMES) > 40


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_short_and_says_first_what_it_is(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert text.count("\n") < FILE_LINES
    assert not text or ast.get_docstring(parsed(name)), "a module opens with one sentence"


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_short_and_take_few_parameters(name: str) -> None:
    functions = [node for node in ast.walk(parsed(name)) if isinstance(node, Function)]
    assert {each.name: lines(each) for each in functions if lines(each) >= FUNCTION_LINES} == {}
    # A command has as many parameters as options, a kernel as many as pointers and strides.
    if not name.startswith("attendo/cli/") and not name.endswith("_kernel.py"):
        assert {each.name: parameters(each) for each in functions if parameters(each) > PARAMETERS} == {}


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them without their folders: of two with one name only the first is read."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "conftest.py"] == []


def lines(function: Function) -> int:
    """Of the body: the signature of a command is its list of options."""
    assert function.end_lineno is not None
    return function.end_lineno - function.body[0].lineno + 1


def parameters(function: Function) -> int:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])
