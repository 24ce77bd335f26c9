"""The evaluator: fixed quotas and seeds, one reset of env and policy an episode, nothing else changed."""

import gymnasium
import numpy as np
import pytest
import torch

from ding_like.config import CfgDict
from ding_like.data import ArrayDict
from ding_like.utils.seed import episode_seed
from ding_like.worker import Evaluator
from tests.envs.toys import Count, CountDict
from tests.helpers import Constant, fingerprint, make_collector, make_manager, make_policy


class Spy:
    """An `eval_mode` that notes what is asked of it."""

    def __init__(self):
        self.resets, self.asked = [], []

    def forward(self, obs, data_id=None):
        self.asked.append(list(data_id))
        return ArrayDict(action=np.zeros(len(obs), np.int64))

    def reset(self, data_id=None):
        self.resets.append(None if data_id is None else list(data_id))


class Seeded(Count):
    """`Count` whose episode length is drawn from the episode's seed."""

    def __init__(self, low=1, high=9):
        super().__init__()
        self.range, self.seeds = (low, high), []

    def reset(self, *, seed=None, options=None):
        out = super().reset(seed=seed)
        self.seeds.append(seed)
        self.n = int(self.np_random.integers(*self.range))
        return out


def evaluator(policy, *envs, n=5, seed=0, **cfg):
    cfg = CfgDict({**Evaluator.config, "n_episode": n, **cfg})
    return Evaluator(cfg, make_manager(*envs, role="eval"), policy, seed)


@pytest.mark.parametrize(
    ("n", "quota"), [(6, [2, 2, 2]), (7, [3, 2, 2]), (3, [1, 1, 1]), (2, [1, 1, 0]), (1, [1, 0, 0])]
)
def test_every_column_has_its_quota_before_the_start(n, quota):
    """Short episodes of one column do not take the place of another's: lengths 1, 4 and 9 count by quota."""
    lengths = [1, 4, 9]
    out = evaluator(Spy(), *[Count(k) for k in lengths], n=n).evaluate()
    assert out["n_episode"] == n == len(out["returns"])
    assert sorted(out["returns"]) == sorted(k for k, q in zip(lengths, quota) for _ in range(q))
    assert out["eval_value"] == out["eval_length"] == pytest.approx(np.dot(lengths, quota) / n)
    assert out["eval_value_std"] == pytest.approx(np.std(out["returns"]))


def test_one_env_reset_and_one_policy_reset_an_episode():
    """Case B33, the counts."""
    envs, policy = [Count(2), Count(5), Count(3)], Spy()
    evaluator(policy, *envs, n=8).evaluate()
    assert [env.resets for env in envs] == [3, 3, 2]
    assert policy.resets[0] is None
    later = [b for columns in policy.resets[1:] for b in columns]
    assert sorted(later) == [0, 0, 1, 1, 2]


def test_only_columns_with_episodes_left_are_stepped_and_named():
    policy = Spy()
    evaluator(policy, Count(1), Count(3), n=3).evaluate()
    assert policy.asked == [[0, 1], [0, 1], [1]]


def test_every_episode_has_a_seed_of_its_own_and_the_same_at_each_evaluation():
    """Case B48: evaluation seeds are fixed across evaluations."""
    envs = [Seeded(), Seeded(), Seeded()]
    ev = evaluator(Spy(), *envs, n=8, seed=4)
    first = ev.evaluate()
    seeds = [list(env.seeds) for env in envs]
    assert seeds == [[episode_seed(4, "eval", b, k) for k in range(len(seeds[b]))] for b in range(3)]
    flat = [s for column in seeds for s in column]
    assert len(set(flat)) == len(flat) == 8
    assert ev.evaluate() == first
    assert [env.seeds for env in envs] == [s + s for s in seeds]
    assert evaluator(Spy(), Seeded(), Seeded(), Seeded(), n=8, seed=5).evaluate()["returns"] != first["returns"]


