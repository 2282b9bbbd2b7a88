"""Resolving: names of a folder's modules, what they offer, outside code, and what is said of unknown names."""

import sys
from pathlib import Path

import pytest

from makespan.errors import MakespanError
from makespan.resolve import did_you_mean, find_module, member_names, offered, offering_names, resolve


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory):
    """A package `plugged` of four modules, and `mylab` outside of it."""
    base = tmp_path_factory.mktemp("resolve")
    files = {
        "plugged/__init__.py": "",
        "plugged/tensor_fusion.py": "from pathlib import Path\nclass TensorFusion:\n    limit = 25\n",
        "plugged/power_sgd.py": "from plugged.tensor_fusion import TensorFusion\ndef PowerSGD(): return 2\n",
        "plugged/helper.py": "def help_others(): pass\n",
        "plugged/_private.py": "raise RuntimeError('imported')\n",
        "mylab.py": "class Outer:\n    class Inner:\n        pass\n",
    }
    for name, content in files.items():
        path = base / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    sys.path.insert(0, str(base))
    yield base
    sys.path.remove(str(base))


def test_members_are_found_by_scanning(folder: Path) -> None:
    assert member_names("plugged") == ["helper", "power-sgd", "tensor-fusion"]
    assert offering_names("plugged") == ["power-sgd", "tensor-fusion"]
    later = folder / "plugged" / "written_later.py"
    later.write_text("def written_later(): return 42\n")
    try:
        assert resolve("plugged", "written-later")() == 42
    finally:
        later.unlink()


@pytest.mark.parametrize("name", ["tensor-fusion", "tensor_fusion"])
def test_hyphens_and_underscores_are_the_same(name: str) -> None:
    assert resolve("plugged", name).limit == 25
    assert find_module("plugged", name).__name__ == "plugged.tensor_fusion"


def test_a_module_offers_its_own_object_of_its_name() -> None:
    assert resolve("plugged", "power-sgd")() == 2
    assert offered(find_module("plugged", "helper")) is None


def test_outside_code_is_named_by_module_and_object() -> None:
    assert resolve("plugged", "mylab:Outer.Inner").__name__ == "Inner"
    with pytest.raises(MakespanError, match="a file may not name; give it on the command line"):
        resolve("plugged", "mylab:Outer", outside=False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tensor-fussion", r"plugged has no 'tensor-fussion'; did you mean 'tensor-fusion'\?"),
        ("zzz", r"has no 'zzz'; expected one of power-sgd, tensor-fusion"),
        ("_private", "plugged has no '_private'"),
        ("../tensor-fusion", "has no '../tensor-fusion'"),
        ("", "plugged has no ''"),
        ("helper", "plugged's module 'helper' offers nothing by itself; expected one of power-sgd, tensor-fusion"),
        ("mylab:Outr", r"mylab has no Outr; did you mean 'Outer'\?"),
        ("mylab:", "expected package.module:Name"),
        ("mylab:__import__('os')", "expected package.module:Name"),
        (":x", "expected package.module:Name"),
        ("no.such:Thing", r"module no.such can't be imported"),
    ],
)
def test_unknown_names_are_told(name: str, told: str) -> None:
    with pytest.raises(MakespanError, match=told):
        resolve("plugged", name)


def test_did_you_mean_ends_a_sentence() -> None:
    assert did_you_mean("abuot", ["about", "above"]) == "; did you mean 'about'?"
    assert did_you_mean("x", ["b", "a"]) == "; expected one of a, b"
    assert did_you_mean("x", []) == "; there is none to choose from"
