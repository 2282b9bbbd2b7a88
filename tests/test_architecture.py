"""The architecture as tests: import contracts, modules of one idea, no pickle, data without code, a light start."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE_FOLDERS = ("makespan", "simulator", "predictors", "optimizers", "runtime")
LONGEST = 500
HEAVY = ("numba", "torch", "pandas", "scipy", "dgl", "ortools", "matplotlib", "pyarrow", "networkx")


def modules() -> list[Path]:
    """Every Python file of the product, under its folder at the root: links are not followed."""
    return sorted(
        Path(folder) / name
        for top in CODE_FOLDERS
        for folder, _, names in os.walk(ROOT / top, followlinks=False)
        for name in names
        if name.endswith(".py")
    )


MODULES = modules()
NAMES = [path.relative_to(ROOT).as_posix() for path in MODULES]


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


def test_all_folders_are_looked_at() -> None:
    assert {name.split("/")[0] for name in NAMES} == set(CODE_FOLDERS)
    assert "makespan/graph.py" in NAMES
    assert "makespan/simulator/__init__.py" not in NAMES


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_a_module_is_short_and_begins_with_its_idea(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert 1 <= len(lines) <= LONGEST, f"{len(lines)} lines: split it"
    assert lines[0].startswith('"""'), "the first line is not a docstring"
    documented = ast.get_docstring(ast.parse(text))
    assert documented and documented.splitlines()[0].strip(), "the docstring's first line is empty"


def unsafe(tree: ast.AST) -> Iterator[str]:
    """What may run code hidden in data, wherever it stands in `tree`."""
    for found in ast.walk(tree):
        if isinstance(found, ast.Import):
            names = [alias.name for alias in found.names]
        elif isinstance(found, ast.ImportFrom):
            names = [found.module or ""]
        elif isinstance(found, ast.Call):
            name = found.func
            if isinstance(name, ast.Name) and name.id in ("eval", "exec", "compile", "__import__"):
                yield f"{name.id}() in line {found.lineno}"
            if ast.unparse(name) in ("torch.load", "marshal.load", "joblib.load"):
                yield f"{ast.unparse(name)}() in line {found.lineno}"
            for keyword in found.keywords:
                allows = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg == "allow_pickle" and not allows:
                    yield f"allow_pickle in line {found.lineno}"
            continue
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"):
                yield f"import of {name} in line {found.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_no_module_runs_code_from_data(path: Path) -> None:
    assert list(unsafe(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle", "from pickle import loads", "def f():\n    eval('1')", "x = __import__('os')", "exec('')",
        "torch.load('x')", "np.load('x', allow_pickle=True)", "np.load('x', allow_pickle=flag)", "import shelve as s",
    ],
)  # fmt: skip
def test_unsafe_code_is_noticed(code: str) -> None:
    assert list(unsafe(ast.parse(code)))


@pytest.mark.parametrize("code", ["import re\nre.compile('x')", "np.load('x', allow_pickle=False)", "model.eval()"])
def test_safe_code_is_left_alone(code: str) -> None:
    assert list(unsafe(ast.parse(code))) == []


def test_data_folders_hold_no_code() -> None:
    found = [
        path for path in (ROOT / "datasets").rglob("*") if path.suffix in (".py", ".pyc", ".pkl", ".pickle", ".so")
    ]
    assert found == []


def test_help_loads_nothing_heavy() -> None:
    loaded = python(f"import sys, makespan.cli; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded.strip() == "[]"
    shown = python(
        f"""
import sys
from makespan.cli import main
sys.argv = ["makespan", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
print([name for name in {HEAVY} if name in sys.modules])
"""
    )
    assert shown.strip().splitlines()[-1] == "[]"
    assert "replay" in shown


def test_core_modules_import_alone() -> None:
    """No module of the core needs another to have been imported before it."""
    core = [name.removesuffix(".py").replace("/", ".") for name in NAMES if name.startswith("makespan/")]
    core = [name for name in core if not name.endswith(("__init__", "__main__"))]
    imported = python(
        f"""
import importlib, sys
for name in {core}:
    for known in [known for known in sys.modules if known.split(".")[0] == "makespan"]:
        del sys.modules[known]
    importlib.import_module(name)
    print(name)
"""
    )
    assert imported.split() == core
