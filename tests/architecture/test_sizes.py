"""Functions and lists of parameters stay short, and a file is not split for one user."""

import ast
from collections import Counter
from pathlib import Path

from source_files import NAMES, ROOT, parsed

SMALL_FILE_LINES, FUNCTION_LINES, PARAMETERS = 60, 40, 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_there_is_something_to_measure() -> None:
    assert len(NAMES) > 40


def test_small_files_have_more_than_one_user() -> None:
    """A helper with one user stands in the file of that user. Some small files answer a question that readers have."""
    meant = {"attendo/model/initialise.py"}
    users = importers()
    small = [name for name in NAMES if not name.endswith("__init__.py") and lines(name) < SMALL_FILE_LINES]
    alone = {name: users[name] for name in small if len(users[name]) == 1 and name not in meant}
    assert {name: user for name, (user,) in alone.items() if Path(user).parent == Path(name).parent} == {}


def test_files_say_first_what_they_are() -> None:
    """An empty file has nothing to say."""
    assert [name for name in NAMES if parsed(name).body and not ast.get_docstring(parsed(name))] == []


def test_functions_are_short() -> None:
    found = {place: body_lines(each) for name in NAMES for place, each in functions(name)}
    assert {name: lines for name, lines in found.items() if lines >= FUNCTION_LINES} == {}


def test_functions_take_few_parameters() -> None:
    """A command has as many as options, a kernel as many as pointers and strides."""
    free = [name for name in NAMES if name.startswith("attendo/cli/") or name.endswith("_triton.py")]
    found = {place: parameters(each) for name in NAMES if name not in free for place, each in functions(name)}
    assert {name: count for name, count in found.items() if count > PARAMETERS} == {}


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them without their folders: of two with one name only the first is read."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "conftest.py"] == []


def lines(name: str) -> int:
    return (ROOT / name).read_text("utf-8").count("\n")


def importers() -> dict[str, set[str]]:
    """By the name of a file: the files of the package that import it or names of it."""
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for name in NAMES:
        imports = (node for node in ast.walk(parsed(name)) if isinstance(node, ast.ImportFrom) and node.module)
        for module in (
            place for node in imports for each in node.names for place in (f"{node.module}.{each.name}", node.module)
        ):
            path = f"{(module or '').replace('.', '/')}.py"
            if path in found:
                found[path].add(name)
    return found


def functions(name: str) -> list[tuple[str, Function]]:
    """Each with its place, such as `attendo/model_folder.py:12 save`."""
    found = (node for node in ast.walk(parsed(name)) if isinstance(node, Function))
    return [(f"{name}:{node.lineno} {node.name}", node) for node in found]


def body_lines(function: Function) -> int:
    """The signature of a command is its list of options."""
    assert function.end_lineno is not None
    return function.end_lineno - function.body[0].lineno + 1


def parameters(function: Function) -> int:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])
