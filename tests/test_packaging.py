"""What is built and installed: real files behind the links, the data, the rules that guard the layout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
ENGINES = ("simulator", "predictors", "optimizers", "runtime")
LINKS = (*ENGINES, "datasets")
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def run(*command: str | Path, cwd: Path = Path("/"), check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing inherited that could lead Python to this checkout."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip
    if check and done.returncode:
        pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


def copy_checkout(target: Path) -> Path:
    """Copy the files that a build needs, links as links: a build writes into its source folder."""
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            target.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    for name in ("makespan", *LINKS):
        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignore)
    return target


def build(kind: str, source: Path, target: Path) -> Path:
    """Call the hook of the build backend that pip would call, and return what it built."""
    target.mkdir(exist_ok=True)
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    run(sys.executable, "-c", code, target, cwd=source)
    (built,) = target.iterdir()
    return built


class Built(NamedTuple):
    source: Path
    wheel: Path
    sdist: Path
    editable: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    base = tmp_path_factory.mktemp("packaging")
    source = copy_checkout(base / "source")
    kinds = ("wheel", "sdist", "editable")
    return Built(source, *(build(kind, source, base / kind) for kind in kinds))


def install(package: Path, folder: Path) -> Path:
    """Install one built file into a new environment and return that environment's Python.

    The packages of the running environment are on its path as well, but not by way of their .pth
    files; so an editable install of this checkout is not seen.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", package)
    (own,) = (folder / "lib").glob("python*/site-packages")
    (own / "outer.pth").write_text(f"{SITE_PACKAGES}\n")
    return python


def files_below(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and "__pycache__" not in path.parts
    }


def expected_files(source: Path) -> set[str]:
    """Return every file that users must get, with the links followed."""
    expected = {f"makespan/{name}" for name in files_below(source / "makespan") if "/" not in name}
    for folder in LINKS:
        expected |= {f"makespan/{folder}/{name}" for name in files_below(source / folder)}
    return expected


@pytest.mark.parametrize("name", LINKS)
def test_links_are_relative_and_lead_to_a_folder(name: str) -> None:
    link = ROOT / "makespan" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert (ROOT / name).is_dir()
    assert not (ROOT / name).is_symlink()


def test_datasets_holds_no_python_file() -> None:
    assert [path for path in (ROOT / "datasets").rglob("*.py*") if path.is_file()] == []


def test_wheel_holds_every_file_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        infos = [info for info in archive.infolist() if ".dist-info/" not in info.filename]
    names = {info.filename for info in infos}
    assert names == expected_files(built.source)
    assert {"makespan/simulator/__init__.py", "makespan/datasets/README.md", "makespan/py.typed"} <= names
    # The upper half of the attributes is the Unix mode; 0o120000 is a link.
    assert [info.filename for info in infos if (info.external_attr >> 16) & 0o170000 == 0o120000] == []


def test_sdist_holds_real_files_and_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
        archive.extractall(tmp_path, filter="data")
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    (unpacked,) = tmp_path.iterdir()
    assert (unpacked / "makespan/simulator/__init__.py").read_bytes() == (ROOT / "simulator/__init__.py").read_bytes()
    again = build("wheel", unpacked, tmp_path / "wheel")
    with zipfile.ZipFile(built.wheel) as first, zipfile.ZipFile(again) as second:
        assert set(first.namelist()) == set(second.namelist())


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_installed_package_works_far_from_the_checkout(kind: str, built: Built, tmp_path: Path) -> None:
    python = install(getattr(built, kind), tmp_path / "env")
    code = f"""
import importlib, importlib.resources, importlib.util
for engine in {ENGINES}:
    print(importlib.import_module("makespan." + engine).__file__)
    assert importlib.util.find_spec(engine) is None, engine + " is importable without makespan"
data = importlib.resources.files("makespan") / "datasets"
assert (data / "README.md").read_text().startswith("# Data")
print(data)
"""
    places = run(python, "-c", code).stdout.split()
    home = {"wheel": tmp_path / "env" / "lib", "editable": built.source / "makespan"}[kind]
    assert len(places) == len(LINKS)
    assert [place for place in places if not place.startswith(str(home))] == []
    assert (python.parent / "makespan").exists(), "the makespan command is missing"


