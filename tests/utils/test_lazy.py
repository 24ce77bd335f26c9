"""Names of packages that load on first use."""

import importlib
import subprocess
import sys

import pytest

from ding_like.utils.lazy import lazy_names
from tests.helpers import ROOT


def test_a_name_comes_from_its_home_and_an_unknown_one_is_an_attribute_error():
    get = lazy_names("here", {"sqrt": "math"})
    assert get("sqrt")(9.0) == 3.0
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'sqr'"):
        get("sqr")


@pytest.mark.parametrize("name", ["rl_utils", "utils", "model", "policy"])
def test_every_name_that_a_package_offers_exists(name):
    package = importlib.import_module(f"ding_like.{name}")
    assert [public for public in package.__all__ if not hasattr(package, public)] == []


def test_helpers_that_need_no_torch_load_none():
    code = "import sys, ding_like.rl_utils; from ding_like.utils import list_split; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
