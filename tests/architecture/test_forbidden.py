"""Nothing in the package runs code from files, opens a shell, or prints outside the command line (reliability X1)."""

import ast
from collections.abc import Iterator

import pytest
from source_files import NAMES, dotted, parsed

MODULES = {"cPickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
CALLS = {
    *("eval", "exec", "compile", "__import__"),
    *("torch.load", "torch.save", "torch.jit.load", "torch.hub.load"),
    *("yaml.load", "tempfile.mktemp", "os.system", "os.popen"),
}
ARGUMENTS = {("shell", True), ("verify", False), ("allow_pickle", True), ("weights_only", False)}
SPEECH = {"print", "sys.stdout", "sys.stderr", "sys.stdout.write", "sys.stderr.write"}


@pytest.mark.parametrize("name", NAMES)
def test_a_module_does_nothing_that_is_forbidden(name: str) -> None:
    assert list(forbidden(parsed(name))) == []


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("attendo/cli/")])
def test_the_library_never_prints(name: str) -> None:
    names = {dotted(node) for node in ast.walk(parsed(name)) if isinstance(node, ast.expr)}
    assert not names & SPEECH


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import os, pickle as p",
        "import dill.source",
        "from pickle import loads",
        "from torch import load",
        "torch.load('x')",
        "def f():\n    return eval('1')",
        "exec('1')",
        "subprocess.run('ls', shell=True)",
        "numpy.load('x', allow_pickle=True)",
        "f = torch.load",
    ],
)
def test_the_search_finds_what_it_looks_for(code: str) -> None:
    assert list(forbidden(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["network.eval()", "re.compile('x')", "from safetensors.torch import load_file", "compile: bool = True"]
)
def test_the_search_lets_the_rest_alone(code: str) -> None:
    assert not list(forbidden(ast.parse(code)))


def forbidden(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if home.split(".")[0] in MODULES:
                yield home
            yield from (f"{home}.{each.name}" for each in node.names if f"{home}.{each.name}" in CALLS)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and dotted(node) in CALLS:
            yield dotted(node)
        elif isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
            yield from (f"{name}={value}" for name, value in ARGUMENTS if (node.arg, node.value.value) == (name, value))
