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
# What an argument may be, where it is given at all: a value that is only known later may be the other one.
ARGUMENTS = {"shell": False, "verify": True, "allow_pickle": False, "weights_only": True, "trust_remote_code": False}
SPEECH = {"print", "sys.stdout", "sys.stderr", "sys.stdout.write", "sys.stderr.write"}


def test_modules_do_nothing_that_is_forbidden() -> None:
    found = {name: list(forbidden(parsed(name))) for name in NAMES}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_the_library_never_prints() -> None:
    found = {name: spoken(parsed(name)) for name in NAMES if not name.startswith("attendo/cli/")}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("code", ["print('x')", "sys.stderr.write('x')", "def f(out=sys.stdout): ..."])
def test_the_search_finds_what_prints(code: str) -> None:
    assert spoken(ast.parse(code))


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
def test_the_search_finds_what_it_looks_for(code: str) -> None:
    assert list(forbidden(ast.parse(code)))


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
def test_the_search_lets_the_rest_alone(code: str) -> None:
    assert not list(forbidden(ast.parse(code)))


def forbidden(module: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(module))
    names = dict(each for node in nodes if isinstance(node, ast.Import) for each in _other_names(node))
    names |= {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and not node.level
        for each in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if _home(each.name) in MODULES)
        elif isinstance(node, ast.ImportFrom) and _home(node.module or "") in MODULES and not node.level:
            yield str(node.module)
        elif isinstance(node, ast.ImportFrom):
            yield from (name for each in node.names if (name := f"{node.module}.{each.name}") in CALLS)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from {_real(dotted(node), names)} & CALLS
        elif isinstance(node, ast.Call):
            yield from _by_name(node, names)
        elif isinstance(node, ast.keyword) and node.arg in ARGUMENTS and not _is(node.value, ARGUMENTS[node.arg]):
            yield f"{node.arg}={ast.unparse(node.value)}"


def spoken(module: ast.Module) -> set[str]:
    return {dotted(node) for node in ast.walk(module) if isinstance(node, ast.Name | ast.Attribute)} & SPEECH


def _other_names(node: ast.Import) -> Iterator[tuple[str, str]]:
    return ((each.asname, each.name) for each in node.names if each.asname is not None)


def _real(name: str, names: dict[str, str]) -> str:
    """As it is called where it comes from, whatever it was imported as."""
    first, dot, rest = name.partition(".")
    return names.get(first, first) + dot + rest


def _is(value: ast.expr, wanted: bool) -> bool:
    return isinstance(value, ast.Constant) and value.value is wanted


def _home(module: str) -> str:
    return module.split(".")[0]


def _by_name(call: ast.Call, names: dict[str, str]) -> Iterator[str]:
    """What is asked for by a text instead of a name."""
    asked = _real(dotted(call.func), names)
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if asked == "getattr" and texts:
        yield from {f"{_real(dotted(call.args[0]), names)}.{texts[0]}"} & CALLS
    elif asked in ("import_module", "importlib.import_module"):
        yield from {_home(text) for text in texts} & MODULES
