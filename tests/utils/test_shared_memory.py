"""Arrays that several processes see: the same bits on both sides, nothing left behind."""

import errno
import gc
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ding_like.data import ArrayDict, namedarraytuple, tree_leaves, tree_map, tree_paths
from ding_like.utils import shared_memory
from ding_like.utils.child import Child
from ding_like.utils.shared_memory import ALIGN, ArraySpec, SharedTree, send_fd, spec_of
from tests.utils.children import add_one

Pair = namedarraytuple("Pair", ["left", "right"])


def tree():
    """Every kind of node, leaves of odd sizes, one of them without an element."""
    return ArrayDict(
        a=np.zeros((3, 5), np.uint8),
        b={"c": np.zeros((3, 2), np.float64), "d": np.zeros((3,), bool)},
        e=Pair(np.zeros((3, 7), np.int16), None),
        f=(np.zeros((3, 0), np.float32), np.float32(1.5)),
    )


def test_a_spec_replaces_the_leading_axes_and_keeps_the_rest():
    spec = spec_of({"x": np.zeros((4, 2), np.int8), "y": np.float32(0)}, (7, 3), skip=0)
    assert spec == {"x": ArraySpec((7, 3, 4, 2), "|i1"), "y": ArraySpec((7, 3), "<f4")}
    assert spec_of(np.zeros((4, 2)), (7,), skip=1) == ArraySpec((7, 2), "<f8")
    assert ArraySpec((7, 3), "<f4").nbytes == 84 and ArraySpec((), "<f8").nbytes == 8


@pytest.mark.parametrize("leaf", [object(), "text", [None]])
def test_a_leaf_without_numbers_is_an_error(leaf):
    with pytest.raises(TypeError, match=r"cannot share a field of type (object|str|list)"):
        spec_of({"x": leaf})


def test_the_tree_has_the_structure_and_starts_at_zero():
    shared = SharedTree(spec_of(tree()))
    like = tree()
    assert [(p, x.shape, x.dtype) for p, x in tree_paths(shared.tree)] == [
        (p, np.shape(x), np.asarray(x).dtype) for p, x in tree_paths(like)
    ]
    assert type(shared.tree) is ArrayDict and type(shared.tree["e"]) is Pair
    assert all((leaf == 0).all() and leaf.flags.writeable for leaf in tree_leaves(shared.tree))
    shared.close()


@given(st.lists(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)), max_size=6))
def test_what_is_written_to_a_leaf_stays_in_it(arrays):
    """Leaves do not overlap and start at cache lines; a second mapping sees the same bits."""
    arrays = tuple(a for a in arrays if a.dtype.kind in "biufc")
    shared = SharedTree(spec_of(arrays))
    other = SharedTree(shared.spec, os.dup(shared.fd))
    for leaf, array in zip(tree_leaves(shared.tree), arrays):
        leaf[...] = array
        assert leaf.ctypes.data % ALIGN == 0 or leaf.size == 0
    assert [leaf.tobytes() for leaf in tree_leaves(other.tree)] == [array.tobytes() for array in arrays]
    shared.close()
    other.close()


def test_two_processes_see_what_each_other_writes():
    shared = SharedTree(spec_of(tree()))
    tree_map(lambda leaf: leaf.fill(1), shared.tree)
    child = Child("worker 0", add_one)
    child.send("share", shared.spec)
    send_fd(child.conn, shared.fd, child.pid)
    assert child.recv(20)[0] == "added"
    child.close()
    assert all((leaf == 2).all() for leaf in tree_leaves(shared.tree) if leaf.dtype != bool)
    shared.close()


def test_the_arrays_outlive_the_tree_and_its_descriptor():
    files = len(os.listdir("/proc/self/fd"))
    shared = SharedTree(spec_of({"x": np.zeros((2, 2))}))
    x = shared.tree["x"][1:]
    shared.close()
    shared.close()
    del shared
    gc.collect()
    x[:] = 3
    assert x.tolist() == [[3, 3]]
    del x
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_lack_of_memory_is_told_before_it_is_taken(monkeypatch):
    """Never with a size that there truly is not: the kernel would kill other programs first."""
    assert 2**20 < shared_memory._free_memory() < 2**50
    monkeypatch.setattr(shared_memory, "_free_memory", lambda: 3 * 2**20)
    files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MemoryError, match=r"cannot share 4\.0 MiB between processes: 3\.0 MiB are free"):
        SharedTree(ArraySpec((4 << 20,), "|u1"))
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(MemoryError, match=r"cannot share 2\.0 MiB between processes: .*No space"):
        SharedTree(ArraySpec((2 << 20,), "|u1"))
    assert len(os.listdir("/proc/self/fd")) == files


def refuse(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_segment_without_memfd_works_the_same(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = SharedTree(spec_of(tree()))
    shared.tree["a"][:] = 7
    other = SharedTree(shared.spec, os.dup(shared.fd))
    assert (other.tree["a"] == 7).all()
    shared.close()
    other.close()
