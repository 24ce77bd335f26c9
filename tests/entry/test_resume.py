"""Exact resume: a run that breaks off and is resumed ends as one never stopped; what cannot be exact says so."""

import json
import os
import random
import shutil
import threading
import weakref
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import ConfigError, deep_merge_defaults
from ding_like.entry import collect_dataset, resume, serial_pipeline
from ding_like.entry.resume import POINT
from ding_like.entry.run_folder import RunFolder
from ding_like.policy.dqn import DQNPolicy
from ding_like.torch_utils.checkpoint import CheckpointError
from ding_like.utils import ENV_REGISTRY, HOOK_REGISTRY, POLICY_REGISTRY
from ding_like.utils.log import RunFolderError
from ding_like.worker import LearnerHook
from tests.entry.resuming import OFTEN, Break, Crash, assert_equal_runs, broken_and_resumed, last_point
from tests.helpers import Constant, metrics, result, single, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")


@pytest.fixture(autouse=True)
def _hook():
    HOOK_REGISTRY.register("break", Break)
    HOOK_REGISTRY.register("draws", Draws)
    ENV_REGISTRY.register("masked_parts", MaskedParts)
    Break.at = None


def config(over=(), env_type="CartPole-v1", policy_type="dqn", **policy):
    policy = deep_merge_defaults(policy, {"learn": {"learner": {"hooks": [{"type": "break"}]}}})
    made = single(tiny_config("run", **policy))
    made["env"]["type"], made["policy"]["type"] = env_type, policy_type
    return deep_merge_defaults(made, {"resume": OFTEN}, dict(over))


def on_policy(**policy):
    made = single(tiny_config("run"))
    learn = {"batch_size": 16, "learner": {"hooks": [{"type": "break"}]}}
    made["policy"] = deep_merge_defaults(
        dict(
            type="ppo",
            model=dict(encoder_hidden_size_list=[16]),
            learn=learn,
            collect=dict(n_sample=32),
            eval=dict(evaluator=dict(eval_freq=20)),
        ),
        policy,
    )
    return deep_merge_defaults(made, {"resume": OFTEN})


class Draws(LearnerHook):
    """Its numbers come from the global generators and go with its own count."""

    def __init__(self, position):
        self.position, self.count = position, 0

    def __call__(self, learner):
        self.count += 1
        x, y = float(torch.rand(1)), np.random.rand() + random.random()
        last = float(learner.last.get("total_loss", 0.0))
        learner.logger.log({"x": x, "y": y, "n": self.count, "last": last}, 0, learner.train_iter, self.position)

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def hooked():
    hooks = [
        *({"type": "draws", "position": at} for at in ("before_collect", "before_iter", "after_iter", "after_eval")),
        {"type": "evaluation", "freq": 50, "unit": "env_step"},
        {"type": "checkpoint", "freq": 3, "keep": 2},
        {"type": "early_stop", "patience": 100},
        {"type": "lr_schedule", "kind": "cosine", "decay": 200, "warmup": 20},
        {"type": "break"},
    ]
    made = config()
    made["policy"]["learn"]["learner"]["hooks"] = hooks
    return made


def climbing(policy_type, env_type="Pendulum-v1", **policy):
    """A policy with actor and critics, small; resumed where its actor, which is updated less often, waits."""
    made = single(tiny_config("run"))
    made["env"]["type"] = env_type
    sizes = dict(
        type=policy_type,
        nstep=2,
        random_collect_size=20,
        model=dict(actor_head_hidden_size=8, critic_head_hidden_size=8),
        learn=dict(batch_size=8, learner={"hooks": [{"type": "break"}]}),
        eval=dict(evaluator=dict(eval_freq=20)),
        other=dict(replay_buffer=dict(replay_buffer_size=200)),
    )
    made["policy"] = deep_merge_defaults(sizes, policy)
    return deep_merge_defaults(made, {"resume": OFTEN})


