"""Runs over every action space, action masks, and inputs that do not fit: right results or an error by name."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.config import ConfigError
from ding_like.entry import serial_pipeline
from ding_like.envs import EnvError
from tests.envs.toys import AnySpace
from tests.helpers import result

pytestmark = pytest.mark.usefixtures("in_tmp")


def config(kind, env_type="CartPole-v1", **policy):
    learn = dict(batch_size=8, **policy.pop("learn", {}))
    main = dict(
        exp_name="run",
        env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
        policy=dict(
            model=dict(encoder_hidden_size_list=[8]),
            learn=learn,
            collect=dict(n_sample=policy.pop("n_sample", 16)),
            eval=dict(evaluator=dict(eval_freq=5)),
            **policy,
        ),
    )
    return main, dict(env=dict(type=env_type), env_manager=dict(type="base"), policy=dict(type=kind))


class Picky(gymnasium.Env):
    """Three actions of which step t forbids number t % 3; a forbidden one raises. Six steps an episode.

    `dead`: the mask of the final observation forbids all. `none_at`: so does that of this step.
    """

    def __init__(self, trunc=False, dead=True, none_at=None):
        self.trunc, self.dead, self.none_at = trunc, dead, none_at
        self.observation_space = spaces.Dict(
            {"t": spaces.Box(0, 10, (1,), np.float32), "action_mask": spaces.MultiBinary(3)}
        )
        self.action_space = spaces.Discrete(3)

    def see(self):
        mask = np.ones(3, np.int8)
        mask[self.t % 3] = 0
        if (self.t == 6 and self.dead) or self.t == self.none_at:
            mask[:] = 0
        return {"t": np.float32([self.t]), "action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.see(), {}

    def step(self, action):
        assert action != self.t % 3, f"action {action} is forbidden at step {self.t}"
        self.t += 1
        end = self.t == 6
        return self.see(), float(action), end and not self.trunc, end and self.trunc, {}


KINDS = [("dqn", dict(random_collect_size=20, nstep=2)), ("ppo", {}), ("a2c", {})]


@pytest.mark.parametrize("trunc", [False, True])
@pytest.mark.parametrize(("kind", "over"), KINDS, ids=[k for k, _ in KINDS])
def test_forbidden_actions_are_never_taken(kind, over, trunc):
    serial_pipeline(
        config(kind, **over), env_setting=lambda: Picky(trunc, dead=not trunc), max_env_step=200, max_train_iter=40
    )
    assert result("run")["env_step"] > 30 and result("run")["eval_value"] > 0


@pytest.mark.parametrize(("kind", "over"), KINDS, ids=[k for k, _ in KINDS])
def test_an_observation_that_allows_no_action_is_named(kind, over):
    with pytest.raises(ValueError, match=r"no action is allowed in column\(s\) \[0, 1\]"):
        serial_pipeline(config(kind, **over), env_setting=lambda: Picky(none_at=3), max_env_step=200)


def test_a_value_wanted_of_an_observation_that_allows_no_action_is_named():
    with pytest.raises(ValueError, match="allows no action in an observation whose value is needed"):
        serial_pipeline(config("dqn"), env_setting=lambda: Picky(trunc=True, dead=True), max_env_step=200)


class WideMask(Picky):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict(
            {"t": spaces.Box(0, 10, (1,), np.float32), "action_mask": spaces.MultiBinary(4)}
        )


def test_a_mask_of_another_length_is_named():
    with pytest.raises(ConfigError, match=r"obs\['action_mask'\] has shape \(4,\); wanted \(3,\)"):
        serial_pipeline(config("ppo"), env_setting=WideMask)


# ---------------------------------------------------------------- spaces
ACTIONS = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,)),
    spaces.Box(np.float32([0, -3]), np.float32([2, 5])),
    spaces.Box(-np.inf, np.inf, (2,)),
    spaces.Box(np.float32([0]), np.float32([np.inf])),
    spaces.Box(-1, 1, (2, 2)),
    spaces.Box(0, 4, (1,), np.int64),
    spaces.Box(-1, 1, (1,), np.float64),
]


@pytest.mark.parametrize("space", ACTIONS, ids=str)
@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_every_action_space_trains_and_the_env_gets_actions_of_it(kind, space):
    seen = []

    class Env(AnySpace):
        def step(self, action):
            seen.append(self.action_space.contains(action))
            return super().step(action)

    serial_pipeline(config(kind), env_setting=lambda: Env(spaces.Box(-1, 1, (3,), np.float32), space), max_env_step=32)
    assert len(seen) > 32 and all(seen)


OBSERVATIONS = [
    spaces.Discrete(5),
    spaces.Box(0, 255, (12, 12, 3), np.uint8),
    spaces.Box(-1, 1, (3,), np.float64),
    spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])}),
]


@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_every_observation_space_trains_on_policy(space):
    cfg = config("ppo")
    if space.shape == (12, 12, 3):
        cfg[0]["policy"]["model"]["encoder_hidden_size_list"] = [8, 16]
    serial_pipeline(cfg, env_setting=lambda: AnySpace(space, spaces.Discrete(2)), max_env_step=32)
    assert result("run")["train_iter"] > 0


# ---------------------------------------------------------------- what does not fit
@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        (config("ppo", action_space="continuous"), "policy.action_space is 'continuous'; env .* which is 'discrete'"),
        (config("ppo", "Pendulum-v1", action_space="discrete"), "policy.action_space is 'discrete'; .*'continuous'"),
        (config("dqn", "Pendulum-v1"), "policy 'dqn' serves Discrete actions"),
        (config("ppo", n_sample=4), "policy.learn.batch_size: got 8, wanted at most 4"),
        (config("ppo", action_space="dicrete"), "policy.action_space: got 'dicrete'"),
        (config("ppo", nstep=3), "policy.nstep: got 3, wanted 1"),
        (config("ppo", random_collect_size=10), "policy.random_collect_size: got 10, wanted 0"),
        (config("ppo", learn=dict(update_per_collect=4)), "policy.learn.update_per_collect: got 4, wanted 1"),
        (config("ppo", learn=dict(clip_ratio=0)), "policy.learn.clip_ratio"),
        (config("ppo", learn=dict(epoch_per_collect=0)), "policy.learn.epoch_per_collect"),
        (config("ppo", on_policy=False), "policy.on_policy: got False, but policy 'ppo' is on-policy"),
        (config("dqn", on_policy=True), "policy.on_policy: got True, but policy 'dqn' is off-policy"),
    ],
)
def test_what_does_not_fit_is_named_before_a_folder_is_made(cfg, says, in_tmp):
    with pytest.raises(ConfigError, match=says):
        serial_pipeline(cfg)
    assert not (in_tmp / "run").exists()


@pytest.mark.parametrize(("kind", "store", "wanted"), [("ppo", "replay", "'rollout'"), ("dqn", "rollout", "'replay'")])
def test_a_store_that_the_policy_cannot_train_from_is_named(kind, store, wanted):
    main, create = config(kind)
    create["replay_buffer"] = dict(type=store)
    with pytest.raises(ConfigError, match=f"replay_buffer.type: got '{store}', wanted {wanted}"):
        serial_pipeline((main, create))


def test_a_rollout_and_minibatches_of_one_sample_train():
    main, create = config("ppo", n_sample=1)
    main["policy"]["learn"]["batch_size"] = 1
    main["env"]["collector_env_num"] = 1
    serial_pipeline((main, create), max_train_iter=20)
    assert result("run")["train_iter"] == 20


class Changing(AnySpace):
    """Observations of another shape or dtype from step 10 on."""

    late = np.zeros(4, np.float32)

    def __init__(self):
        super().__init__(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        obs, *rest = super().step(action)
        return (self.late if self.steps > 10 else obs), *rest


class Complex(Changing):
    late = np.zeros(3, np.complex64)


class Wider(Changing):
    late = np.zeros(3, np.float64)


def test_an_observation_that_changes_its_shape_is_named():
    with pytest.raises(EnvError, match=r"obs has shape \(4,\); wanted \(3,\)"):
        serial_pipeline(config("ppo"), env_setting=Changing)


def test_an_observation_that_changes_its_kind_of_numbers_is_named():
    with pytest.raises(EnvError, match="obs has dtype complex64"):
        serial_pipeline(config("ppo"), env_setting=Complex)


def test_an_observation_of_another_float_type_is_kept_as_float32():
    serial_pipeline(config("ppo"), env_setting=Wider, max_env_step=64)
    assert result("run")["env_step"] == 64
