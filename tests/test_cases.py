"""Faults met elsewhere, each tried on several parts together; the case's id is in the docstring."""

import multiprocessing
import textwrap

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from ding_like.config import CfgDict, ConfigError
from ding_like.data import ArrayDict, torchify
from ding_like.entry.build import full_config
from ding_like.envs import BaseEnvManager, EnvError, make_env_fns
from ding_like.policy.dqn import DQNPolicy
from ding_like.rl_utils.adder import get_nstep_return_data, get_train_sample
from ding_like.worker import Replay
from tests.envs.toys import Boom, Count
from tests.helpers import make_collector, make_policy, tiny_config

NULL = -1


class LinearQ(nn.Module):
    """Both Q-values are the number in the observation."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return {"logit": (self.scale * x).expand(-1, 2)}


# ---------------------------------------------------------------- targets and the store
def targets(env, **over):
    """Of the first four items: the TD error and the value it was taken from."""
    policy = make_policy(model=LinearQ(), discount_factor=0.5, **over)
    items = make_collector(policy, env, n_sample=4).collect()
    td = policy.learn_mode.forward(torchify(items))["td_error"]
    return (td.numpy() + items["obs"][:, 0])[:4].tolist()


@pytest.mark.parametrize(("trunc", "wanted"), [(True, [1.5, 2.0, 2.5, 3.0]), (False, [1.5, 2.0, 2.5, 1.0])])
@pytest.mark.parametrize("double", [True, False])
def test_a_time_out_bootstraps_from_the_value_of_the_final_observation(trunc, wanted, double):
    """Case B11: 1 + 0.5 * 4 = 3 where the fault gives 1 + 0.5 * 3, or 1 + 0.5 * 0 from the reset observation."""
    assert targets(Count(4, trunc=trunc), double=double) == wanted


@pytest.mark.parametrize("nstep", [2, 3, 6])
def test_longer_returns_bootstrap_from_the_final_observation_too(nstep):
    """Case B11 with n-step returns: rewards of 1 over the true distance k, then gamma^k times the obs reached."""
    distances = [min(nstep, 4 - t) for t in range(4)]
    wanted = [sum(0.5**i for i in range(k)) + 0.5**k * (t + k) for t, k in enumerate(distances)]
    assert targets(Count(4, trunc=True), nstep=nstep) == pytest.approx(wanted)


def test_a_store_with_fewer_items_than_a_batch_waits_or_draws_with_replacement():
    """Case B21, uniform: 3 items, batch 8."""
    store = Replay(CfgDict(replay_buffer_size=100))
    store.push(ArrayDict(obs=np.arange(3.0)[:, None], reward=np.zeros(3, np.float32)))
    assert not store.ready(8) and list(store.batches(2, 8)) == []
    batch = store.sample(8)
    assert batch["obs"].shape == (8, 1) and set(batch["obs"][:, 0]) <= {0.0, 1.0, 2.0}


def test_a_store_that_can_never_fill_a_batch_is_named_with_both_settings():
    """Case B21: 3 items for ever, batch 8."""
    config = tiny_config(
        learn={"batch_size": 8}, collect={"n_sample": 2}, other={"replay_buffer": {"replay_buffer_size": 3}}
    )
    with pytest.raises(ConfigError, match=r"replay_buffer_size: got 3, wanted at least 8.*policy\.learn\.batch_size"):
        full_config(config)


# ---------------------------------------------------------------- windows
BURNIN, NSTEP, SPAN, GAMMA = 3, 2, 5, 0.5


def episode(first, last, terminated):
    """Steps `[first, last]` of one episode; obs is the step index, the stored state counts the steps before it."""
    x = np.arange(first, last + 1)
    ends = np.zeros(len(x), bool)
    ends[-1] = terminated
    return ArrayDict(
        obs=x * 1.0,
        next_obs=x + 1.0,
        action=x,
        reward=3.0 ** (x % 7),
        done=ends,
        terminated=ends.copy(),
        prev_state={"h": x[:, None] * 1.0},
    )


def windows(data):
    """As a recurrent policy cuts them: burn-in 3, five trained steps, two more to bootstrap from."""
    returns = get_nstep_return_data(data, NSTEP, cum_reward=True, gamma=GAMMA)
    return get_train_sample(returns, SPAN + NSTEP, burnin=BURNIN, tail=NSTEP)


def window_from(samples, step):
    """The window whose first slot is that step."""
    (i,) = [i for i in range(len(samples["obs"])) if not samples["null"][i, 0] and samples["action"][i, 0] == step]
    return samples[i]


def test_a_window_trains_after_its_burn_in_and_bootstraps_nstep_further():
    """Case B23: steps 20..29 of a longer episode, burn-in 3, n=2; `CountRNN`'s state at a slot is the step's index."""
    data = episode(3, 60, False)
    window = window_from(windows(data), 20)
    trained, ahead = slice(BURNIN, BURNIN + SPAN), slice(BURNIN + NSTEP, BURNIN + NSTEP + SPAN)
    assert window["obs"].tolist() == list(range(20, 30)) and not window["null"].any()
    assert window["prev_state"]["h"].tolist() == [[20.0]]
    assert window["prev_state"]["h"][0, 0] + BURNIN == window["obs"][trained][0] == 23
    assert window["prev_state"]["h"][0, 0] + BURNIN + NSTEP == window["obs"][ahead][0] == 25
    assert window["action"][trained].tolist() == [23, 24, 25, 26, 27]
    raw = dict(zip(data["action"].tolist(), data["reward"].tolist()))
    assert window["reward"][trained].tolist() == [raw[t] + GAMMA * raw[t + 1] for t in range(23, 28)]
    assert window["value_gamma"][trained].tolist() == [GAMMA**2] * 5 and not window["done"][trained].any()
    assert window["obs"][ahead].tolist() == window["next_obs"][trained].tolist() == [25, 26, 27, 28, 29]


def test_the_first_window_of_an_episode_trains_from_its_first_step_with_the_initial_state():
    """Case B23: the burn-in slots before step 0 are null."""
    first = windows(episode(0, 19, False))[0]
    assert first["null"].tolist() == [True] * 3 + [False] * 7 and first["mask"].tolist() == [0.0] * 3 + [1.0] * 7
    assert first["obs"][BURNIN:].tolist() == [0, 1, 2, 3, 4, 5, 6] and first["prev_state"]["h"].tolist() == [[0.0]]


def test_every_step_before_a_terminal_one_trains_and_only_whole_returns_bootstrap():
    """Case B23: step 29 terminates; 23..29 all train, of which 23..27 bootstrap."""
    samples = windows(episode(3, 29, True))
    trained = slice(BURNIN, BURNIN + SPAN)
    bootstraps = {}
    for action, null, done in zip(samples["action"], samples["null"], samples["done"]):
        bootstraps |= {int(a): not d for a, n, d in zip(action[trained], null[trained], done[trained]) if not n}
    assert {t: bootstraps[t] for t in range(23, 30)} == {t: t <= 27 for t in range(23, 30)}


def test_windows_without_burn_in_start_at_the_trained_step():
    """Case B23, burn-in 0."""
    returns = get_nstep_return_data(episode(0, 19, False), NSTEP, cum_reward=True, gamma=GAMMA)
    samples = get_train_sample(returns, SPAN + NSTEP, tail=NSTEP)
    assert samples["obs"][1].tolist() == [5, 6, 7, 8, 9, 10, 11] and samples["prev_state"]["h"][1].tolist() == [[5.0]]


@pytest.mark.parametrize(
    ("last_fn_type", "rows", "states"),
    [
        ("last", [[0, 1], [1, 2], [10, 11], [11, 12]], [0, 1, 0, 1]),
        ("null_padding", [[0, 1], [2, NULL], [10, 11], [12, NULL]], [0, 2, 0, 2]),
    ],
)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_chunks_of_a_block_keep_env_columns_apart_and_start_from_their_own_state(last_fn_type, rows, states, kind):
    """Case B32: 2 envs x 3 steps, obs = 10 env + t, chunks of 2; the stored state counts the steps of its env."""
    t = np.arange(3)[:, None]
    no = np.zeros((3, 2), bool)
    block = ArrayDict(
        obs=t + np.array([0, 10]),  # [T, B]
        reward=np.zeros((3, 2)),
        done=no,
        prev_state={"h": np.broadcast_to(t[..., None], (3, 2, 1)).copy()},
    )
    chunks = get_train_sample(torchify(block) if kind == "torch" else block, 2, last_fn_type)
    obs, null = np.asarray(chunks["obs"]), np.asarray(chunks["null"])
    assert np.where(null, NULL, obs).tolist() == rows
    assert np.asarray(chunks["prev_state"]["h"]).shape == (4, 1, 1)
    assert np.asarray(chunks["prev_state"]["h"]).ravel().tolist() == states


# ---------------------------------------------------------------- envs
@pytest.fixture
def boom_id():
    gymnasium.register("Boom-v0", Boom)
    yield "Boom-v0"
    del gymnasium.registry["Boom-v0"]


def test_an_exception_in_one_env_names_env_column_and_text(boom_id):
    """Case B46 (a) for the in-process manager: id, column, step, text; the traceback is kept, the others close."""
    closed = []

    class Closes(Count):
        def close(self):
            closed.append(self.n)

    (make,) = make_env_fns({"type": boom_id}, 1)
    manager = BaseEnvManager([lambda: Closes(100), make])
    manager.launch(0)
    with pytest.raises(
        EnvError, match=r"env 'Boom-v0', column 1 \(collect\): step\(0\).*after 7 steps.*boom-7"
    ) as error:
        for _ in range(20):
            manager.step(np.zeros(2, np.int64))
    assert isinstance(error.value.__cause__, RuntimeError)
    assert error.value.__cause__.__traceback__.tb_next is not None
    manager.close()
    assert closed == [100]


def test_an_exception_in_one_env_reaches_the_caller_of_a_collect(boom_id):
    """Case B46 (a), through the collector."""
    with pytest.raises(EnvError, match=r"column 1 \(collect\).*boom-7"):
        make_collector(make_policy(DQNPolicy), Count(100), Boom(), n_sample=40).collect()


MODULE = """
    import gymnasium
    from gymnasium import spaces
    import numpy as np

    class Far(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (1,))
        action_space = spaces.Discrete(2)
        def reset(self, *, seed=None, options=None):
            return np.full(1, 0.5, np.float32), {}
        def step(self, action):
            return np.full(1, 0.25, np.float32), 2.0, True, False, {}

    gymnasium.register("Far-v0", Far)
