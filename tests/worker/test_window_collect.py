"""Windows of a recurrent policy through collector and replay, against what the envs themselves wrote down."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.data import ArrayDict, torchify, tree_index, tree_map
from ding_like.envs.env_manager.vector_env_manager import VectorEnvManager
from ding_like.envs.vector import make_vec_fn
from ding_like.model.template.drqn import DRQN
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.worker import Evaluator, Learner, Replay, SampleCollector
from tests.envs.toys import Count
from tests.envs.vector_toys import Disabled, SameStep, VecDiary
from tests.helpers import fingerprint, make_manager, make_policy
from tests.policy.elman import errors_of
from tests.worker.test_masked_rows import NextStep
from tests.worker.test_sample_collector import GAMMA, Diary


class Keeping(R2D2Policy):
    """Keeps the Q-values that acting saw beside each step."""

    def _process_transition(self, obs, model_output, timestep):
        return {**super()._process_transition(obs, model_output, timestep), "q": model_output["logit"]}


def recurrent(cls=Keeping, eps=1.0, lstm_type="gru", **over):
    """A policy for diaries."""
    over = deep_merge_defaults(dict(burnin_step=2, learn_unroll_len=5, nstep=2, learn=dict(batch_size=4)), over)
    eps = {"eps": {"start": eps, "end": eps}}
    torch.manual_seed(0)
    net = DRQN(3, 3, [4], lstm_type=lstm_type)
    return make_policy(cls, obs_shape=3, action_shape=3, model=net, discount_factor=GAMMA, other=eps, **over)


def same_step(envs):
    return make_manager(*envs)


class Windows:
    """A collector of diaries with a replay; all windows in the order in which they came."""

    def __init__(self, policy, envs, n_sample=4, manager=same_step, size=10000):
        self.policy, self.envs, self.parts = policy, envs, []
        self.replay = Replay(CfgDict({**Replay.config, "replay_buffer_size": size}, priority=True))
        cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": n_sample})
        self.collector = SampleCollector(cfg, manager(envs), policy.collect_mode)

    def collect(self, **kwargs):
        before = len(self.parts)
        self.collector.collect(self._sink, **kwargs)
        return sum(len(part["reward"]) for part in self.parts[before:])

    def _sink(self, items):
        self.parts.append(tree_map(np.copy, ArrayDict(items)))
        return self.replay.push(items)

    @property
    def all(self):
        return tree_map(lambda *xs: np.concatenate(xs), *self.parts)


def episodes_of(env):
    """The steps of every episode of a diary, and whether it ended."""
    found = []
    for step in env.steps:
        if not found or any(found[-1][-1][4:]):
            found.append([])
        found[-1].append(step)
    return [(steps, any(steps[-1][4:])) for steps in found]


def wanted_counts(env, span, nstep):
    """How often each step (column, episode, t) trains: by the words of the contract."""
    counts = Counter()
    for number, (steps, ended) in enumerate(episodes_of(env)):
        length = len(steps)
        whole = length // span if ended else max(0, length - nstep) // span
        trained = [*range(whole * span)]
        if ended and length % span:
            trained += range(max(0, length - span), length)  # the last window ends with the episode
        counts.update((env.column, number, t) for t in trained)
    return counts


def assert_windows_are_the_episodes(windows, envs, burnin, span, nstep, net):
    counts, episodes = Counter(), {env.column: episodes_of(env) for env in envs}
    states = {}
    assert windows["reward"].shape[1] == windows["mask"].shape[1] == burnin + span + nstep
    for n in range(len(windows["reward"])):
        row = tree_map(lambda x, n=n: x[n], windows)
        column, number, first = row["obs"][burnin].astype(int).tolist()
        steps, _ = episodes[column][number]
        for slot in range(burnin + span + nstep):
            t = first - burnin + slot
            real = 0 <= t < len(steps)
            assert (row["null"][slot], row["mask"][slot]) == (not real, float(real))
            if not real:
                assert row["reward"][slot] == 0 and row["terminated"][slot] and row["done"][slot]
                if t >= len(steps):  # the final observation, or nobody looks
                    np.testing.assert_array_equal(row["obs"][slot], steps[-1][3])
                continue
            obs, action, reward, _, terminated, truncated = steps[t]
            np.testing.assert_array_equal(row["obs"][slot], obs)
            assert (row["action"][slot], row["reward"][slot]) == (action, reward)
            assert (row["terminated"][slot], row["done"][slot]) == (terminated, terminated or truncated)
            if burnin <= slot < burnin + span:
                counts[column, number, t] += 1
        if (column, number) not in states:
            states[column, number] = states_of(net, steps)
        stored = tree_map(lambda x: x[0], row["prev_state"])
        again = tree_index(states[column, number], max(0, first - burnin))
        tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), stored, again)
    assert counts == sum((wanted_counts(env, span, nstep) for env in envs), Counter())


def states_of(net, steps):
    """The state before each step of an episode, from its start on `[L, layers, H]`."""
    obs = torch.as_tensor(np.stack([step[0] for step in steps]))[:, None]
    with torch.no_grad():
        out = net({"obs": obs, "prev_state": None}, saved_hidden_state_timesteps=range(len(steps)))
    return tree_map(lambda *xs: torch.cat(xs).numpy(), *out["saved_hidden_state"])


lengths = st.lists(st.lists(st.integers(1, 11), min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=25)
@given(
    lengths,
    st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 3)),
    st.sampled_from([same_step, NextStep]),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_every_real_step_trains_as_often_as_promised_from_the_state_it_had(lengths, sizes, manager, asked):
    burnin, span, nstep = sizes
    policy = recurrent(burnin_step=burnin, learn_unroll_len=span + nstep, nstep=nstep)
    run = Windows(policy, [Diary(b, n) for b, n in enumerate(lengths)], asked[0], manager)
    given = [run.collect(n_sample=n) for n in asked]
    assert all(sum(given[: k + 1]) >= sum(asked[: k + 1]) for k in range(len(asked)))
    assert_windows_are_the_episodes(run.all, run.envs, burnin, span, nstep, policy.get_model())
    assert run.collector.envstep == sum(len(env.steps) for env in run.envs)


@pytest.mark.parametrize("batch", [VecDiary, SameStep, Disabled])
def test_windows_of_native_columns_are_the_episodes_too(batch):
    made = []

    def vec(num_envs):
        made.append(batch(num_envs))
        return made[-1]

    manager = VectorEnvManager(make_vec_fn({}, vec), 4)
    run = Windows(recurrent(), None, 9, lambda envs: manager)
    for _ in range(6):
        run.collect()
    envs = made[-1].envs
    assert_windows_are_the_episodes(run.all, envs, 2, 3, 2, run.policy.get_model())
    assert run.collector.envstep == sum(len(env.steps) for env in envs)


def diaries():
    return [Diary(0, [1, 2, 7]), Diary(1, [4, 13]), Diary(2, [100])]


@pytest.mark.parametrize("n_sample", [1, 3, 7, 40])
def test_extras_count_for_the_next_collect_and_nothing_is_lost(n_sample):
    run = Windows(recurrent(), diaries(), n_sample)
    counts = [run.collect() for _ in range(8)]
    assert 8 * n_sample <= sum(counts) <= 8 * n_sample + 3 * 3  # at most what one row completes
    assert_windows_are_the_episodes(run.all, run.envs, 2, 3, 2, run.policy.get_model())


def test_the_replay_holds_and_draws_the_windows_as_they_came():
    run = Windows(recurrent(), diaries(), 16, size=24)
    for _ in range(4):
        run.collect()
    windows, batch = run.all, run.replay.sample(200)
    assert len(windows["reward"]) > 48 > run.replay.count >= 24
    assert set(batch["index"]) == set(range(len(windows["reward"]) - run.replay.count, len(windows["reward"])))
    for name in ("obs", "action", "reward", "terminated", "done", "null", "mask", "prev_state"):
        for got, kept in zip(flat(batch[name]), flat(windows[name]), strict=True):
            np.testing.assert_array_equal(got, kept[batch["index"]])


def flat(tree):
    found = []
    tree_map(found.append, tree)
    return found


def time_major(windows):
    return tree_map(lambda x: x.transpose(0, 1) if x.dim() > 1 else x, torchify(windows))


# ---------------------------------------------------------------- what was seen while collecting
@pytest.mark.parametrize("manager", [same_step, NextStep])
@pytest.mark.parametrize("lstm_type", ["pytorch", "gru", "normal", "hpc"])
@pytest.mark.parametrize("burnin", [0, 6])
def test_collected_values_are_the_recomputed_ones(lstm_type, burnin, manager):
    policy = recurrent(lstm_type=lstm_type, burnin_step=burnin)
    run = Windows(policy, diaries(), 40, manager)
    run.collect()
    data = time_major(run.all)
    errors = errors_of(policy._sequences.outputs(data))
    trained = slice(burnin, burnin + 3)
    wanted = data["q"][trained].gather(-1, data["action"][trained][..., None])[..., 0]
    assert torch.equal(errors.mask, ~data["null"][trained])
    torch.testing.assert_close(errors.taken[errors.mask], wanted[errors.mask], rtol=1e-5, atol=1e-5)
    assert wanted[errors.mask].std() > 0.01


def test_an_evaluation_between_two_collects_changes_nothing_of_either():
    def collected(evaluate):
        run = Windows(recurrent(), diaries(), 8)
        for _ in range(4):
            run.collect()
            before = fingerprint(run.policy.run_state_dict()["wrappers"])
            if evaluate:
                envs = make_manager(Diary(0, [5]), Diary(1, [3]), role="eval")
                Evaluator(run.policy._cfg.eval.evaluator, envs, run.policy.eval_mode).evaluate()
            assert fingerprint(run.policy.run_state_dict()["wrappers"]) == before
        return fingerprint(run.all)

    assert collected(True) == collected(False)


def test_an_update_leaves_the_states_of_the_columns_alone():
    run = Windows(recurrent(), diaries(), 16)
    run.collect()
    before = fingerprint(run.policy.run_state_dict()["wrappers"])
    run.policy.learn_mode.forward(time_major(run.replay.sample(4)))
    assert fingerprint(run.policy.run_state_dict()["wrappers"]) == before


def test_permuted_columns_give_permuted_windows():
    def windows(order):
        envs = diaries()
        run = Windows(recurrent(eps=0.0), [envs[b] for b in order])
        for _ in range(6):
            run.collect()
        rows, data = [], run.all
        for n in range(len(data["reward"])):
            fields = [flat(data[name][n]) for name in ("obs", "action", "reward", "null")]
            rows.append(repr([a.tolist() for leaves in fields for a in leaves]))
        return sorted(rows)

    assert windows([0, 1, 2]) == windows([2, 0, 1])


def test_random_collecting_stores_the_state_of_the_network_too():
    run = Windows(recurrent(eps=0.0), diaries(), 30)
    run.collect(random=True)
    assert {action for env in run.envs for _, action, *_ in env.steps} == {0, 1, 2}
    assert_windows_are_the_episodes(run.all, run.envs, 2, 3, 2, run.policy.get_model())


# ---------------------------------------------------------------- state of a run
def test_collecting_goes_on_from_its_state():
    def run(breaks):
        made = Windows(recurrent(), diaries(), 5)
        for k in range(8):
            if k in breaks:
                again = Windows(recurrent(), made.envs, 5)
                again.policy.load_run_state_dict(made.policy.run_state_dict())
                again.parts, state = made.parts, made.collector.state_dict()
                again.collector._rows.env = made.collector._rows.env
                again.collector._rows.load_state_dict = lambda state, seed: None  # they are the very envs
                again.collector.load_state_dict(state)
                made = again
            made.collect()
        return fingerprint(made.all)

    assert run([]) == run([2, 3, 6])


def test_where_envs_start_anew_no_window_crosses_the_cut():
    first = Windows(recurrent(), [Diary(0, [50]), Diary(1, [3, 4]), Diary(2, [6])], 5)
    for _ in range(3):
        first.collect()
    state = first.collector.state_dict()
    envs = [Diary(b + 10, [9]) for b in range(3)]
    second = Windows(recurrent(), envs, 5)
    second.policy.load_run_state_dict(first.policy.run_state_dict())
    state["env"] = {"env": None, "not_exact": "no snapshot"}
    second.collector.load_state_dict(state)
    for _ in range(4):
        second.collect()
    cut = second.parts
    windows = tree_map(lambda *xs: np.concatenate(xs), *first.parts, *cut)
    counts = Counter()
    for n in range(len(windows["reward"])):
        column, episode, t = windows["obs"][n][windows["mask"][n] > 0].T.astype(int)
        assert len(set(column)) == len(set(episode)) == 1 and (np.diff(t) == 1).all()
        null_after = windows["null"][n] & (np.arange(7) > np.argmax(windows["mask"][n]))
        assert (windows["obs"][n][null_after] == [column[0], episode[0], t[-1] + 1]).all()
        counts.update((column[0], episode[0], s) for s in windows["obs"][n][2:5, 2][windows["mask"][n][2:5] > 0])
    for env in first.envs:  # the open episodes train to their last step, truncated
        for number, (steps, _) in enumerate(episodes_of(env)):
            assert all(1 <= counts[env.column, number, t] <= 2 for t in range(len(steps)))
    ends = [w["done"][n].any() for w in cut for n in range(len(w["reward"]))]
    assert any(ends)
    assert_windows_are_the_episodes(
        tree_map(lambda x: x[(windows["obs"][:, 2, 0] >= 10)], windows), envs, 2, 3, 2, second.policy.get_model()
    )


# ---------------------------------------------------------------- priorities
def test_priorities_are_written_back_for_each_window():
    run = Windows(recurrent(learn=dict(learning_rate=1e-9)), diaries(), 40)
    run.collect()
    learner = Learner(run.policy._cfg.learn.learner, run.policy.learn_mode)
    batch = run.replay.sample(16)
    index = batch["index"].copy()
    info = learner.train(batch, 0)
    assert info["priority"].shape == (16,)
    run.replay.update(index, info["priority"])
    errors = errors_of(run.policy._sequences.outputs(time_major(tree_map(lambda x: x[index], run.all))), rescale=True)
    td = np.where(errors.mask, (errors.wanted - errors.taken).detach().abs(), 0)  # [S, N]
    wanted = 0.9 * td.max(0) + 0.1 * td.sum(0) / errors.mask.sum(0).numpy()
    np.testing.assert_allclose(info["priority"], wanted, rtol=1e-4, atol=1e-6)
    again = run.replay.sample(4000)
    share = Counter(again["index"].tolist())
    most, least = index[np.argmax(wanted)], index[np.argmin(wanted)]
    assert share[most] > share[least]


def test_importance_weights_are_those_of_windows():
    run = Windows(recurrent(), diaries(), 40)
    run.collect()
    batch = run.replay.sample(8)
    weight = np.linspace(0.1, 1, 8).astype(np.float32)
    losses = []
    for n in [None, *range(8)]:
        policy = recurrent()
        data = tree_map(np.copy, batch)
        data["weight"] = weight if n is None else np.eye(8, dtype=np.float32)[n]
        losses.append(float(Learner(policy._cfg.learn.learner, policy.learn_mode).train(data, 0)["total_loss"]))
    assert losses[0] == pytest.approx(float(weight @ losses[1:]), rel=1e-5)


# ---------------------------------------------------------------- any network
def test_dqn_trains_any_recurrent_network_and_a_feed_forward_one_as_before():
    policy = make_policy(DQNPolicy, obs_shape=1, model=DRQN(1, 2, [4]), learn_unroll_len=4, burnin_step=1)
    assert policy.collect_mode.get_attribute("windows") == {"unroll_len": 4, "burnin": 1, "tail": 1}
    assert policy.learn_mode.get_attribute("time_major")
    assert make_policy(DQNPolicy).collect_mode.get_attribute("windows") is None
    assert not make_policy(DQNPolicy).learn_mode.get_attribute("time_major")


class Stateless(torch.nn.Module):
    """Claims a state and returns none."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 2)

    def initial_state(self, batch):
        return {"h": torch.zeros(batch, 1, 2)}

    def forward(self, inputs, inference=False):
        return {"logit": self.layer(inputs["obs"])}


def test_a_network_without_next_state_is_named():
    policy = make_policy(DQNPolicy, obs_shape=1, model=Stateless())
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": 1})
    with pytest.raises(KeyError, match=r"hidden_state: the network \(Stateless\) gives \['logit'\].*next_state"):
        SampleCollector(cfg, make_manager(Count(5)), policy.collect_mode).collect()
