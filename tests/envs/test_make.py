import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import DingEnvWrapper, make_env, make_env_fns
from ding_like.utils import ENV_REGISTRY, UnknownNameError
from tests.envs.toys import Count, CountDict, DICount, OldCount


class OfConfig(Count):
    def __init__(self, cfg):
        super().__init__(cfg.get("n", 3))
        self.cfg = cfg


@pytest.fixture
def registered():
    for name, cls in {"toy_count": Count, "toy_di": DICount, "toy_cfg": OfConfig}.items():
        ENV_REGISTRY.register(name, cls, force_overwrite=True)
    yield
    for name in ("toy_count", "toy_di", "toy_cfg"):
        del ENV_REGISTRY._entries[name]


@pytest.mark.parametrize(
    "cfg, env_id",
    [
        ({"type": "CartPole-v1"}, "CartPole-v1"),
        ({"env_id": "CartPole-v1"}, "CartPole-v1"),
        ({"type": "classic_control", "env_id": "CartPole-v1"}, "CartPole-v1"),
        ({"type": "gymnasium.envs.classic_control:CartPole-v1"}, "CartPole-v1"),
    ],
)
def test_gymnasium_ids_are_made_with_no_wrapper_file(cfg, env_id):
    env = make_env(cfg)
    assert env.spec.id == env_id
    env.reset(seed=0)
    env.close()


@pytest.mark.system
@pytest.mark.parametrize(
    "cfg, env_id, module",
    [
        ({"type": "MinAtar/Breakout-v1"}, "MinAtar/Breakout-v1", "minatar"),
        ({"type": "atari", "env_id": "PongNoFrameskip-v4"}, "PongNoFrameskip-v4", "ale_py"),
    ],
)
def test_ids_of_other_packages_need_no_import_names(cfg, env_id, module):
    pytest.importorskip(module)
    env = make_env(cfg)
    assert env.spec.id == env_id
    env.reset(seed=0)
    env.close()


@pytest.mark.parametrize(
    "cfg, words",
    [
        ({"type": "CartPol-v1"}, ["CartPol-v1", "Did you mean 'CartPole-v1'", "env.import_names"]),
        ({"type": "CartPole-v9"}, ["CartPole-v9", "v1"]),
        ({"type": "toy_cont"}, ["toy_count"]),
        ({"type": "gym", "env_id": "Acrobo-v1"}, ["Acrobot-v1"]),
    ],
)
def test_unknown_env_is_named_with_the_nearest_before_any_is_made(cfg, words, registered):
    with pytest.raises(UnknownNameError) as error:
        make_env_fns(cfg, 2)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    "cfg, message",
    [
        ({}, "name a registered env or a Gymnasium id"),
        ({"type": "cartpole"}, "env.env_id is None"),
        ({"type": "CartPole-v1", "env_id": "Acrobot-v1"}, "give one of them"),
    ],
)
def test_unclear_choice_of_env_is_an_error(cfg, message):
    with pytest.raises(ValueError, match=message):
        make_env(cfg)


def test_missing_module_and_missing_package_are_named(monkeypatch):
    with pytest.raises(ImportError, match="import_names entry 'no_such_module'"):
        make_env({"type": "CartPole-v1", "import_names": ["no_such_module"]})
    with (
        pytest.raises(UnknownNameError, match="MiniGrid-Nowhere")
        if _has("minigrid")
        else pytest.raises(ImportError, match=r"needs the package 'minigrid': pip install 'ding_like\[minigrid\]'")
    ):
        make_env({"type": "MiniGrid-Nowhere-v0"})


def _has(module):
    import importlib.util

    return importlib.util.find_spec(module) is not None


def test_env_kwargs_reach_the_constructor_unchecked(registered):
    env = make_env({"type": "MountainCar-v0", "env_kwargs": {"goal_velocity": 0.07}})
    assert env.unwrapped.goal_velocity == 0.07
    assert make_env({"type": "toy_count", "env_kwargs": {"n": 7}}).n == 7


def steps_to_the_end(env):
    env.reset(seed=0)
    for t in range(1, 1000):
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            return t, terminated, truncated
    return None


def test_max_episode_steps_replaces_the_limit_of_an_id_and_adds_one_elsewhere(registered):
    assert steps_to_the_end(make_env({"type": "MountainCar-v0"})) == (200, False, True)
    assert steps_to_the_end(make_env({"type": "MountainCar-v0", "max_episode_steps": 250})) == (
        250,
        False,
        True,
    )
    cfg = {"type": "toy_count", "env_kwargs": {"n": 9}, "max_episode_steps": 4}
    assert steps_to_the_end(make_env(cfg)) == (4, False, True)


