"""Tree functions: structure kept, every leaf reached, errors that name the field."""

import numpy as np
import pytest
import torch

from ding_like.data import (
    ArrayDict,
    Infos,
    buffer_from_example,
    leading_shape,
    namedarraytuple,
    numpify,
    torchify,
    tree_cat,
    tree_index,
    tree_leaves,
    tree_map,
    tree_paths,
    tree_stack,
    tree_write,
)

Pair = namedarraytuple("Pair", ["left", "right"])


def mixed():
    """One of every node: ArrayDict, dict, named tuple, plain tuple, None."""
    a = np.arange(6.0).reshape(3, 2)
    return ArrayDict(a=a, b={"c": a + 10}, d=Pair(a + 20, None), e=(a + 30, a + 40), f=None)


def test_map_keeps_every_node_type_and_reaches_every_leaf():
    out = tree_map(lambda x: x * 2, mixed())
    raw = dict(dict.items(out))
    assert [type(out), type(raw["b"]), type(raw["d"]), type(raw["e"])] == [ArrayDict, dict, Pair, tuple]
    assert out["f"] is None and out["d"].right is None
    assert [x[0, 0] for x in tree_leaves(out)] == [0, 20, 40, 60, 80]


def test_map_over_several_trees_checks_their_structure():
    assert tree_map(lambda x, y: x + y, {"a": 1, "b": (2,)}, {"a": 10, "b": (20,)}) == {"a": 11, "b": (22,)}
    with pytest.raises(ValueError, match=r"\['a'\] against \['b'\]"):
        tree_map(lambda x, y: x, {"a": 1}, {"b": 1})
    with pytest.raises(ValueError, match="tuple of 1"):
        tree_map(lambda x, y: x, (1,), (1, 2))


def test_paths_are_dotted_and_name_tuple_fields():
    assert [path for path, _ in tree_paths(mixed())] == ["a", "b.c", "d.left", "e.0", "e.1"]


@pytest.mark.parametrize("key", [1, slice(1, 3), [2, 0], np.array([True, False, True]), (slice(None), 0), (1, 1)])
def test_index_equals_indexing_each_leaf(key):
    for leaf, whole in zip(tree_leaves(tree_index(mixed(), key)), tree_leaves(mixed())):
        np.testing.assert_array_equal(leaf, whole[key])


def test_write_puts_a_tree_into_every_leaf_in_place():
    tree = mixed()
    leaves = tree_leaves(tree)
    tree_write(tree, 1, tree_index(tree_map(lambda x: -x, mixed()), 1))
    for leaf, old in zip(leaves, tree_leaves(mixed())):
        np.testing.assert_array_equal(leaf, [old[0], -old[1], old[2]])


def test_write_broadcasts_a_scalar_and_a_row():
    tree = mixed()
    tree_write(tree, slice(0, 2), 7)
    tree_write(tree, 2, np.array([8.0, 9.0]))
    for leaf in tree_leaves(tree):
        np.testing.assert_array_equal(leaf, [[7, 7], [7, 7], [8, 9]])


def test_write_errors_name_the_field():
    with pytest.raises(KeyError, match="'c' is missing"):
        tree_write({"a": {"c": np.zeros(2)}}, 0, {"a": {"x": 1}})
    with pytest.raises(ValueError, match=r"in field 'a'.*in field 'c'"):
        tree_write({"a": {"c": np.zeros((2, 3))}}, 0, {"a": {"c": np.zeros(4)}})
    with pytest.raises(TypeError, match="in field 'a': got None"):
        tree_write({"a": np.zeros(2)}, 0, {"a": None})
    with pytest.raises(ValueError, match="2 fields into 1"):
        tree_write((np.zeros(2),), 0, (1, 2))


@pytest.mark.parametrize("convert", [lambda t: t, torchify])
def test_stack_and_cat_join_leaves_of_both_kinds(convert):
    one, two = convert(mixed()), convert(tree_map(lambda x: x + 1, mixed()))
    for join, reference in ((tree_stack, np.stack), (tree_cat, np.concatenate)):
        for axis in (0, 1):
            out = join([one, two], axis)
            assert type(tree_leaves(out)[0]) is type(tree_leaves(one)[0]) and out["f"] is None
            for leaf, a, b in zip(tree_leaves(out), tree_leaves(one), tree_leaves(two)):
                np.testing.assert_array_equal(leaf, reference([np.asarray(a), np.asarray(b)], axis))


def test_leading_shape_reads_the_first_array():
    assert leading_shape(mixed()) == (3,) and leading_shape(mixed(), 2) == (3, 2)
    assert leading_shape({"info": Infos(({},)), "x": np.zeros(4)}) == (4,)
    with pytest.raises(ValueError, match="no array"):
        leading_shape({"a": None})


def test_buffer_takes_shape_dtype_and_structure_from_one_step():
    example = ArrayDict(
        obs={"image": np.ones((2, 3), np.uint8), "flag": True},
        reward=1.5,
        action=torch.tensor([1, 2]),
        extra=None,
    )
    buffer = buffer_from_example(example, (5, 4))
    shapes = {path: (leaf.shape, leaf.dtype) for path, leaf in tree_paths(buffer)}
    assert shapes == {
        "obs.image": ((5, 4, 2, 3), np.uint8),
        "obs.flag": ((5, 4), np.bool_),
        "reward": ((5, 4), np.float64),
        "action": ((5, 4, 2), np.int64),
    }
    assert buffer["extra"] is None and all(not leaf.any() for leaf in tree_leaves(buffer))
    assert buffer_from_example(np.float32(1), 3).shape == (3,)
    with pytest.raises(TypeError, match="object"):
        buffer_from_example({"a": object()}, 2)


def test_numpy_and_torch_share_memory_both_ways():
    tree = mixed()
    tensors = torchify(tree)
    for a, t in zip(tree_leaves(tree), tree_leaves(tensors)):
        assert isinstance(t, torch.Tensor) and t.data_ptr() == a.ctypes.data
    for a, t in zip(tree_leaves(numpify(tensors)), tree_leaves(tensors)):
        assert isinstance(a, np.ndarray) and a.ctypes.data == t.data_ptr()
    tensors["a"][0] = 99
    assert tree["a"][0, 0] == 99
    assert torchify({"s": "text"}) == {"s": "text"}


def test_a_read_only_array_becomes_a_tensor_of_its_own():
    a = np.zeros(2)
    a.flags.writeable = False
    torchify({"a": a})["a"][0] = 1
    assert a[0] == 0


def test_infos_are_one_leaf():
    infos = Infos(({"k": 0}, {"k": 1}, {"k": 2}))
    assert tree_leaves({"info": infos}) == [infos]
    assert infos[1] == {"k": 1} and type(infos[:2]) is Infos and infos[[2, 0]] == ({"k": 2}, {"k": 0})
    assert infos[np.array([False, True, False])] == ({"k": 1},)
