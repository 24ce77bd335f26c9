"""What a policy may do with rows and blocks, and what the normaliser sees of them."""

import numpy as np
import pytest

from ding_like.model import NormalizedModel, model_wrap
from ding_like.policy.dqn import DQNPolicy
from ding_like.worker import Evaluator, Replay
from tests.envs.toys import Count
from tests.helpers import make_collector, make_manager, make_policy, policy_config


def collected(cls, n_sample=8, envs=2, collects=1, **over):
    """The items in store order of `Count(5)` columns."""
    collector = make_collector(make_policy(cls, **over), *[Count(5) for _ in range(envs)], n_sample=n_sample)
    store = Replay(policy_config(other={"replay_buffer": {"replay_buffer_size": 100}}).other.replay_buffer)
    for _ in range(collects):
        collector.collect(store.push)
    return store.ring.gather(np.arange(store.count))


def test_the_normaliser_takes_in_every_collected_row_once_and_only_before_the_next_collect():
    policy = make_policy(norm_obs={"use_norm": True})
    collector = make_collector(policy, Count(5), Count(5), n_sample=8)
    statistics = policy.get_model().statistics[0]
    assert isinstance(policy.get_model(), NormalizedModel)
    collector.collect(lambda items: items.starts * 2, n_sample=50, random=True)  # several blocks
    assert statistics.count == 0
    collector.collect(lambda items: items.starts * 2)
    assert statistics.count == 50
    np.testing.assert_allclose(statistics.mean, [2.0])  # 0, 1, 2, 3, 4 in turn
    collector.collect(lambda items: items.starts * 2)
    assert statistics.count == collector.envstep - 8


class Flipped(DQNPolicy):
    """Its items' obs is a view of the block's with other strides."""

    def _get_train_sample(self, data):
        data["obs"] = data["obs"][::-1]
        return super()._get_train_sample(data)


def test_a_replaced_obs_is_stored_as_it_was_replaced():
    items = collected(Flipped, n_sample=4, envs=1)
    assert items["obs"].ravel().tolist() == [3, 2, 1, 0]
    assert items["next_obs"].ravel().tolist() == [1, 2, 3, 4]


class Wandering(DQNPolicy):
    """The first row stores `timestep.obs` itself, later ones a changed copy."""

    rows = 0

    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        self.rows += 1
        return row if self.rows == 1 else {**row, "next_obs": timestep.obs + 100}


def test_a_next_obs_that_is_changed_in_some_rows_only_is_refused():
    with pytest.raises(
        ValueError, match=r"the first row stored `obs` and `timestep\.obs` themselves, this one another"
    ):
        collected(Wandering)


class InPlace(DQNPolicy):
    """Scales rewards in the block's own memory, which the next block shares."""

    def _get_train_sample(self, data):
        data["reward"] *= 10
        return super()._get_train_sample(data)


class Scaled(DQNPolicy):
    """The same by a new array."""

    def _get_train_sample(self, data):
        data["reward"] = data["reward"] * 10
        return super()._get_train_sample(data)


def test_rows_that_come_again_in_the_next_block_are_scaled_once_or_not_at_all():
    items = collected(Scaled, n_sample=1, envs=1, collects=4, nstep=3, discount_factor=1.0)
    assert items["reward"].tolist() == [30, 30, 30, 20]
    with pytest.raises(ValueError, match="read-only"):
        collected(InPlace, nstep=3)


class IntegerFlags(DQNPolicy):
    """Ends as 0 and 1."""

    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        return {**row, "terminated": timestep.terminated.astype(int), "done": timestep.done.astype(int)}


@pytest.mark.parametrize("nstep", [1, 3])
def test_integer_flags_stop_the_bootstrap_as_booleans_do(nstep):
    ints = collected(IntegerFlags, n_sample=12, nstep=nstep)
    bools = collected(DQNPolicy, n_sample=12, nstep=nstep)
    np.testing.assert_array_equal(ints["discount"], bools["discount"])
    assert set(ints["discount"]) == {0.0, np.float32(0.99**nstep)}


class NoneField(DQNPolicy):
    """A field without a value, as `prev_state` of a feed-forward policy."""

    def _process_transition(self, obs, model_output, timestep):
        return {**super()._process_transition(obs, model_output, timestep), "prev_state": None}


def test_a_field_may_be_none_in_every_row():
    assert "prev_state" not in collected(NoneField)


class Stochastic(DQNPolicy):
    """Evaluates by drawing actions."""

    def _init_eval(self):
        self._eval_model = model_wrap(self._model, wrapper_name="multinomial_sample")


def test_a_stochastic_evaluation_outlives_its_shorter_columns_and_repeats():
    policy = make_policy(Stochastic)
    envs = make_manager(Count(3), Count(9), role="eval")
    evaluator = Evaluator(policy._cfg.eval.evaluator | {"n_episode": 3}, envs, policy.eval_mode)
    first = evaluator.evaluate()
    steps = policy._noises["eval"].state_dict()
    assert steps == {"steps": [6, 9]}
    assert evaluator.evaluate() == first
    assert policy._noises["eval"].state_dict() == steps
