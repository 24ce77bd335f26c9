"""Whoever steps the envs and acts, blocks, items and episodes are those of the serial sampler, bit for bit."""

import functools

import gymnasium
import numpy as np
import pytest
import torch

from ding_like.data import torchify, tree_map, tree_paths
from ding_like.distributed.group import WorkerGroup
from ding_like.envs.env_manager.vector_env_manager import VectorEnvManager
from ding_like.model.template.drqn import DRQN
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.actor_critic import ActorCriticPolicy
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.rl_utils.distribution import make_distribution
from ding_like.worker import SampleCollector
from tests.distributed.parts import SAMPLERS, Collecting, Elementwise, Leaky, policy_maker, worker_policy
from tests.envs.worker_toys import Diary

ENVS = [Diary] * 5


class Whole(DQNPolicy):
    """Items of whole trajectories."""

    per_column_trajectory = True

    def _get_train_sample(self, data):
        return data


EPS = dict(eps=dict(start=1.0, end=0.1, decay=30))
CASES = {
    "dqn": (policy_maker(DQNPolicy, Elementwise, other=EPS), ENVS),
    "dqn, 3-step": (policy_maker(DQNPolicy, Elementwise, nstep=3, other=EPS), ENVS),
    "dqn, nested observations with a mask": (
        policy_maker(DQNPolicy, functools.partial(Elementwise, key="deep"), nstep=2, other=EPS),
        [functools.partial(Diary, "discrete", True)] * 5,
    ),
    "dqn, normaliser": (policy_maker(DQNPolicy, Elementwise, norm_obs={"use_norm": True}, other=EPS), ENVS),
    "trajectories": (policy_maker(Whole, Elementwise, other=EPS, collect={"max_traj_len": 9}), ENVS),
    "r2d2, a ladder of epsilons": (
        policy_maker(
            R2D2Policy, Leaky, nstep=2, burnin_step=2, learn_unroll_len=5, other=dict(eps_ladder=dict(base=0.4))
        ),
        ENVS,
    ),
    "ppo": (policy_maker(PPOPolicy, Elementwise), ENVS),
    "a2c": (policy_maker(A2CPolicy, Elementwise), ENVS),
}


def same(one, other, where=""):
    left, right = list(tree_paths(one)), list(tree_paths(other))
    assert [path for path, _ in left] == [path for path, _ in right], where
    for (path, a), (_, b) in zip(left, right):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (where, path)


def assert_same(one, other):
    assert len(one.blocks) == len(other.blocks) and len(one.items) == len(other.items)
    for i, (a, b) in enumerate(zip(one.blocks, other.blocks)):
        same(a, b, f"block {i}")
    for i, (a, b) in enumerate(zip(one.items, other.items)):
        same(a, b, f"items {i}")
    assert one.episodes == other.episodes and one.collector.statistics() == other.collector.statistics()
    for name in ("envstep", "episode_count"):
        assert getattr(one.collector, name) == getattr(other.collector, name)


def moved(policy, k):
    """What learning does: every parameter becomes another."""
    with torch.no_grad():
        for parameter in policy.get_model().parameters():
            parameter.add_(0.01 * (k % 3 - 1))


def history(run):
    """Random actions first, then collects with a network that changes, of different sizes."""
    if not isinstance(run.policy, ActorCriticPolicy):
        run.collect(n_step=10, random=True)
    for k in range(15):
        run.collect(**({"n_sample": 3 + k} if k % 5 == 4 else {}))
        moved(run.policy, k)
    return run


@functools.cache
def serial(name):
    make, envs = CASES[name]
    with Collecting("serial", 0, make, envs) as run:
        history(run)
    assert len(run.blocks) > 5 and run.collector.episode_count > 10
    return run


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", CASES)
def test_every_sampler_gives_the_blocks_items_and_episodes_of_the_serial_one(name, sampler):
    make, envs = CASES[name]
    with Collecting(*SAMPLERS[sampler], make, envs) as run:
        assert_same(history(run), serial(name))


@pytest.mark.parametrize("death", ["restart", "shrink"])
@pytest.mark.parametrize("sampler", ["local 2", "server 2", "alternating 2"])
@pytest.mark.parametrize("name", ["dqn, 3-step", "r2d2, a ladder of epsilons", "ppo", "dqn, normaliser"])
def test_readiness_for_deaths_changes_nothing_but_a_mask_of_ones(name, sampler, death):
    make, envs = CASES[name]
    with Collecting(*SAMPLERS[sampler], make, envs, on_worker_death=death) as run:
        history(run)
    for block in run.blocks:
        assert (block.pop("mask") == 1).all()
    for items in run.items:
        items.pop("mask", None)
    wanted = serial(name)
    for items in wanted.items:
        if name.startswith("r2d2"):
            items.pop("mask", None)
    assert_same(run, wanted)
    serial.cache_clear()


