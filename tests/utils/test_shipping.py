"""What another process cannot import goes to it by value."""

import importlib.util
import sys
import threading
import types

import pytest
import torch

from ding_like.utils import ENV_REGISTRY, shipping
from tests.helpers import python

MODULE = """
from ding_like.utils import ENV_REGISTRY

WORD = "from the module"

@ENV_REGISTRY.register("shipped_toy")
class Toy:
    def say(self):
        return WORD
"""
READ = """
import sys
from ding_like.utils import ENV_REGISTRY, shipping
value = shipping.unpickled(open("value.bin", "rb").read())
print(value().say(), ENV_REGISTRY.get("shipped_toy")().say(), "toys_of_mine" in sys.modules)
"""


@pytest.mark.system
@pytest.mark.parametrize("importable", [True, False])
def test_a_class_arrives_with_its_registration_by_reference_or_by_value(in_tmp, importable):
    """A module is by value where its name leads another process nowhere."""
    folder = in_tmp if importable else in_tmp / "elsewhere"
    folder.mkdir(exist_ok=True)
    path = folder / "toys_of_mine.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("toys_of_mine", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["toys_of_mine"] = module
    try:
        spec.loader.exec_module(module)
        assert shipping.importable(module) == importable
        (in_tmp / "value.bin").write_bytes(shipping.pickled(module.Toy, functions=[module.Toy]))
    finally:
        del sys.modules["toys_of_mine"]
    (in_tmp / "read.py").write_text(READ)
    done = python("read.py", cwd=in_tmp)
    assert done.stdout == f"from the module from the module {importable}\n", done.stderr


@pytest.mark.parametrize(
    "name, importable", [("json", True), ("sys", True), ("xml.dom", True), ("__main__", False), ("tests.helpers", True)]
)
def test_which_modules_another_process_finds(name, importable):
    __import__(name)
    assert shipping.importable(sys.modules[name]) == importable


def test_a_module_that_was_made_by_hand_is_not_found():
    assert not shipping.importable(types.ModuleType("made_by_hand"))


def test_a_name_that_is_taken_stays():
    first, second = type("A", (), {}), type("B", (), {})
    ENV_REGISTRY.register("taken", first)
    data = shipping.pickled(1)
    ENV_REGISTRY.register("taken", second, force_overwrite=True)
    assert shipping.unpickled(data) == 1 and ENV_REGISTRY.get("taken") is second


def test_only_the_kinds_that_are_asked_for_go_along():
    ENV_REGISTRY.register("unpicklable", type("A", (), {"lock": __import__("threading").Lock()}))
    with pytest.raises(TypeError, match="cannot pickle"):
        shipping.pickled(1)
    assert shipping.unpickled(shipping.pickled(1, ["policy"])) == 1


def test_the_running_script_is_hidden_only_for_a_while():
    main = sys.modules["__main__"]
    before = dict(vars(main))
    with pytest.raises(ZeroDivisionError), shipping.without_main():
        assert main.__spec__ is None and not hasattr(main, "__file__")
        raise ZeroDivisionError
    assert vars(main) == before


def test_tensors_of_another_device_go_as_those_of_the_cpu(monkeypatch):
    """The meta device stands in for a GPU: its tensors are none of the CPU's."""
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: torch.full(x.shape, 7.0))
    model = torch.nn.Sequential(torch.nn.Linear(2, 3, device="meta"), torch.nn.BatchNorm1d(3))
    model[1].weight = torch.nn.Parameter(torch.ones(3, device="meta"))
    model.register_parameter("again", model[1].weight)
    sent = shipping.unpickled(shipping.pickled(model))
    assert {x.device.type for x in sent.state_dict().values()} == {"cpu"}
    assert (sent[0].weight == 7).all() and type(sent[0].weight) is torch.nn.Parameter
    assert sent.again is sent[1].weight and sent.again.requires_grad
    assert (sent[1].running_var == 1).all()


def test_what_cannot_be_sent_is_named_with_the_reason_and_a_remedy():
    with pytest.raises(
        TypeError, match=r"worker 3: its env cannot be sent to another process \(.*lock.*\); do without"
    ):
        shipping.packed_for("worker 3", "its env", "do without", threading.Lock())
    assert shipping.unpickled(shipping.packed_for("worker 3", "its env", "do without", [1, 2])) == [1, 2]
