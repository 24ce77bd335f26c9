"""The contract list: one entry a policy; and what the tests of the contract make of it: envs, components, rounds."""

import copy
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np

from ding_like.config import deep_merge_defaults
from ding_like.entry import collect_dataset
from ding_like.entry.build import build, full_config
from ding_like.entry.loop import SyncLoop
from ding_like.entry.resume import run_state
from ding_like.torch_utils.checkpoint import save_checkpoint
from ding_like.utils.seed import set_global_seed
from ding_like.worker import Learner
from tests.policy.deploying import ACTIONS, OBSERVATIONS


@dataclass(frozen=True)
class Entry:
    """Kinds of action spaces that a policy claims, a small config of it, and what that takes to be recurrent.

    Attributes:
        nets: it has a network of these kinds.
        modes: it runs in these, beside serial.
        idle: a part of its network's parameters that it does not train, by the start of their names.
    """

    actions: tuple[str, ...]
    policy: dict
    recurrent: dict
    nets: tuple[str, ...] = ("feed-forward", "recurrent")
    modes: tuple[str, ...] = ("parallel", "async")
    idle: tuple[str, ...] = ()


ANY = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
NETWORK = dict(encoder_hidden_size_list=[8, 8])
REPLAY = dict(
    nstep=2,
    random_collect_size=8,
    learn=dict(batch_size=8, update_per_collect=3),
    collect=dict(n_sample=8),
    other=dict(replay_buffer=dict(replay_buffer_size=60)),
)
WINDOWS = dict(burnin_step=2, learn_unroll_len=5, learn=dict(batch_size=4), collect=dict(n_sample=4))
LSTM = dict(lstm_type="gru")
EPOCH = dict(batch_size=16, epoch_per_collect=1, value_norm=True)
ROLLOUT = dict(model=NETWORK, learn=EPOCH, collect=dict(n_sample=32))
SEGMENTS = dict(learn_unroll_len=4, model=LSTM, collect=dict(n_sample=8), learn=dict(batch_size=4))
PHASES = dict(other=dict(replay_buffer=dict(policy_phases=2, aux_epochs=1, aux_batch_size=16)))
UNROLLS = dict(model=NETWORK, learn_unroll_len=4, learn=dict(batch_size=4), collect=dict(n_sample=6))
CLONING = dict(
    model=NETWORK,
    learn=dict(batch_size=8, update_per_collect=2),
    other=dict(replay_buffer=dict(path="dataset.npz")),
)

q_learning = Entry(("Discrete",), dict(REPLAY, model=NETWORK), dict(WINDOWS, model=dict(LSTM, type="drqn")))
climbing = Entry(("Box",), dict(REPLAY, model=NETWORK), dict(WINDOWS, model=LSTM))
on_policy = Entry(ANY, ROLLOUT, SEGMENTS, modes=("parallel",))

CONTRACT = {
    "dqn": q_learning,
    "r2d2": replace(q_learning, nets=("recurrent",)),
    "c51": q_learning,
    "qrdqn": q_learning,
    "iqn": q_learning,
    "rainbow": q_learning,
    "sqn": q_learning,
    "a2c": on_policy,
    "ppo": on_policy,
    "ppg": replace(on_policy, policy=deep_merge_defaults(ROLLOUT, PHASES)),
    "impala": Entry(ANY, UNROLLS, dict(model=LSTM)),
    "ddpg": climbing,
    "td3": climbing,
    "sac": replace(climbing, actions=("Discrete", "Box")),
    "bc": Entry(
        ANY,
        CLONING,
        dict(learn_unroll_len=4, burnin_step=2, model=LSTM),
        modes=(),
        idle=("critic", "actor_head.log_sigma"),
    ),
}
"""A new policy is one line here."""

CASES = [(name, net) for name, entry in CONTRACT.items() for net in entry.nets]
KINDS = {name: type(space).__name__ for name, space in ACTIONS.items()}
IMAGES_AND_TREES = ("uint8 image", "dict", "tuple")


def spaces_of(name):
    """Names of pairs of an observation and an action space in which every kind of both that a policy claims occurs."""
    actions = [action for action, kind in KINDS.items() if kind in CONTRACT[name].actions]
    seen = ["vector", *IMAGES_AND_TREES]
    return [(seen[i % len(seen)], actions[i % len(actions)]) for i in range(max(len(seen), len(actions)))]