def prioritised():
    other = {"replay_buffer": {"replay_buffer_size": 60, "alpha_end": 0.3, "anneal_step": 50}}
    return config(nstep=3, priority=True, other=other, learn={"optimizer": "rmsprop"})


def windows():
    model = {"encoder_hidden_size_list": [8], "lstm_type": "gru"}
    over = dict(nstep=2, burnin_step=3, learn_unroll_len=6, model=model, collect={"n_sample": 4})
    made = config(policy_type="r2d2", **over)
    made["policy"]["learn"]["batch_size"] = 4
    return made


def segments():
    model = {"encoder_hidden_size_list": [8], "lstm_type": "pytorch", "share_encoder": False}
    return on_policy(model=model, learn_unroll_len=8, collect={"n_sample": 8}, learn={"batch_size": 2})


def masked():
    return config(env_type="masked_parts", priority=True)


def recurrent(policy_type="dqn", lstm_type="gru", **policy):
    sizes = dict(nstep=2, burnin_step=3, learn_unroll_len=7, collect={"n_sample": 4}, learn={"batch_size": 4})
    model = {"model": {"lstm_type": lstm_type}}
    return config(policy_type=policy_type, **deep_merge_defaults(sizes, model, policy))


def drqn():
    learn = {"target_update_freq": 7, "stored_state": False}
    return recurrent(model={"type": "drqn"}, learn=learn, norm_obs={"use_norm": True}, random_collect_size=20)