def test_evaluation_changes_neither_weights_nor_noise_nor_collecting():
    def run(evaluate):
        policy = make_policy(obs_shape=4, norm_obs={"use_norm": True}, nstep=2)
        collector = make_collector(policy, *[gymnasium.make("CartPole-v1") for _ in range(2)], n_sample=9)
        ev = evaluator(policy.eval_mode, *[gymnasium.make("CartPole-v1") for _ in range(2)], n=3)
        rows = []
        for _ in range(4):
            rows.append(collector.collect())
            if evaluate:
                before = fingerprint(policy.learn_mode.state_dict()), policy._noises["collect"].state_dict()
                ev.evaluate()
                assert (fingerprint(policy.learn_mode.state_dict()), policy._noises["collect"].state_dict()) == before
        return fingerprint(tuple(dict(r) for r in rows if r is not None)), fingerprint(policy.learn_mode.state_dict())

    torch.manual_seed(0)
    without = run(False)
    torch.manual_seed(0)
    assert run(True) == without


def test_raw_return_is_that_before_reward_wrappers():
    envs = [gymnasium.wrappers.RecordEpisodeStatistics(Count(4)) for _ in range(2)]
    scaled = [gymnasium.wrappers.TransformReward(env, lambda r: 10 * r) for env in envs]
    out = evaluator(Spy(), *scaled, n=2).evaluate()
    assert (out["eval_value"], out["eval_value_raw"]) == (40, 4)


def test_actions_are_the_deterministic_ones():
    class Sees(Count):
        def step(self, action):
            self.actions = [*getattr(self, "actions", []), int(action)]
            return super().step(action)

    env = Sees(6)
    evaluator(
        make_policy(model=Constant(0.0, 1.0), other={"eps": {"start": 1.0, "end": 1.0}}).eval_mode, env, n=2
    ).evaluate()
    assert env.actions == [1] * 12


class Sick(Count):
    """`Count` whose observation or reward is bad at step `at` of its episode number `episode`."""

    def __init__(self, n, bad, at, episode=1, reward=False):
        super().__init__(n)
        self.bad, self.at, self.episode, self.sick_reward = bad, at, episode, reward

    def _now(self):
        return self.resets == self.episode and self.t == self.at

    def _see(self):
        obs = super()._see()
        if self._now() and not self.sick_reward:
            obs[0] = self.bad
        return obs

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, self.bad if self._now() and self.sick_reward else reward, *rest


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("what", "at"), [("obs", 0), ("obs", 2), ("reward", 2), ("reward", 4)])
@pytest.mark.parametrize("episode", [1, 2])
def test_an_observation_or_reward_that_is_not_finite_is_named_with_column_and_step(bad, what, at, episode):
    sick = Sick(4, bad, at, episode, what == "reward")
    with pytest.raises(FloatingPointError, match=rf"^{what} of evaluation env column 1 is not finite at step {at} "):
        evaluator(Spy(), Count(2), sick, n=4).evaluate()


def test_an_entry_of_a_dict_observation_that_is_not_finite_is_named():
    class SickDict(CountDict):
        def _see(self):
            obs = super()._see()
            return {**obs, "a": {"b": obs["a"]["b"] + (np.nan if self.t == 1 else 0)}}

    with pytest.raises(FloatingPointError, match=r"^obs\.a\.b of evaluation env column 0 is not finite at step 1 "):
        evaluator(Spy(), SickDict(3), n=1).evaluate()


def test_stop_value_is_reached_from_it_on():
    ev = evaluator(Spy(), Count(2), n=1, stop_value=2)
    assert ev.reached(2.0) and ev.reached(3.0) and not ev.reached(1.99)
    assert not evaluator(Spy(), Count(2), n=1).reached(1e9)


@pytest.mark.parametrize("cfg", [{"n": 0}, {"eval_freq": 0}])
def test_wrong_numbers_are_named(cfg):
    with pytest.raises(ValueError, match=r"n_evaluator_episode is \d+, eval_freq is \d+; wanted at least 1 of each"):
        evaluator(Spy(), Count(2), **cfg)


def test_an_episode_that_does_not_end_is_said_while_the_evaluation_waits(monkeypatch, caplog):
    monkeypatch.setattr("ding_like.worker.collector.evaluator.ENDLESS", 4)
    policy = make_policy()
    evaluator = Evaluator(
        policy._cfg.eval.evaluator | {"n_episode": 1}, make_manager(Count(9), role="eval"), policy.eval_mode
    )
    with caplog.at_level("WARNING", logger="ding_like"):
        assert evaluator.evaluate()["eval_length"] == 9
    assert [r.message.split(";")[0] for r in caplog.records] == [
        "evaluation: env column 0 has played 4 steps without an end",
        "evaluation: env column 0 has played 8 steps without an end",
    ]