@pytest.mark.parametrize("name", ["dqn, 3-step", "ppo"])
def test_a_block_begun_before_an_update_is_that_of_the_network_before_it(name):
    """The serial sampler with the updates one round late."""
    make, envs = CASES[name]
    with Collecting("serial", 0, make, envs) as late, Collecting("local", 2, make, envs) as run:
        late.collect()
        run.collect()
        for k in range(10):
            run.collector.begin()
            moved(run.policy, k)
            run.collect()
            late.collect()
            moved(late.policy, k)
    if name == "ppo":  # the value after the last row is the newest network's
        run.items, late.items = [], []
    assert_same(run, late)


@pytest.mark.parametrize("sampler", ["local 2", "local 3", "server 2", "alternating 2"])
def test_the_statistics_of_long_blocks_are_of_the_same_hundred_episodes(sampler):
    make, envs = CASES["dqn"]
    with Collecting("serial", 0, make, envs) as wanted, Collecting(*SAMPLERS[sampler], make, envs) as run:
        for one in (wanted, run):
            one.collect(n_sample=1500)
        assert_same(run, wanted)
    assert run.collector.episode_count > 120 and {column for column, *_ in run.episodes} == set(range(5))


def pairs(first, end):
    return VectorEnvManager(lambda num, seeds: gymnasium.make_vec("CartPole-v1", num), end - first)


def test_episodes_of_native_columns_are_named_as_in_all_workers():
    make = policy_maker(DQNPolicy, functools.partial(Elementwise, 2), 4, 2)
    group = WorkerGroup(pairs, 4, 2, 0)
    try:
        policy = make(0)
        group.serve(policy, functools.partial(worker_policy, make))
        collector = SampleCollector(policy._cfg.collect, group, policy.collect_mode, 0)
        collector.collect(lambda items: 1, n_step=400)
        assert {episode["column"] for episode in collector.episodes} == set(range(4))
    finally:
        group.close()


# ---------------------------------------------------------------- real networks
def gru():
    return DRQN(3, 3, [8], lstm_type="gru")


def lstm():
    return DRQN(3, 3, [8], lstm_type="pytorch")


class Seen(DQNPolicy):
    """Keeps the Q-values that acting saw."""

    def _process_transition(self, obs, model_output, timestep):
        return {**super()._process_transition(obs, model_output, timestep), "q": model_output["logit"]}


@pytest.mark.parametrize("sampler", ["local 2", "server 2", "alternating 2"])
@pytest.mark.parametrize("model", [None, gru, lstm])
def test_the_values_of_a_network_recomputed_are_those_that_acting_saw(model, sampler):
    windows = {} if model is None else dict(nstep=2, burnin_step=1, learn_unroll_len=6)
    make = policy_maker(Seen, model, other=EPS, **windows)
    with Collecting(*SAMPLERS[sampler], make, ENVS) as run:
        for k in range(4):
            moved(run.policy, k)
            start = len(run.blocks)
            run.collect(n_sample=10)
            for block in run.blocks[start:]:
                fresh = slice(run.collector._slab.carry if start else 0, None)
                check_q(run.policy, block, fresh)


def check_q(policy, block, fresh):
    obs = torch.as_tensor(block["obs"][fresh])
    if "prev_state" in block:
        state = tree_map(lambda a: torch.as_tensor(a[fresh]).flatten(0, 1), block["prev_state"])
        inputs = {"obs": obs.flatten(0, 1), "prev_state": state}
        q = policy.get_model()(inputs, inference=True)["logit"].reshape(*obs.shape[:2], -1)
    else:
        q = policy.get_model()(obs)["logit"]
    np.testing.assert_allclose(q.detach().numpy(), block["q"][fresh], atol=1e-5)


@pytest.mark.parametrize("sampler", ["local 2", "server 2", "alternating 2"])
@pytest.mark.parametrize("kind", ["discrete", "box", "multi_discrete"])
@pytest.mark.parametrize("cell", [None, "gru", "pytorch"])
def test_the_log_probs_of_a_rollout_recomputed_by_the_learner_are_those_collected(cell, kind, sampler):
    action = {"discrete": 3, "box": 2, "multi_discrete": [2, 3]}[kind]
    name = {"box": "continuous"}.get(kind, kind)
    over = {} if cell is None else dict(learn_unroll_len=4)
    model = dict(encoder_hidden_size_list=[8], **({} if cell is None else dict(lstm_type=cell)))
    make = policy_maker(PPOPolicy, None, 3, action, dict(action_space=name), model=model, action_space=name, **over)
    with Collecting(*SAMPLERS[sampler], make, [functools.partial(Diary, kind)] * 5, n_sample=20) as run:
        for k in range(3):
            moved(run.policy, k)
            start = len(run.items)
            run.collect(n_step=20)
            for items in run.items[start:]:
                data = torchify(items)
                if cell is not None:
                    data = tree_map(lambda a: a.transpose(0, 1), data)
                output, data = run.policy._evaluated(data)
                found = make_distribution(output["logit"], name).log_prob(data["action"])
                np.testing.assert_allclose(found.detach().numpy(), data["log_prob"].numpy(), atol=1e-5)