class MaskedParts(gymnasium.Env):
    """A Dict of a vector, a Discrete number that starts at 1, a Tuple, and a mask; 9 steps."""

    observation_space = spaces.Dict(
        {
            "x": spaces.Box(-1, 1, (2,), np.float64),
            "n": spaces.Discrete(4, start=1),
            "pair": spaces.Tuple([spaces.Box(0, 255, (3,), np.uint8), spaces.MultiBinary(2)]),
            "action_mask": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        return self._obs(), float(action), self.t == 9, False, {}

    def _obs(self):
        rng = self.np_random
        mask = np.array([1, rng.integers(2), rng.integers(2)], np.int8)
        pair = (rng.integers(0, 256, 3).astype(np.uint8), rng.integers(0, 2, 2).astype(np.int8))
        return {"x": rng.uniform(-1, 1, 2), "n": int(rng.integers(1, 5)), "pair": pair, "action_mask": mask}


def schedules():
    learn = {"lr_schedule": {"type": "linear", "decay": 300}, "target_theta": None, "target_update_freq": 7}
    return config(nstep=3, random_collect_size=20, norm_obs={"use_norm": True}, learn=learn)


def phases(**policy):
    made = on_policy(learn={"batch_size": 8}, **policy)
    made["policy"]["type"] = "ppg"
    made["policy"]["other"] = {"replay_buffer": {"policy_phases": 2, "aux_epochs": 2, "aux_batch_size": 16}}
    return made


def cloning(**policy):
    if not Path("d.npz").exists():
        collect_dataset(single(tiny_config()), model=Constant(0.0, 1.0), episodes=12, out="d.npz")
    made = config(policy_type="bc", learn={"batch_size": 8, "update_per_collect": 4}, **policy)
    for key in ("nstep", "other"):
        del made["policy"][key]
    return deep_merge_defaults(made, {"policy": {"other": {"replay_buffer": {"path": "d.npz"}}}})


CASES = {
    "ppg, in the middle of its phases": (phases, [6, 14, 21]),
    "ppg over two RNNs": (
        lambda: phases(model={"lstm_type": "gru"}, learn_unroll_len=8, collect={"n_sample": 8}),
        [3, 11],
    ),
    "bc, in the middle of an epoch": (cloning, [9, 26]),
    "bc of windows": (lambda: cloning(model={"lstm_type": "gru"}, learn_unroll_len=4, burnin_step=2), [5, 26]),
    "dqn, 3-step, schedules, normaliser, random prefill": (schedules, [9, 25]),
    "dqn, momentum target, replay that wraps": (
        lambda: config(nstep=1, learn={"target_theta": 0.01}, other={"replay_buffer": {"replay_buffer_size": 40}}),
        [13, 30],
    ),
    "ppo, normaliser of observations and values": (
        lambda: on_policy(norm_obs={"use_norm": True}, learn={"value_norm": True}),
        [6, 19],
    ),
    "a2c": (lambda: on_policy(type="a2c", learn={"batch_size": 32}), [3, 8]),
    "ppo, native columns that reset in the next step": (
        lambda: deep_merge_defaults(on_policy(), {"env_manager": {"type": "vector"}}),
        [6, 19],
    ),
    "dqn, native columns": (
        lambda: deep_merge_defaults(config(nstep=1), {"env_manager": {"type": "vector"}}),
        [13, 30],
    ),
    "dqn, prioritised, 3-step, a replay that wraps": (prioritised, [13, 30]),
    "r2d2, burn-in, stored states": (windows, [7, 15]),
    "ppo over two RNNs, segments": (segments, [5, 13]),
    "dqn, hooks that count, draw, save and schedule": (hooked, [13, 30]),
    "dqn, nested observations with a mask": (masked, [9]),
    "dqn with drqn": (drqn, [13, 30]),
    "td3, the actor waits": (lambda: climbing("td3", norm_obs={"use_norm": True}), [9, 25]),
    "sac, learned temperature": (lambda: climbing("sac", priority=True), [9, 25]),
    "discrete sac over two RNNs": (
        lambda: climbing("sac", "CartPole-v1", burnin_step=2, learn_unroll_len=6, model={"lstm_type": "gru"}),
        [7, 15],
    ),
    "r2d2, env steps are counted": (lambda: recurrent("r2d2", collect={"n_step": 21}), [7, 15]),
    "ppo, env steps are counted": (lambda: on_policy(collect={"n_step": 33}), [6, 19]),
    "r2d2, native columns that reset in the next step, a replay that wraps": (
        lambda: deep_merge_defaults(
            recurrent("r2d2", "normal", other={"replay_buffer": {"replay_buffer_size": 20}}),
            {"env_manager": {"type": "vector"}},
        ),
        [9],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_broken_off_twice_ends_as_one_never_stopped(name):
    """Case B55."""
    make, at = CASES[name]
    serial_pipeline(make(), exp_name="straight", max_train_iter=40)
    broken_and_resumed(make(), at, max_train_iter=40)
    assert_equal_runs(Path("straight"), Path("broken"))
    assert metrics("straight")[-1]["train_iter"] >= 40
    one, other = result("straight"), result("broken")
    assert {k: v for k, v in one.items() if k != "wall_time_s"} == {
        k: v for k, v in other.items() if k != "wall_time_s"
    }


def test_a_finished_run_goes_on_to_a_larger_limit_as_if_it_had_never_ended():
    serial_pipeline(config(), exp_name="straight", max_train_iter=40)
    serial_pipeline(config(), exp_name="longer", max_train_iter=16)
    assert result("longer")["train_iter"] == 16
    serial_pipeline(config(), exp_name="longer", max_train_iter=40, resume=True)
    assert_equal_runs(Path("straight"), Path("longer"))


def test_writing_resume_points_changes_nothing():
    serial_pipeline(config(), exp_name="with", max_train_iter=20)
    without = deep_merge_defaults(config(), {"resume": {"enabled": False}})
    serial_pipeline(without, exp_name="without", max_train_iter=20)
    assert metrics("with") == metrics("without")
    assert (Path("with") / POINT).is_file() and not (Path("without") / POINT).exists()


def test_a_limit_inside_a_round_can_be_gone_on_from_exactly():
    make = lambda: config(learn={"update_per_collect": 4})  # noqa: E731
    serial_pipeline(make(), exp_name="straight", max_train_iter=40)
    for limit in (18, 19, 24, 40):
        serial_pipeline(make(), exp_name="longer", max_train_iter=limit, resume=limit > 18)
        assert result("longer")["train_iter"] == limit
    assert_equal_runs(Path("straight"), Path("longer"))


def test_the_replay_of_the_point_is_not_held_beside_the_runs_own(monkeypatch):
    serial_pipeline(config(), exp_name="run", max_train_iter=8)
    seen = []
    real = resume.read_point

    def spy(path):
        state = real(path)
        seen.append(weakref.ref(state["store"]["ring"]["fields"]["obs"]))
        return state

    class Look(LearnerHook):
        position = "before_collect"

        def __call__(self, learner):
            assert seen[0]() is None

    monkeypatch.setattr(resume, "read_point", spy)
    monkeypatch.setattr(Break, "__call__", Look.__call__)
    serial_pipeline(config(), exp_name="run", max_train_iter=16, resume=True)
    assert seen


def test_a_run_in_another_process_is_not_resumed_beside_it():
    serial_pipeline(config(), exp_name="run", max_train_iter=8)
    folder = RunFolder.existing(Path("run"))
    with pytest.raises(RunFolderError, match=r"run in run is running in another process"):
        serial_pipeline(config(), exp_name="run", max_train_iter=16, resume=True)
    folder.close()
    serial_pipeline(config(), exp_name="run", max_train_iter=16, resume=True)


def test_a_state_that_cannot_be_written_is_named_by_its_path():
    class Locked(Draws):
        def state_dict(self):
            return {"lock": threading.Lock()}

    HOOK_REGISTRY.register("locked", Locked)
    made = config()
    made["policy"]["learn"]["learner"]["hooks"] = [{"type": "locked", "position": "after_iter"}]
    with pytest.raises(
        CheckpointError, match=r"state\.learner\.hooks\[\d\]\.state\.lock is a lock, which cannot be pickled"
    ):
        serial_pipeline(made, exp_name="run", max_train_iter=8)


def test_a_priority_that_the_policy_does_not_return_is_missed():
    class Silent(DQNPolicy):
        def _forward_learn(self, data):
            info = super()._forward_learn(data)
            del info["priority"]
            return info

    POLICY_REGISTRY.register("silent", Silent)
    with pytest.raises(ValueError, match=r"_forward_learn of policy 'silent' returns no 'priority'"):
        serial_pipeline(config(policy_type="silent", priority=True), exp_name="run", max_train_iter=8)


class Trace(gymnasium.Env):
    """Obs [number of the episode, step]; the number, drawn from the generator of the env, tells episodes apart."""

    blocked = False
    observation_space = spaces.Box(0, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = float(self.np_random.integers(1, 10**5)), 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        return self._obs(), 1.0, False, self.t == 50, {}

    def _obs(self):
        return np.array([self.episode, self.t], np.float32)

    def __getstate__(self):
        if Trace.blocked:
            raise TypeError("holds a handle")
        return self.__dict__


@pytest.mark.parametrize("nstep", [1, 3])
def test_without_snapshots_the_run_says_so_and_no_item_leads_from_a_cut_episode_into_a_new_one(nstep, caplog):
    caplog.set_level("INFO", "ding_like")
    ENV_REGISTRY.register("trace", Trace)
    Trace.blocked = True
    made = config(env_type="trace", nstep=nstep)
    made["env"]["n_evaluator_episode"] = made["env"]["evaluator_env_num"] = 1
    broken_and_resumed(made, [21, 37], max_train_iter=60)
    Trace.blocked = False
    point = last_point(Path("broken"))
    store = read_items(Path("broken"), nstep)
    assert len(store) > 100
    for obs, next_obs, reward, discount in store:
        assert obs[0] == next_obs[0], "an item leads into another episode"
        steps = next_obs[1] - obs[1]
        assert 1 <= steps <= nstep and np.isclose(discount, 0.99**steps)
        assert np.isclose(reward, sum(0.99**k for k in range(int(steps))))
    assert len({obs[0] for obs, *_ in store}) >= 6  # two columns, cut twice
    assert "holds a handle" in point[".collector.not_exact"]
    assert "resume points of this run are not exact" in caplog.text
    assert "; not exact: " in caplog.text


def test_without_snapshots_no_window_leads_from_a_cut_episode_into_a_new_one():
    ENV_REGISTRY.register("trace", Trace)
    Trace.blocked = True
    made = deep_merge_defaults(recurrent("r2d2", env_type="trace"), {"env": {"n_evaluator_episode": 1}})
    made["env"]["evaluator_env_num"] = 1
    broken_and_resumed(made, [13, 29], max_train_iter=40)
    Trace.blocked = False
    store = loaded(Path("broken"), priority=True).ring
    windows = store.gather(np.arange(store.first, store.end))
    cut = set()
    for obs, mask, done, terminated in zip(*(windows[k] for k in ("obs", "mask", "done", "terminated"))):
        real = mask > 0
        episode, t = obs[real].T
        assert len(set(episode)) == 1 and (np.diff(t) == 1).all() and not terminated[real].any()
        ends = np.flatnonzero(done & real)
        assert real[-1] or ends.tolist() == [np.flatnonzero(real)[-1]]
        if not real[-1]:
            assert (obs[ends[0] + 1 :] == [episode[0], t[-1] + 1]).all(), "not the final observation"
            cut |= {episode[0]} if t[-1] < 49 else set()
    assert len(cut) == 4  # two columns, cut twice


def loaded(folder, **keys):
    from ding_like.config import CfgDict
    from ding_like.entry.resume import read_point
    from ding_like.worker import Replay

    replay = Replay(CfgDict({**Replay.config, "replay_buffer_size": 200, **keys}))
    replay.load_state_dict(read_point(folder / POINT)["store"])
    return replay


def read_items(folder, nstep):
    batch = loaded(folder).sample(3000)
    return list(zip(batch["obs"], batch["next_obs"], batch["reward"], batch["discount"]))


# ---------------------------------------------------------------- mistakes
@pytest.fixture
def finished():
    serial_pipeline(config(), exp_name="run", max_train_iter=10)
    return Path("run")


def test_no_run_to_resume_is_named():
    with pytest.raises(RunFolderError, match=r"no run to resume: neither nowhere nor a numbered sibling"):
        serial_pipeline(config(), exp_name="nowhere", resume=True)


def test_the_newest_numbered_run_is_resumed(finished, caplog):
    caplog.set_level("INFO", "ding_like")
    serial_pipeline(config(), exp_name="run", max_train_iter=10)
    serial_pipeline(config(), exp_name="run", max_train_iter=14, resume=True)
    assert "resuming run_1" in caplog.text
    assert result("run")["train_iter"] == 10 and result("run_1")["train_iter"] == 14


def test_of_several_runs_the_newest_with_this_config_and_seed_is_resumed(finished, caplog):
    caplog.set_level("INFO", "ding_like")
    serial_pipeline(config(), seed=4, exp_name="run", max_train_iter=10)
    serial_pipeline(config(learn={"batch_size": 16}), exp_name="run", max_train_iter=10)
    serial_pipeline(config(), seed=0, exp_name="run", max_train_iter=14, resume=True)
    serial_pipeline(config(), exp_name="run", max_train_iter=18, resume=True)
    assert [result(name)["train_iter"] for name in ("run", "run_1", "run_2")] == [18, 10, 10]
    os.utime(Path("run_1") / POINT)
    serial_pipeline(config(), exp_name="run", max_train_iter=22, resume=True)
    assert result("run_1")["train_iter"] == 22 and result("run_1")["seed"] == 4


def test_the_point_of_another_run_is_refused(finished):
    serial_pipeline(config(nstep=3), exp_name="other", max_train_iter=10)
    shutil.copy(Path("other") / POINT, finished / POINT)
    with pytest.raises(ConfigError, match=r"policy\.nstep was 3, is 2"):
        serial_pipeline(config(), exp_name="run", resume=True)


def test_metrics_changed_by_hand_are_named(finished):
    path = finished / "metrics.jsonl"
    path.write_text('{"odd": 1}\n' + path.read_text())
    with pytest.raises(RunFolderError, match="do not end with a line"):
        serial_pipeline(config(), exp_name="run", max_train_iter=20, resume=True)


def test_a_network_argument_that_no_file_can_hold_does_not_hinder():
    made = config(model={"activation": torch.nn.Tanh})
    serial_pipeline(made, exp_name="straight", max_train_iter=20)
    broken_and_resumed(made, [9], max_train_iter=20)
    assert_equal_runs(Path("straight"), Path("broken"))


def test_a_changed_config_is_refused_by_key(finished):
    with pytest.raises(ConfigError, match=r"policy\.learn\.batch_size was 8, is 16.*--load-path"):
        serial_pipeline(config(learn={"batch_size": 16}), exp_name="run", resume=True)


def test_another_seed_is_refused(finished):
    with pytest.raises(ConfigError, match=r"no run to resume has this config. In run: seed was 0, is 5"):
        serial_pipeline(config(), seed=5, exp_name="run", resume=True)


def test_resume_does_not_go_with_a_checkpoint(finished):
    with pytest.raises(ConfigError, match="leave out load_path"):
        serial_pipeline(config(), exp_name="run", resume=True, load_path="run/ckpt/ckpt_best.pth.tar")


@pytest.mark.parametrize("keep", [0, 10, 1000, 0.5, 0.99])
def test_a_truncated_point_is_a_named_error(finished, keep):
    path = finished / POINT
    data = path.read_bytes()
    path.write_bytes(data[: keep if keep > 1 or keep == 0 else int(len(data) * keep)])
    with pytest.raises(CheckpointError, match=r"resume point .* cannot be read, it is damaged"):
        serial_pipeline(config(), exp_name="run", resume=True)


def test_a_checkpoint_in_place_of_a_point_is_a_named_error(finished):
    shutil.copy(finished / "ckpt" / "ckpt_best.pth.tar", finished / POINT)
    with pytest.raises(CheckpointError, match="is no resume point"):
        serial_pipeline(config(), exp_name="run", resume=True)


def test_a_full_disk_ends_the_run_with_its_results_and_the_former_point(monkeypatch):
    real, written = torch.save, []

    def save(content, path):
        if Path(path).name.startswith("point"):
            written.append(path)
            if len(written) == 4:
                Path(path).write_bytes(b"half")
                raise OSError(28, "No space left on device")
        real(content, path)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", save)
        with pytest.raises(CheckpointError, match=r"resume point .* cannot be written: .*No space left.*untouched"):
            serial_pipeline(config(), exp_name="broken", max_train_iter=40)
    assert result("broken")["train_iter"] > 0 and not list(Path("broken").rglob("*.part"))
    serial_pipeline(config(), exp_name="broken", max_train_iter=40, resume=True)
    serial_pipeline(config(), exp_name="straight", max_train_iter=40)
    assert_equal_runs(Path("straight"), Path("broken"))


def test_metrics_written_after_the_point_come_once():
    made = deep_merge_defaults(config(), {"resume": {"every": 1000.0}})  # a point at the start alone
    serial_pipeline(made, exp_name="straight", max_train_iter=40)
    broken_and_resumed(made, [35], max_train_iter=40)
    assert metrics("straight") == metrics("broken")
    lines = [json.loads(line) for line in Path("broken/metrics.jsonl").read_text().splitlines()]
    assert [line["wall_time_s"] for line in lines] == sorted(line["wall_time_s"] for line in lines)


def test_an_error_before_the_first_point_leaves_nothing_to_resume():
    Break.at = 1
    made = deep_merge_defaults(config(), {"resume": {"enabled": False}})
    with pytest.raises(Crash):
        serial_pipeline(made, exp_name="early", max_train_iter=10)
    with pytest.raises(RunFolderError, match="no run to resume"):
        serial_pipeline(made, exp_name="early", max_train_iter=10, resume=True)
