"""Functions and parameter lists are short, and a small file has more than one user."""

import ast
from collections import Counter
from pathlib import Path

from source_files import NAMES, ROOT, parsed

SMALL_FILE_LINES, FUNCTION_LINES, PARAMETERS = 60, 40, 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_package_files_are_found() -> None:
    assert len(NAMES) > 40


def test_small_files_have_more_than_one_user() -> None:
    """A helper with one user belongs in that user's file. The exceptions are files that readers look for."""
    exceptions = {"attendo/model/initialise.py"}
    users = importers()
    small = [name for name in NAMES if not name.endswith("__init__.py") and lines(name) < SMALL_FILE_LINES]
    alone = {name: users[name] for name in small if len(users[name]) == 1 and name not in exceptions}
    assert {name: user for name, (user,) in alone.items() if Path(user).parent == Path(name).parent} == {}


def test_files_have_docstrings() -> None:
    """An empty file needs no docstring."""
    assert [name for name in NAMES if parsed(name).body and not ast.get_docstring(parsed(name))] == []


def test_functions_are_short() -> None:
    found = {location: body_lines(each) for name in NAMES for location, each in functions(name)}
    assert {name: lines for name, lines in found.items() if lines >= FUNCTION_LINES} == {}


def test_functions_have_few_parameters() -> None:
    """Commands and Triton kernels are exempt: they have one parameter per option, or per pointer and stride."""
    exempt = [name for name in NAMES if name.startswith("attendo/cli/") or name.endswith("_triton.py")]
    found = {location: parameters(each) for name in NAMES if name not in exempt for location, each in functions(name)}
    assert {name: count for name, count in found.items() if count > PARAMETERS} == {}


def test_test_file_names_are_unique() -> None:
    """pytest imports test files without their folders, so only the first of two with the same name is read."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "conftest.py"] == []


def lines(name: str) -> int:
    return (ROOT / name).read_text("utf-8").count("\n")


def importers() -> dict[str, set[str]]:
    """For each file of the package, the files that import it or names from it."""
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for name in NAMES:
        imports = (node for node in ast.walk(parsed(name)) if isinstance(node, ast.ImportFrom) and node.module)
        for module in (
            path for node in imports for each in node.names for path in (f"{node.module}.{each.name}", node.module)
        ):
            path = f"{(module or '').replace('.', '/')}.py"
            if path in found:
                found[path].add(name)
    return found


def functions(name: str) -> list[tuple[str, Function]]:
    """All functions of a file with their locations, such as `attendo/model_folder.py:12 save`."""
    found = (node for node in ast.walk(parsed(name)) if isinstance(node, Function))
    return [(f"{name}:{node.lineno} {node.name}", node) for node in found]


def body_lines(function: Function) -> int:
    """The lines of the body. The signature is not counted: that of a command is its list of options."""
    assert function.end_lineno is not None
    return function.end_lineno - function.body[0].lineno + 1


def parameters(function: Function) -> int:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])
