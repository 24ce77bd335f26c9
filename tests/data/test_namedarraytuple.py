"""`namedarraytuple`: closed fields, indexing of all leaves, schemas that travel between processes."""

import copy
import multiprocessing
import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch

from ding_like.data import (
    NamedArrayTupleSchema,
    buffer_from_example,
    dict_to_namedarraytuple,
    namedarraytuple,
    namedarraytuple_like,
    namedarraytuple_to_dict,
    numpify,
    torchify,
    tree_leaves,
)

Obs = namedarraytuple("Obs", "image, speed")
Step = namedarraytuple("Step", ["obs", "reward", "state"])


def step(rows: int = 4) -> Step:
    return Step(Obs(np.arange(rows * 2.0).reshape(rows, 2), np.arange(rows)), np.arange(rows) * 0.5, None)


def test_fields_are_read_by_attribute_position_and_name():
    s = step()
    assert s.get(1) is s.reward is s["reward"] and s.get(-1) is None
    assert "reward" in s and "speed" not in s and 0.5 not in s
    assert [name for name, _ in s.items()] == list(s.keys()) == ["obs", "reward", "state"]
    with pytest.raises(KeyError, match=r"no field 'rewrd' in Step: fields are \['obs', 'reward', 'state'\]"):
        s["rewrd"]


def test_as_a_tuple_it_goes_over_fields():
    s = step()
    obs, reward, state = s
    assert len(s) == 3 and isinstance(s, tuple) and obs is s.obs and reward is s.reward and state is None
    assert s._replace(reward=1).reward == 1 and list(s._asdict()) == list(Step._fields)


@pytest.mark.parametrize("key", [0, slice(1, 3), [3, 1], np.arange(4) > 1, (slice(0, 2),)])
def test_reads_index_every_leaf_and_leave_none(key):
    part = step()[key]
    assert type(part) is Step and type(part.obs) is Obs and part.state is None
    np.testing.assert_array_equal(part.obs.image, step().obs.image[key])
    np.testing.assert_array_equal(part.reward, step().reward[key])


def test_slices_are_views():
    s = step()
    s[1:3].obs.image[:] = -1
    assert (s.obs.image[1:3] == -1).all()


def test_writes_take_the_same_structure_a_plain_tuple_or_anything_that_broadcasts():
    s = step()
    s[0] = Step(Obs(np.array([7.0, 8.0]), 9), 1.5, None)
    s[1] = (Obs(np.array([5.0, 6.0]), 4), 2.5, "skipped: the destination is None")
    s[2:] = 0
    np.testing.assert_array_equal(s.obs.image, [[7, 8], [5, 6], [0, 0], [0, 0]])
    np.testing.assert_array_equal(s.obs.speed, [9, 4, 0, 0])
    np.testing.assert_array_equal(s.reward, [1.5, 2.5, 0, 0])
    s[1:3] = s[0]
    np.testing.assert_array_equal(s.reward, [1.5, 1.5, 1.5, 0])


def test_errors_name_the_nested_field():
    with pytest.raises(IndexError, match=r"in field 'obs'.*in field 'image'"):
        step()[9]
    with pytest.raises(ValueError, match=r"in field 'obs'.*in field 'image'"):
        step()[0] = Step(Obs(np.zeros(3), 0), 0.0, None)
    with pytest.raises(TypeError, match="_replace"):
        step()["reward"] = 1


def test_torch_leaves_read_and_write_alike():
    s = torchify(step())
    s[1] = Step(Obs(torch.tensor([7.0, 8.0]), 3), -1.0, None)
    assert s[1].obs.image.tolist() == [7, 8] and s.reward[1] == -1 and s[[0, 1]].obs.speed.tolist() == [0, 3]


def test_numpy_and_torch_share_memory():
    s = step()
    t = torchify(s)
    assert type(t) is Step and type(t.obs) is Obs and t.state is None
    assert [x.data_ptr() for x in tree_leaves(t)] == [x.ctypes.data for x in tree_leaves(s)]
    assert [x.ctypes.data for x in tree_leaves(numpify(t))] == [x.data_ptr() for x in tree_leaves(t)]


def test_a_buffer_is_built_from_one_row():
    buffer = buffer_from_example(step()[0], (6, 2))
    assert type(buffer) is Step and buffer.state is None
    assert buffer.obs.image.shape == (6, 2, 2) and buffer.obs.speed.dtype == step().obs.speed.dtype
    buffer[3, 1] = step()[2]
    np.testing.assert_array_equal(buffer[3, 1].obs.image, [4, 5])


def test_the_same_name_and_fields_are_the_same_type():
    assert namedarraytuple("Obs", ["image", "speed"]) is Obs
    assert namedarraytuple("Obs", ["speed", "image"]) is not Obs


@pytest.mark.parametrize("name", ["get", "items", "keys", "index", "count"])
def test_reserved_fields_are_refused(name):
    with pytest.raises(ValueError, match=f"'{name}'"):
        namedarraytuple("Bad", ["fine", name])


def test_like_takes_fields_from_an_example_value_type_or_dictionary():
    plain = namedtuple("Plain", ["a", "b"])
    for example in (plain(1, 2), plain):
        made = namedarraytuple_like(example)
        assert made.__name__ == "Plain" and made._fields == ("a", "b")
    assert namedarraytuple_like(step()) is Step
    assert namedarraytuple_like({"a": 1}, "Made")._fields == ("a",)
    with pytest.raises(TypeError, match="list"):
        namedarraytuple_like([1])


def test_dictionaries_convert_both_ways():
    nested = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    made = dict_to_namedarraytuple(nested, "Fields")
    assert made.a.c.d == 2 and type(made.a).__name__ == "Fields_a"
    assert namedarraytuple_to_dict(made) == nested


def test_schema_makes_values_of_its_layout():
    schema = NamedArrayTupleSchema("Layout", ["x", "y"])
    value = schema(np.zeros(3), y=np.ones(3))
    assert value[1].y == 1 and schema._make([1, 2]).y == 2 and schema._fields == ("x", "y")
    assert schema == NamedArrayTupleSchema("Layout", "x y") != NamedArrayTupleSchema("Layout", "y x")
    assert pickle.loads(pickle.dumps(schema)) == schema and "Layout" in repr(schema)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_pickle_and_deepcopy_keep_type_and_content(clone):
    s = clone(step())
    assert type(s) is Step and type(s.obs) is Obs and s.state is None
    np.testing.assert_array_equal(s.obs.image, step().obs.image)


def _double(pipe) -> None:
    schema, value = pipe.recv()
    pipe.send((type(value).__name__, value._fields, schema(*(2 * leaf for leaf in value))))


@pytest.mark.system
def test_a_type_made_at_run_time_travels_to_a_spawned_process_and_back():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_double, args=(there,), daemon=True)
    process.start()
    schema = NamedArrayTupleSchema("MadeAtRunTime", ["p", "q"])
    here.send((schema, schema(np.arange(3), np.ones(2))))
    assert here.poll(20), "the spawned process did not answer"
    name, fields, value = here.recv()
    process.join(10)
    assert (name, fields, process.exitcode) == ("MadeAtRunTime", ("p", "q"), 0)
    assert type(value) is type(schema(0, 0)) and value.p.tolist() == [0, 2, 4]