def test_registered_classes_get_the_config_or_the_kwargs(registered):
    env = make_env({"type": "toy_cfg", "n": 6, "env_id": "anything"})
    assert env.n == 6 and env.cfg.env_id == "anything"
    fns = make_env_fns({"type": "toy_di", "n": 2, "evaluator_env_num": 99}, 3, "eval")
    envs = [fn() for fn in fns]
    assert len(envs) == 3 and all(e.env.cfg["is_train"] is False and e.env.cfg["n"] == 2 for e in envs)
    assert make_env_fns({"type": "toy_di"}, 1)[0]().env.cfg["is_train"] is True


@pytest.mark.parametrize(
    "setting",
    [
        Count,
        lambda: Count(3),
        lambda cfg: Count(cfg["n"]),
        lambda c: Count(c.n),
        Count(3),
        (lambda cfg: Count(cfg["n"]), [{"n": 3}], [{"n": 99}]),
    ],
    ids=["class", "factory", "factory of cfg", "of any name", "instance", "triple"],
)
def test_env_setting_of_every_form_gives_separate_envs(setting):
    fns = make_env_fns({"n": 3}, 3, env_setting=setting)
    envs = [fn() for fn in fns]
    assert len({id(env) for env in envs}) == 3
    envs[0].reset()
    envs[0].step(0)
    assert [env.t for env in envs] == [1, 0, 0] and [env.n for env in envs] == [3, 3, 3]


def test_triple_uses_the_configs_of_its_role():
    setting = (lambda cfg: Count(cfg["n"]), [{"n": 3}, {"n": 4}], [{"n": 5}])
    assert [fn().n for fn in make_env_fns({}, 3, "collect", setting)] == [3, 4, 3]
    assert [fn().n for fn in make_env_fns({}, 2, "eval", setting)] == [5, 5]


def test_foreign_env_setting_is_adapted():
    (fn,) = make_env_fns({}, 1, env_setting=lambda: OldCount(2, True))
    assert steps_to_the_end(fn()) == (2, False, True)


@pytest.mark.parametrize("setting", [(1, 2), (Count, [{}])])
def test_bad_triple_is_named(setting):
    with pytest.raises(TypeError, match="wanted \\(env_fn, collector_cfgs, evaluator_cfgs\\)"):
        make_env_fns({}, 1, env_setting=setting)


def test_factories_travel_by_cloudpickle():
    cloudpickle = pytest.importorskip("cloudpickle")

    class Local(Count):
        pass

    for fn in (
        make_env_fns({"type": "CartPole-v1", "wrappers": ["reward_clip"]}, 1)[0],
        make_env_fns({}, 1, env_setting=lambda: Local(4))[0],
    ):
        env = cloudpickle.loads(cloudpickle.dumps(fn))()
        env.reset(seed=0)
        assert fn.__name__ in ("CartPole-v1", "<lambda>")


def test_changing_a_made_envs_config_leaves_the_callers_alone(registered):
    cfg = {"type": "toy_cfg", "env_kwargs": {"a": [1]}}
    make_env(cfg).cfg["env_kwargs"]["a"].append(2)
    assert cfg == {"type": "toy_cfg", "env_kwargs": {"a": [1]}}


def test_bad_role_and_number_are_named():
    with pytest.raises(ValueError, match="role is 'train'"):
        make_env({"type": "CartPole-v1"}, "train")
    with pytest.raises(ValueError, match="number of env columns is 0"):
        make_env_fns({"type": "CartPole-v1"}, 0)


@pytest.mark.filterwarnings("ignore")
def test_ding_env_wrapper_takes_an_instance_or_an_id():
    gym = pytest.importorskip("gym")
    env = DingEnvWrapper(gym.make("CartPole-v1", disable_env_checker=True), cfg={"wrappers": ["reward_clip"]})
    assert env.reset(seed=0)[0].shape == (4,) and isinstance(env.action_space, spaces.Discrete)
    assert DingEnvWrapper(cfg={"env_id": "CartPole-v1"}).spec.id == "CartPole-v1"
    instance = CountDict()
    assert DingEnvWrapper(instance).unwrapped is instance
    with pytest.raises(ValueError, match="neither an env nor a cfg"):
        DingEnvWrapper()


def test_a_subclass_of_ding_env_wrapper_overrides_its_step():
    class Doubled(DingEnvWrapper):
        def step(self, action):
            obs, reward, *ends = super().step(action)
            return obs, 2 * reward, *ends

    env = make_env({}, "collect", lambda cfg: Doubled(cfg={"type": "CartPole-v1"}))
    env.reset(seed=0)
    assert env.step(0)[1] == 2.0


def test_made_env_steps_exactly_as_gymnasium_makes_it():
    ours, theirs = make_env({"type": "Acrobot-v1"}), gymnasium.make("Acrobot-v1")
    np.testing.assert_array_equal(ours.reset(seed=2)[0], theirs.reset(seed=2)[0])
    for t in range(20):
        a, b = ours.step(t % 3), theirs.step(t % 3)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:4] == b[1:4]