"""


def _play(pickled, pipe):
    """In another process: make the envs, take one step, tell what came back."""
    manager = BaseEnvManager(cloudpickle.loads(pickled))
    manager.launch(0)
    timestep = manager.step(np.zeros(manager.env_num, np.int64))
    pipe.send((timestep.obs.tolist(), timestep.reward.tolist(), timestep.terminated.tolist()))


@pytest.mark.system
@pytest.mark.parametrize("given", ["lambda", "local class", "dotted path"])
def test_env_factories_survive_the_start_of_a_fresh_process(given, in_tmp):
    """Case B58: start method spawn, factories sent by cloudpickle."""
    (in_tmp / "far_away.py").write_text(textwrap.dedent(MODULE))
    bonus = 1.0  # a closure

    class Local(Count):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, reward + bonus, *rest

    cfg, setting = {"type": "far_away:Far-v0"}, None
    if given != "dotted path":
        cfg, setting = {}, Local if given == "local class" else lambda: Count(1, reward=1.0 + bonus)
    fns = make_env_fns(cfg, 2, env_setting=setting)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_play, args=(cloudpickle.dumps(fns), there))
    process.start()
    there.close()
    try:
        assert here.poll(20), "the process told nothing"
        obs, reward, terminated = here.recv()
    finally:
        process.join(5)
        process.kill()
    wanted = {"lambda": (1.0, True), "local class": (1.0, False), "dotted path": (0.25, True)}[given]
    assert (obs, reward, terminated) == ([[wanted[0]]] * 2, [2.0] * 2, [wanted[1]] * 2)
    assert process.exitcode == 0
