"""Nothing in the package runs code from files, opens a shell, or prints outside the command line (reliability X1)."""

import ast
from collections.abc import Iterator

import pytest
from source_files import NAMES, dotted, parsed

MODULES = {
    *(
        "_pickle",
        "cPickle",
        "cloudpickle",
        "dill",
        "jsonpickle",
        "joblib",
        "marshal",
        "pickle",
        "pickletools",
        "shelve",
    ),
    *("code", "codeop", "commands", "runpy", "ruamel", "yaml"),
}
CALLS = {
    *("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec", "builtins.compile"),
    *("torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"),
    *("torch.serialization.load", "torch.serialization.save", "torch.export.load", "pandas.read_pickle"),
    *("tempfile.mktemp", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("ssl._create_unverified_context", "logging.config.listen"),
}
# Allowed values of an argument. An expression is rejected too, because its value is not known here.
ARGUMENTS = {"shell": False, "verify": True, "allow_pickle": False, "weights_only": True, "trust_remote_code": False}
OUTPUT_NAMES = {"print", "sys.stdout", "sys.stderr", "sys.stdout.write", "sys.stderr.write"}


def test_package_has_no_forbidden_calls() -> None:
    found = {name: list(find_forbidden(parsed(name))) for name in NAMES}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_library_never_prints() -> None:
    found = {name: find_output(parsed(name)) for name in NAMES if not name.startswith("attendo/cli/")}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("code", ["print('x')", "sys.stderr.write('x')", "def f(out=sys.stdout): ..."])
def test_checker_finds_output(code: str) -> None:
    assert find_output(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import os, pickle as p",
        "import dill.source",
        "import yaml",
        "from pickle import loads",
        "from torch import load",
        "from torch import load as read",
        "from torch import serialization as reading\nreading.load('x')",
        "torch.load('x')",
        "import torch as t\nt.load('x')",
        "import torch.serialization as s\ns.load('x')",
        "def f():\n    import os as system\n    system.popen('ls')",
        "getattr(torch, 'load')('x')",
        "import builtins\nbuiltins.exec('1')",
        "import_module('pickle')",
        "importlib.import_module('yaml.loader')",
        "from tempfile import mktemp",
        "def f():\n    return eval('1')",
        "exec('1')",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=1)",
        "subprocess.run('ls', shell=wanted)",
        "client.get('x', verify=False)",
        "AutoModel.from_pretrained('x', trust_remote_code=True)",
        "numpy.load('x', allow_pickle=True)",
        "f = torch.load",
    ],
)
def test_checker_finds_forbidden_code(code: str) -> None:
    assert list(find_forbidden(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "network.eval()",
        "re.compile('x')",
        "from safetensors.torch import load_file",
        "compile: bool = True",
        "subprocess.run(['ls'], shell=False)",
        "numpy.load('x', allow_pickle=False)",
        "getattr(torch, name)",
        "import_module('py3langid')",
    ],
)
def test_checker_accepts_allowed_code(code: str) -> None:
    assert not list(find_forbidden(ast.parse(code)))


def find_forbidden(module: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(module))
    names = dict(each for node in nodes if isinstance(node, ast.Import) for each in _import_aliases(node))
    names |= {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and not node.level
        for each in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if _top_package(each.name) in MODULES)
        elif isinstance(node, ast.ImportFrom) and _top_package(node.module or "") in MODULES and not node.level:
            yield str(node.module)
        elif isinstance(node, ast.ImportFrom):
            yield from (name for each in node.names if (name := f"{node.module}.{each.name}") in CALLS)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from {_resolve(dotted(node), names)} & CALLS
        elif isinstance(node, ast.Call):
            yield from _named_by_string(node, names)
        elif (
            isinstance(node, ast.keyword)
            and node.arg in ARGUMENTS
            and not _is_constant(node.value, ARGUMENTS[node.arg])
        ):
            yield f"{node.arg}={ast.unparse(node.value)}"


def find_output(module: ast.Module) -> set[str]:
    return {dotted(node) for node in ast.walk(module) if isinstance(node, ast.Name | ast.Attribute)} & OUTPUT_NAMES


def _import_aliases(node: ast.Import) -> Iterator[tuple[str, str]]:
    return ((each.asname, each.name) for each in node.names if each.asname is not None)


def _resolve(name: str, names: dict[str, str]) -> str:
    """The full name of an object, resolving names given by `import ... as`."""
    first, dot, rest = name.partition(".")
    return names.get(first, first) + dot + rest


def _is_constant(value: ast.expr, wanted: bool) -> bool:
    return isinstance(value, ast.Constant) and value.value is wanted


def _top_package(module: str) -> str:
    return module.split(".")[0]


def _named_by_string(call: ast.Call, names: dict[str, str]) -> Iterator[str]:
    """Forbidden names that are passed as a string, to `getattr` or `import_module`."""
    function = _resolve(dotted(call.func), names)
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if function == "getattr" and texts:
        yield from {f"{_resolve(dotted(call.args[0]), names)}.{texts[0]}"} & CALLS
    elif function in ("import_module", "importlib.import_module"):
        yield from {_top_package(text) for text in texts} & MODULES
