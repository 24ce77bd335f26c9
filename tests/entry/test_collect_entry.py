"""Collecting a dataset: whole episodes, as many as asked for, of the policy as it is evaluated or as it trains."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import ConfigError
from ding_like.entry import cli, collect_dataset, serial_pipeline
from ding_like.policy import load_policy
from ding_like.torch_utils.checkpoint import save_checkpoint
from ding_like.utils import ENV_REGISTRY
from ding_like.worker.replay_buffer import load_dataset
from ding_like.worker.replay_buffer.dataset import DatasetError
from tests.envs.toys import CountDict
from tests.helpers import Constant, ding, metrics, single, tiny_config
from tests.policy.contract import CASES, Toy, action_of, components, config_of
from tests.policy.test_actor_critic import Box
from tests.worker.test_sample_collector import Diary

pytestmark = pytest.mark.usefixtures("in_tmp")
CHECKPOINT = "run/ckpt/ckpt_best.pth.tar"


def config(columns=2, **over):
    made = single(tiny_config("run", **over))
    made["env"]["collector_env_num"] = columns
    return made


def diaries(*lengths):
    """An env for each column: episodes of these lengths in turn."""
    return (
        lambda cfg: Diary(cfg["column"], cfg["lengths"]),
        [dict(column=b, lengths=n) for b, n in enumerate(lengths)],
        [],
    )


def diary_dataset(*lengths, **asked):
    model = Constant(0.0, 1.0, 0.5)
    told = collect_dataset(config(len(lengths)), env_setting=diaries(*lengths), model=model, out="d.npz", **asked)
    return told, load_dataset("d.npz")


@pytest.fixture
def trained(in_tmp):
    serial_pipeline(tiny_config(), seed=0, max_train_iter=25)


# ---------------------------------------------------------------- what is collected
def test_each_column_plays_its_share_of_the_episodes_and_all_are_whole():
    told, made = diary_dataset([2, 3], [7, 5], episodes=5)
    assert told == {"path": "d.npz", "episodes": 5, "steps": 19, "mean_return": pytest.approx(told["mean_return"])}
    obs = made.steps["obs"]  # column, episode, t
    found = [(int(o[0]), int(o[1])) for o in obs[made.starts]]
    assert sorted(found) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]  # and not six of the shorter ones
    for start, end, final in zip(made.starts, made.ends, made.finals):
        np.testing.assert_array_equal(obs[start:end, 2], np.arange(end - start))
        np.testing.assert_array_equal(final, [*obs[start, :2], end - start])
        flags = made.steps["terminated"][start:end], made.steps["truncated"][start:end]
        late = int(obs[start, 1]) % 2
        assert [f[:-1].any() for f in flags] == [False, False]
        assert [bool(f[-1]) for f in flags] == [not late, bool(late)]
    assert told["mean_return"] == pytest.approx(made.returns.mean())
    assert made.header["mean_return"] == told["mean_return"] and made.header["steps"] == 19


def test_each_column_plays_its_share_of_the_steps_at_least():
    _, made = diary_dataset([2, 3], [7, 5], env_step=13)
    lengths = {b: [] for b in (0, 1)}
    for start, end in zip(made.starts, made.ends):
        lengths[int(made.steps["obs"][start, 0])].append(int(end - start))
    assert lengths == {0: [2, 3, 2], 1: [7]}


def test_an_endless_episode_is_cut_as_truncated():
    cfg = config(1, collect={"max_traj_len": 8})
    collect_dataset(cfg, env_setting=diaries([1000]), model=Constant(0.0, 1.0, 0.5), out="d.npz", env_step=12)
    made = load_dataset("d.npz")
    assert made.starts.tolist() == [0, 8] and np.flatnonzero(made.steps["truncated"]).tolist() == [7, 15]
    np.testing.assert_array_equal(made.finals[:, 2], [8, 16])


def test_an_observation_of_parts_is_kept_in_its_parts():
    model = Constant(0.0, 1.0)
    model.forward = lambda x: {"logit": model.q.expand(len(x["t"]), -1)}
    collect_dataset(config(), env_setting=lambda: CountDict(3), model=model, out="d.npz", episodes=2)
    obs = load_dataset("d.npz").steps["obs"]
    np.testing.assert_array_equal(obs["a"]["b"][:, 0], [0, 1, 2] * 2)
    assert obs["t"].shape[0] == 6


# ---------------------------------------------------------------- what the policy does
def test_it_does_what_the_evaluated_policy_does(trained):
    collect_dataset(config(), seed=3, load_path=CHECKPOINT, out="d.npz", episodes=3)
    made = load_dataset("d.npz")
    wanted = load_policy(CHECKPOINT).act(made.steps["obs"], batched=True)
    np.testing.assert_array_equal(made.steps["action"], wanted)
    assert set(made.steps) == {"obs", "action", "reward", "terminated", "truncated", "logit"}
    header = {key: made.header[key] for key in ("policy", "env", "seed", "sample")}
    assert header == {"policy": "dqn", "env": "CartPole-v1", "seed": 3, "sample": False}


def test_sampling_explores_as_training_did(trained):
    for name, sample in (("still.npz", False), ("drawn.npz", True), ("again.npz", True)):
        collect_dataset(config(), load_path=CHECKPOINT, out=name, episodes=4, sample=sample)
    drawn, again = load_dataset("drawn.npz"), load_dataset("again.npz")
    best = drawn.steps["logit"].argmax(-1)
    assert 0.2 < (drawn.steps["action"] != best).mean() < 0.7  # epsilon is about 0.9, of two actions
    np.testing.assert_array_equal(drawn.steps["action"], again.steps["action"])


@pytest.mark.parametrize(("name", "net"), CASES)
def test_every_policy_collects_whole_episodes_as_it_trains(name, net):
    with components(name, net) as parts:
        state = parts.policy.learn_mode.state_dict()
    if "log_alpha" in state:
        state["log_alpha"].fill_(-20.0)  # at the temperature that was learned the best action is taken
    save_checkpoint("a.pth.tar", name, state, {"train_iter": 0, "envstep": 0})
    env = partial(Toy, "vector", action_of(name, net))
    collect_dataset(config_of(name, net), env_setting=env, load_path="a.pth.tar", out="d.npz", episodes=3, sample=True)
    made = load_dataset("d.npz")
    assert len(made.starts) == 3 and (made.steps["terminated"] | made.steps["truncated"])[made.ends - 1].all()
    assert "log_alpha" not in state or (made.steps["action"] == made.steps["logit"].argmax(-1)).all()


def test_continuous_actions_are_kept_in_both_units():
    box = Box()
    ENV_REGISTRY.register("a_box", Box)
    policy = dict(type="ppo", learn=dict(batch_size=8, epoch_per_collect=1), collect=dict(n_sample=16))
    env = dict(type="a_box", max_episode_steps=5, collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    serial_pipeline(dict(exp_name="run", env=env, policy=policy), max_train_iter=1)
    collect_dataset("run/total_config.yaml", load_path="run", out="d.npz", episodes=2, sample=True)
    steps = load_dataset("d.npz").steps
    assert isinstance(box.action_space, spaces.Box)
    assert steps["action"].shape == (len(steps["reward"]), int(np.prod(box.action_space.shape)))
    assert all(box.action_space.contains(a) for a in steps["env_action"])
    assert set(steps["logit"]) == {"mu", "sigma"}


# ---------------------------------------------------------------- what does not fit
def test_an_existing_file_stays(trained):
    Path("d.npz").write_text("mine")
    with pytest.raises(DatasetError, match=r"d\.npz exists; choose another file \(--out\)"):
        collect_dataset(config(), load_path=CHECKPOINT, out="d.npz", episodes=1)
    assert Path("d.npz").read_text() == "mine"


@pytest.mark.parametrize("asked", [{}, {"env_step": 5, "episodes": 1}, {"episodes": 0}])
def test_how_much_is_one_number(asked):
    with pytest.raises(ConfigError, match="wanted one of them"):
        collect_dataset(config(), model=Constant(0.0, 1.0), **asked)


def test_weights_are_wanted():
    with pytest.raises(ConfigError, match=r"collect needs a checkpoint: give --load-path run/ckpt"):
        collect_dataset(config(), episodes=1)


# ---------------------------------------------------------------- the command, and learning from what it wrote
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-m collect --load-path run", "--env-step N or --episodes N"),
        ("-m collect --load-path run --episodes 2 --env-step 5", "one of them"),
        ("-m collect --load-path run --episodes 2 --train-iter 5", "--train-iter: no meaning with -m collect"),
        ("-m collect --load-path run --episodes 2 -s 0 -s 1", "more than one seed"),
        ("-m collect --episodes 2", "-c FILE is missing"),
        ("-m eval --load-path run --episodes 2", "--episodes: no meaning with -m eval"),
        ("-m serial -c c.yaml --sample", "--sample: no meaning with -m serial"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(line, said, capsys):
    assert cli.main(line.split()) == 2
    assert said in capsys.readouterr().err


def cloning(name, **options):
    cfg = config(eval=dict(evaluator=dict(eval_freq=20)))
    cfg["policy"] = {key: cfg["policy"][key] for key in ("model", "eval")}
    cfg["policy"] |= dict(type="bc", learn=dict(batch_size=8), other=dict(replay_buffer=dict(path="d.npz")))
    return serial_pipeline(cfg, exp_name=name, **options)


def test_learning_from_a_dataset_takes_no_env_step_whatever_the_mode():
    collect_dataset(config(), model=Constant(0.0, 1.0), out="d.npz", episodes=4)
    for mode in ("serial", "parallel", "async"):
        cloning(mode, max_train_iter=40, mode=mode)
    assert metrics("serial") == metrics("parallel") == metrics("async")
    assert {line["envstep"] for line in metrics("serial")} == {0}
    assert metrics("serial")[-1]["train_iter"] == 40


def test_a_limit_of_env_steps_says_nothing_of_learning_from_a_dataset():
    collect_dataset(config(), model=Constant(0.0, 1.0), out="d.npz", episodes=4)
    with pytest.raises(ConfigError, match=r"max_env_step .* is 100; .* takes no env step"):
        cloning("run", max_env_step=100)
    with pytest.raises(DatasetError, match=r"dataset e\.npz does not exist"):
        cloning("run", sets=["policy.other.replay_buffer.path=e.npz"])


@pytest.mark.system
def test_a_dataset_is_collected_and_learned_from_by_two_commands(trained, in_tmp):
    done = ding(*["-m", "collect", "--load-path", "run", "--episodes", "3", "--out", "d.npz"], cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["path"] == "d.npz" and told["episodes"] == 3
    text = (
        "exp_name: bc\nenv: {type: CartPole-v1, evaluator_env_num: 1, n_evaluator_episode: 1}\n"
        "policy: {type: il, learn: {batch_size: 16}, other: {replay_buffer: {path: d.npz}}}\n"
    )
    (in_tmp / "bc.yaml").write_text(text)
    done = ding(*["-m", "serial", "-c", "bc.yaml", "--train-iter", "60"], cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    result = json.loads((in_tmp / "bc" / "result.json").read_text())
    assert (result["env_step"], result["train_iter"]) == (0, 60)
    assert torch.load(in_tmp / "bc/ckpt/iteration_60.pth.tar")["policy"] == "il"