def action_of(name, net="feed-forward"):
    """The name of an action space, with bounds, that a policy claims; of several kinds this one for such a network."""
    first = {"feed-forward": "Box", "recurrent": "Discrete"}[net]
    claimed = CONTRACT[name].actions
    return {"Box": "float64 box", "Discrete": "discrete"}[first if first in claimed else claimed[0]]


class Toy(gymnasium.Env):
    """Observations of chance, rewards of chance; episodes of 2 to 6 steps, of which every second one is truncated.

    Where the observation has an `action_mask`, a forbidden action raises, and the last one of a terminated episode
    forbids all. `taken` are the actions that every env of this process took, one after the other.

    Args:
        own: its seed, whatever `reset` says.
    """

    taken: list = []

    def __init__(self, obs="vector", action="discrete", own=None):
        self.observation_space, self.action_space = copy.deepcopy((OBSERVATIONS[obs], ACTIONS[action]))
        self.masked, self.own, self.episode = obs == "mask", own is not None, 0
        self._start(own or 0)

    def _start(self, seed):
        self.rng = np.random.default_rng(seed)
        self.observation_space.seed(seed)

    def see(self, end=False):
        obs = self.observation_space.sample()
        if self.masked:
            mask = obs["action_mask"]
            mask[self.rng.integers(len(mask))] = 1
            mask *= not end
            self.mask = mask
        return obs

    def reset(self, *, seed=None, options=None):
        if seed is not None and not self.own:
            self._start(seed % 2**32)
        self.t, self.episode, self.length = 0, self.episode + 1, int(self.rng.integers(2, 7))
        return self.see(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        assert not self.masked or self.mask[action - self.action_space.start], f"{action} is forbidden by {self.mask}"
        Toy.taken.append(action)
        self.t += 1
        end, cut = self.t == self.length, bool(self.episode % 2)
        return self.see(end and not cut), float(self.rng.normal()), end and not cut, end and cut, {}


def config_of(name, net="feed-forward", **over):
    """The config of a small run: two env columns; `over` is merged over its policy section."""
    entry = CONTRACT[name]
    section = deep_merge_defaults(entry.policy, entry.recurrent if net == "recurrent" else {}, over)
    return dict(
        exp_name="run",
        env=dict(type="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=3),
        policy=dict(type=name, **section),
    )


def write_dataset(name, env):
    """What an untrained policy did in these envs, where the policy of that name learns from a dataset."""
    path = Path(CONTRACT[name].policy.get("other", {}).get("replay_buffer", {}).get("path", "."))
    if path.exists():
        return
    made = config_of("a2c")
    parts = build(full_config(made), 0, env)
    policy = parts.policy
    save_checkpoint(
        "a.pth.tar", "a2c", policy.learn_mode.state_dict(), {"train_iter": 0, "envstep": 0}, policy.recipe()
    )
    collect_dataset(made, env_setting=env, load_path="a.pth.tar", episodes=12, out=path, sample=True)


@contextmanager
def components(name, net="feed-forward", obs="vector", action=None, seed=0, **over):
    """What a run of the policy in such envs is made of, its `learner` and `loop`; works in the current folder."""
    env = partial(Toy, obs, action or action_of(name, net))
    write_dataset(name, env)
    set_global_seed(seed)
    parts = build(full_config(config_of(name, net, **over)), seed, env)
    parts.learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode)
    parts.loop = SyncLoop(parts, parts.learner, save=None, max_train_iter=0, max_env_step=0)
    try:
        yield parts
    finally:
        parts.close()


def batches_of(parts):
    """Collect, and what is to be trained on then."""
    parts.collector.collect(lambda items: parts.store.push(items))
    policy = parts.policy.learn_mode
    return parts.store.batches(int(policy.get_attribute("updates")), int(parts.cfg.policy.learn.batch_size))


def state_of(parts):
    """What a resume point holds of a run."""
    return run_state(parts, parts.learner, parts.loop, parts.loop.logger)


def train(parts, rounds=1):
    """So many rounds of a run. Returns what every gradient step told."""
    told = []
    parts.collector.start()
    for _ in range(rounds):
        for batch in batches_of(parts):
            told.append(parts.learner.train(batch, parts.collector.envstep))
            if "priority" in told[-1]:
                parts.store.update(batch["index"], told[-1]["priority"])
    return told
