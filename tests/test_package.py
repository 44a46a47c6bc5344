"""The package as others see it: public names, version, entry points, data files."""

import importlib
import tomllib
from pathlib import Path

import pytest

import foredraft
from foredraft import proposers
from foredraft.bench.workloads import workloads

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def test_version_is_written_once():
    assert foredraft.__version__ == PROJECT["version"]


@pytest.mark.parametrize("name", foredraft.__all__)
def test_public_names_exist(name):
    assert getattr(foredraft, name).__name__ == name


def test_nothing_else_is_public():
    # Submodules become attributes when they are imported; everything else without an underscore is public.
    names = {
        name for name, value in vars(foredraft).items() if not name.startswith("_") and hasattr(value, "__module__")
    }
    assert {name for name in names if vars(foredraft)[name].__module__.startswith("foredraft")} <= set(
        foredraft.__all__
    )
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        _ = foredraft.Engine


def test_script_exists():
    module, _, name = PROJECT["scripts"]["foredraft"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_proposers_of_the_project_are_known():
    assert {"draft_model", "lookup"} <= set(proposers.known())


def test_texts_come_with_the_package():
    assert all(len(prompt.text) > 1000 for name in ("edit", "quote") for prompt in workloads()[name])
