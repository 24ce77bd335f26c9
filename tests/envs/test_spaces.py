import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import check_obs, model_shapes
from ding_like.envs.spaces import buffer_dtype, obs_batch, obs_spec, to_gymnasium

BOX = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 8, 8), np.uint8)


@pytest.mark.parametrize(
    "space, spec",
    [
        (BOX, 3),
        (IMAGE, [4, 8, 8]),
        (spaces.Discrete(5), {"@one_hot": [5]}),
        (spaces.MultiDiscrete([2, 3]), {"@one_hot": [2, 3]}),
        (spaces.MultiBinary(6), 6),
        (spaces.MultiBinary([2, 3]), [2, 3]),
        (spaces.Dict({"a": BOX, "b": spaces.Dict({"c": IMAGE})}), {"a": 3, "b": {"c": [4, 8, 8]}}),
        (spaces.Tuple((BOX, spaces.Discrete(2))), {"@tuple": [3, {"@one_hot": [2]}]}),
    ],
)
def test_model_is_told_plain_numbers_of_every_observation_space(space, spec):
    assert model_shapes(space, spaces.Discrete(2)) == (spec, 2)


@pytest.mark.parametrize(
    "space, spec",
    [
        (spaces.Discrete(4), 4),
        (spaces.MultiDiscrete([2, 3]), [2, 3]),
        (BOX, 3),
        (spaces.Box(0, 1, (2, 2)), [2, 2]),
    ],
)
def test_model_is_told_of_every_action_space(space, spec):
    assert model_shapes(BOX, space)[1] == spec


@pytest.mark.parametrize(
    "space, words",
    [
        (
            spaces.Dict({"image": IMAGE, "mission": spaces.Text(9)}),
            ["obs.mission", "Text", "drop=['mission']"],
        ),
        (spaces.Tuple((spaces.Sequence(BOX),)), ["obs.0", "Sequence", "fixed length"]),
        (spaces.Box(0, 1, ()), ["obs", "(1,)"]),
        (spaces.Text(9), ["obs is a Text space", "encode it as numbers"]),
    ],
)
def test_space_that_cannot_be_batched_is_named_with_what_to_do(space, words):
    with pytest.raises(TypeError) as error:
        model_shapes(space, spaces.Discrete(2))
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    "space",
    [spaces.Text(9), spaces.Tuple((BOX, spaces.Text(9))), spaces.Dict({"a": spaces.Dict({"b": spaces.Text(9)})})],
)
def test_select_obs_is_proposed_only_where_it_can_drop_the_entry(space):
    with pytest.raises(TypeError, match=r"encode it as numbers in the env$"):
        model_shapes(space, spaces.Discrete(2))


def test_unserved_action_space_is_named():
    with pytest.raises(TypeError, match="MultiBinary"):
        model_shapes(BOX, spaces.MultiBinary([2, 3]))


def test_binary_actions_are_actions_of_two_choices():
    assert model_shapes(BOX, spaces.MultiBinary(3))[1] == [2, 2, 2]


@pytest.mark.parametrize(
    "given, kept", [("float64", "float32"), ("float32", "float32"), ("uint8", "uint8"), ("bool", "bool")]
)
def test_only_float64_changes_its_dtype(given, kept):
    assert buffer_dtype(given) == np.dtype(kept)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple"])
def test_spaces_of_gym_become_those_of_gymnasium(name):
    old = pytest.importorskip("gym").spaces
    both = [
        {
            "Box": s.Box(0, 255, (2, 2), np.uint8),
            "Discrete": s.Discrete(3, start=1),
            "MultiDiscrete": s.MultiDiscrete([2, 3]),
            "MultiBinary": s.MultiBinary(4),
            "Dict": s.Dict({"a": s.Discrete(2)}),
            "Tuple": s.Tuple((s.Discrete(2), s.Discrete(3))),
        }[name]
        for s in (old, spaces)
    ]
    assert to_gymnasium(both[0]) == both[1]


def test_foreign_space_of_unknown_kind_is_named():
    class Weird:
        pass

    with pytest.raises(TypeError, match=r"Weird; wanted a Box"):
        to_gymnasium(Weird())


@pytest.mark.parametrize(
    "space, obs, message",
    [
        (BOX, np.zeros(4, np.float32), r"obs has shape \(4,\); wanted \(3,\)"),
        (BOX, [0.0, 0.0, 0.0], "obs is a list; wanted a numpy array"),
        (IMAGE, np.zeros((4, 8, 8), np.float32), "dtype float32 where its space says uint8"),
        (spaces.Dict({"a": BOX}), np.zeros(3), "wanted a dict"),
        (spaces.Dict({"a": BOX}), {"b": np.zeros(3)}, r"keys \['b'\]; wanted \['a'\]"),
        (spaces.Dict({"a": BOX}), {"a": np.zeros(2, np.float32)}, r"obs\.a has shape \(2,\)"),
        (spaces.Tuple((BOX, BOX)), (np.zeros(3),), "tuple of 1; wanted a tuple of 2"),
        (spaces.Discrete(3), 0.5, "dtype float64"),
        (spaces.Discrete(3), None, "obs is a NoneType; wanted a number"),
    ],
)
def test_wrong_observation_is_named(space, obs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        check_obs(space, obs)


@pytest.mark.parametrize(
    "space, obs",
    [(BOX, np.zeros(3)), (spaces.Discrete(3), 2), (spaces.Discrete(3), np.array(1)), (IMAGE, IMAGE.sample())],
)
def test_right_observation_passes(space, obs):
    check_obs(space, obs)


def test_batch_keeps_structure_and_values():
    space = spaces.Dict({"a": spaces.Tuple((BOX, spaces.Discrete(4))), "b": IMAGE})
    batch = obs_batch(space)
    rows, tree = [space.sample() for _ in range(3)], batch.empty(3)
    for b, obs in enumerate(rows):
        batch.write(tree, b, obs)
    assert tree["b"].shape == (3, 4, 8, 8) and tree["b"].dtype == np.uint8
    for b, obs in enumerate(rows):
        np.testing.assert_array_equal(tree["a"][0][b], obs["a"][0])
        assert tree["a"][1][b] == obs["a"][1]


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (spaces.Box(0, 1, (0,)), r"obs is an empty Box space of shape \(0,\)"),
        (spaces.Dict({"a": spaces.Dict({})}), r"obs\.a is an empty Dict space"),
        (spaces.Tuple(()), "obs is an empty Tuple space"),
    ],
)
def test_an_empty_observation_space_is_named(space, says):
    with pytest.raises(TypeError, match=says):
        obs_spec(space)