def test_editable_install_sees_a_new_module(built: Built, tmp_path: Path) -> None:
    python = install(built.editable, tmp_path / "env")
    new = built.source / "optimizers" / "written_later.py"
    new.write_text("ANSWER = 42\n")
    try:
        code = "from makespan.optimizers.written_later import ANSWER; print(ANSWER)"
        assert run(python, "-c", code).stdout.strip() == "42"
    finally:
        new.unlink()


def test_types_are_checked_behind_every_link() -> None:
    """The type checker does not follow links by itself, so a missing entry would pass silently."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(settings["tool"]["basedpyright"]["include"]) == {"makespan"} | {f"makespan/{e}" for e in ENGINES}


def ruff(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise",
         "--stdin-filename", "experiments/example.py", "-"],
        cwd=ROOT, input=code, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_lint_bans_the_bare_folder_name(engine: str) -> None:
    for statement in (f"import {engine}", f"import {engine}.part", f"from {engine}.part import name"):
        found = ruff(f'"""Example."""\n\n{statement}\n').stdout
        assert f"TID251 `{engine}` is banned: import makespan.{engine}" in found, statement
    assert "TID251" not in ruff(f'"""Example."""\n\nimport makespan.{engine}\n').stdout


@pytest.fixture
def empty_packages(tmp_path: Path) -> Path:
    """Lay out the real import contracts beside packages that import nothing."""
    shutil.copy2(ROOT / "setup.cfg", tmp_path)
    for folder in ("makespan", *ENGINES):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    for engine in ENGINES:
        (tmp_path / "makespan" / engine).symlink_to(f"../{engine}")
    for module in ("graph", "api", "cli", "jobs", "planning"):
        (tmp_path / "makespan" / f"{module}.py").touch()
    return tmp_path


def broken_contracts(folder: Path) -> set[str]:
    command = Path(sys.executable).with_name("lint-imports")
    done = run(command, "--no-cache", cwd=folder, check=False)
    verdicts = [line.strip() for line in done.stdout.splitlines() if line.strip().endswith((" KEPT", " BROKEN"))]
    assert len(verdicts) == 4, done.stdout
    assert done.returncode == any(line.endswith(" BROKEN") for line in verdicts)
    return {line.removesuffix(" BROKEN") for line in verdicts if line.endswith(" BROKEN")}


INDEPENDENT = "The four engines do not know each other"
COMPOSED = "Only the composition root imports an engine"
ENGINE_BELOW = "No engine imports the composition root"
CORE_BELOW = "No core module imports the composition root"


@pytest.mark.parametrize(
    ("module", "statement", "broken"),
    [
        ("simulator/part.py", "from makespan.graph import Graph", set()),
        ("makespan/api.py", "import makespan.simulator", set()),
        ("makespan/__init__.py", "from makespan.api import replay", set()),
        ("simulator/part.py", "import makespan.predictors", {INDEPENDENT, COMPOSED}),
        ("makespan/graph.py", "from makespan.runtime import part", {COMPOSED}),
        ("makespan/written_later.py", "import makespan.optimizers", {COMPOSED}),
        ("runtime/part.py", "import makespan.api", {ENGINE_BELOW, CORE_BELOW}),
        ("makespan/graph.py", "from makespan import cli", {CORE_BELOW}),
    ],
)
def test_import_contracts(module: str, statement: str, broken: set[str], empty_packages: Path) -> None:
    """What each contract lets pass and what it catches; `make contracts` runs them on the real code."""
    (empty_packages / module).write_text(f"{statement}\n")
    assert broken_contracts(empty_packages) == broken


def test_engines_may_not_reach_each_other_through_the_package_itself(empty_packages: Path) -> None:
    (empty_packages / "makespan/__init__.py").write_text("from makespan.api import replay\n")
    (empty_packages / "makespan/api.py").write_text("import makespan.predictors\n")
    (empty_packages / "simulator/part.py").write_text("from makespan import replay\n")
    assert broken_contracts(empty_packages) == {INDEPENDENT, ENGINE_BELOW}
