"""Runs of several tasks: what they log, evaluate and refuse, in every sampler, evaluator and after a resume."""

import json
from pathlib import Path

import pytest

from ding_like.config import ConfigError, deep_merge_defaults, load_config
from ding_like.entry import cli, serial_pipeline
from ding_like.entry import eval as evaluate
from ding_like.entry.build import check_names, full_config
from ding_like.entry.env_managers import env_section
from ding_like.entry.video import with_pictures
from ding_like.envs import EnvError
from ding_like.envs.make import task_sections
from ding_like.envs.tasks import each_task
from ding_like.utils import ENV_REGISTRY, HOOK_REGISTRY
from tests.entry.resuming import OFTEN, Break, assert_equal_runs, broken_and_resumed
from tests.envs.toys import Count, CountDict
from tests.helpers import metrics, result, single, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")
TASKS = [  # (length, reward): every return is known, whatever the policy does
    dict(name="two", env_kwargs=dict(n=2, reward=1.0), reference=[0, 4]),
    dict(name="three", env_kwargs=dict(n=3, reward=10.0), reference=[0, 15], wrappers=["reward_clip"]),
]
RETURNS = {"two": (2.0, 2.0), "three": (3.0, 30.0)}  # through the wrappers, and raw


@pytest.fixture(autouse=True)
def _registered():
    ENV_REGISTRY.register("count", Count)
    ENV_REGISTRY.register("nested", CountDict)
    HOOK_REGISTRY.register("break", Break)
    Break.at = None


def config(name="run", **env):
    made = single(tiny_config(name))
    made["env"].update(type="count", tasks=TASKS, collector_env_num=6, **env)
    return made


def assert_told(values, *keys):
    for task, pair in RETURNS.items():
        for key, wanted in zip(keys, pair):
            assert values[f"{key}/{task}"] == wanted
            assert values[key] == sum(pair[keys.index(key)] for pair in RETURNS.values()) / len(RETURNS)


def test_training_and_evaluation_tell_of_each_task(capsys):
    cfg = config()
    serial_pipeline(cfg, max_train_iter=20)
    lines = metrics("run")
    collected = [line for line in lines if line["section"] == "collect"][-1]
    assert_told(collected, "return", "return_raw")
    assert (collected["length/two"], collected["length/three"]) == (2, 3)
    for values in ([line for line in lines if line["section"] == "eval"][-1], result("run")):
        assert_told(values, "eval_value", "eval_value_raw")
    assert cli.main(["-m", "eval", "--load-path", "run"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert_told(told, "eval_value", "eval_value_raw")
    assert told["n_episode"] == 6  # 3 of each task
    assert task_sections(load_config("run/total_config.yaml")["env"])[1].env_kwargs == dict(n=3, reward=10.0)


def test_the_score_stands_in_the_place_of_the_mean_return(caplog):
    caplog.set_level("INFO", "ding_like")
    serial_pipeline(config(score="capped_normalised", stop_value=0.75), max_train_iter=40)
    found = result("run")
    assert found["eval_value"] == (2 / 4 + 1) / 2 and found["stop"] is True
    assert (found["eval_value_raw"], found["eval_value/three"]) == (16.0, 3.0)
    assert "score 0.75 over 6 episodes" in caplog.text


@pytest.mark.parametrize(("columns", "episodes"), [(2, 3), (4, 3), (6, 1), (6, 4)])
def test_an_evaluation_plays_its_number_of_episodes_of_each_task(columns, episodes):
    found = evaluate(config(evaluator_env_num=columns), model=None, load_path=trained(), n_episode=episodes)
    assert sorted(found["returns"]) == [2.0] * episodes + [3.0] * episodes


def trained():
    serial_pipeline(config("weights"), max_train_iter=1)
    return "weights"


@pytest.mark.system
@pytest.mark.parametrize(
    ("mode", "sampler", "workers"),
    [("parallel", "local", 2), ("parallel", "server", 2), ("parallel", "alternating", 3), ("async", "local", 3)],
)
def test_workers_know_the_task_of_their_columns(mode, sampler, workers):
    cfg = deep_merge_defaults(
        config(), {"policy": {"collect": {"collector": {"sampler": sampler, "num_workers": workers}}}}
    )
    cfg["policy"]["eval"]["evaluator"]["where"] = "process"
    serial_pipeline(cfg, max_train_iter=20, mode=mode)
    assert_told([line for line in metrics("run") if line["section"] == "collect"][-1], "return", "return_raw")
    assert_told(result("run"), "eval_value", "eval_value_raw")


def test_a_run_broken_off_ends_as_one_never_stopped():
    cfg = deep_merge_defaults(config(), {"policy": {"learn": {"learner": {"hooks": [dict(type="break")]}}}})
    cfg["resume"] = OFTEN
    serial_pipeline({**cfg, "exp_name": "straight"}, max_train_iter=20)
    broken_and_resumed(cfg, [7, 14], max_train_iter=20)
    assert_equal_runs(Path("straight"), Path("broken"))


def test_the_step_before_is_shown_in_every_task_after_its_own_wrappers():
    cfg = full_config(deep_merge_defaults(config(), {"policy": {"type": "r2d2", "model": {"use_prev_reward": True}}}))
    two, three = task_sections(env_section(cfg))
    shown = dict(type="previous_step", fields=["prev_reward"])
    assert (two.wrappers, three.wrappers) == ([shown], ["reward_clip", shown])


def test_a_video_asks_for_pictures_of_the_tasks_that_take_render_mode():
    cfg = full_config(config())
    cfg.env.tasks = [dict(type="CartPole-v1"), dict(type="count")]
    cart, count = task_sections(each_task(cfg.env, with_pictures))
    assert (cart.env_kwargs, count.env_kwargs) == (dict(render_mode="rgb_array"), {})


def test_spaces_that_differ_are_told_by_config_check_too():
    cfg = full_config(config())
    cfg.env.tasks = [dict(type="CartPole-v1"), dict(type="Acrobot-v1")]
    with pytest.raises(EnvError, match=r"column 1 \(Acrobot-v1\) has the observation_space .* \(CartPole-v1\)"):
        check_names(cfg)


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ({"env": {"collector_env_num": 3}}, "env.collector_env_num: got 3, wanted a multiple of 2"),
        ({"env": {"score": "capped"}}, "env.score: got 'capped', wanted 'capped_normalised', or None"),
        ({"env": {"tasks": {"a": 1}}}, "env.tasks: got {'a': 1}, wanted a list"),
        ({"env_manager": {"type": "vector"}}, "env_manager.type: got 'vector', wanted 'base' with env.tasks: natively"),
    ],
)
def test_what_does_not_go_with_tasks_is_named_before_the_run(over, told):
    made = config()
    for section, values in over.items():
        made[section].update(values)
    with pytest.raises(ConfigError, match=told):
        full_config(made)
