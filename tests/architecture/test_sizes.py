"""Files, functions and lists of parameters stay small enough to be read in one go."""

import ast
from collections import Counter

from source_files import NAMES, ROOT, parsed

FILE_LINES, FUNCTION_LINES, PARAMETERS = 600, 40, 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_there_is_something_to_measure() -> None:
    assert len(NAMES) > 40


def test_files_are_short() -> None:
    found = {name: (ROOT / name).read_text("utf-8").count("\n") for name in NAMES}
    assert {name: lines for name, lines in found.items() if lines >= FILE_LINES} == {}


def test_files_say_first_what_they_are() -> None:
    """An empty file has nothing to say."""
    assert [name for name in NAMES if parsed(name).body and not ast.get_docstring(parsed(name))] == []


def test_functions_are_short() -> None:
    found = {place: body_lines(each) for name in NAMES for place, each in functions(name)}
    assert {name: lines for name, lines in found.items() if lines >= FUNCTION_LINES} == {}


def test_functions_take_few_parameters() -> None:
    """A command has as many as options, a kernel as many as pointers and strides."""
    free = [name for name in NAMES if name.startswith("attendo/cli/") or name.endswith("_kernel.py")]
    found = {place: parameters(each) for name in NAMES if name not in free for place, each in functions(name)}
    assert {name: count for name, count in found.items() if count > PARAMETERS} == {}


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them without their folders: of two with one name only the first is read."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "conftest.py"] == []


def functions(name: str) -> list[tuple[str, Function]]:
    """Each with its place, such as `attendo/store.py:12 save`."""
    found = (node for node in ast.walk(parsed(name)) if isinstance(node, Function))
    return [(f"{name}:{node.lineno} {node.name}", node) for node in found]


def body_lines(function: Function) -> int:
    """The signature of a command is its list of options."""
    assert function.end_lineno is not None
    return function.end_lineno - function.body[0].lineno + 1


def parameters(function: Function) -> int:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])
