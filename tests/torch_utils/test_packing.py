"""State of any kind survives `pack`, a file that loads with weights_only, and `unpack`."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ding_like.data import ArrayDict, namedarraytuple
from ding_like.torch_utils.checkpoint import read_file, write_file
from ding_like.torch_utils.packing import pack, unpack

Pair = namedarraytuple("Pair", ["a", "b"])


def through_file(state, path):
    write_file(path, {"format": "test", "state": pack(state)}, "file")
    return unpack(read_file(path, "test", "file")["state"])


def equal(a, b):
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(equal(dict.get(a, k), dict.get(b, k)) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a).__name__ == type(b).__name__ and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and (a == b or a != a)


dtypes = st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes())
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), arrays)
states = st.recursive(
    leaves,
    lambda s: st.one_of(
        st.lists(s, max_size=3), st.tuples(s, s), st.dictionaries(st.one_of(st.text(), st.integers()), s, max_size=3)
    ),
    max_leaves=8,
)


@given(states)
def test_every_state_comes_back_type_by_type_and_bit_by_bit(state):
    assert equal(state, unpack(pack(state)))


@given(states)
def test_also_through_a_file_that_holds_no_code_of_its_own(tmp_path_factory, state):
    assert equal(state, through_file(state, tmp_path_factory.getbasetemp() / "packed.pt"))


def test_views_read_only_arrays_and_foreign_byte_orders_come_back(tmp_path):
    frozen = np.arange(6).reshape(2, 3)
    frozen.flags.writeable = False
    state = {"t": np.arange(12).reshape(3, 4).T[1:], "f": frozen, "big": np.arange(3, dtype=">f4"), "s": np.float32(2)}
    assert equal(state, through_file(state, tmp_path / "p"))


def test_tree_nodes_generators_and_objects_come_back(tmp_path):
    state = {
        "tree": ArrayDict(x=np.ones(3), y=ArrayDict(z=np.zeros((2, 2)))),
        "pair": Pair(np.ones(2), np.zeros(3)),
        "rng": np.random.default_rng(3).bit_generator.state,
        "torch": torch.get_rng_state(),
        "names": np.array(["a", "b"]),
        "@odd": {"@array": 1},
    }
    back = through_file(state, tmp_path / "p")
    assert equal(state, back) and type(back["tree"]) is ArrayDict and back["pair"].a.sum() == 2


def test_nothing_is_copied_on_the_way_out():
    array = np.zeros((100, 10))
    packed = pack({"a": array})
    array[:] = 1
    assert unpack(packed)["a"].sum() == 1000


def test_an_object_that_cannot_be_pickled_is_named_by_its_path():
    with pytest.raises(ValueError, match=r"state\.a\[1\] is a generator, which cannot be pickled"):
        pack({"a": [0, (x for x in ())]})
