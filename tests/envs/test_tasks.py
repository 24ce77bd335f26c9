"""Tasks of a run: which column runs which, what a task may say, and the score over tasks."""

import re

import pytest

from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.envs import ENV_CONFIG, BaseEnvManager, EnvError, make_env_fns
from ding_like.envs.atari_scores import ATARI_SCORES, scores_of
from ding_like.envs.make import task_sections
from ding_like.envs.tasks import Tasks, each_task, task_mistakes
from ding_like.utils import ENV_REGISTRY
from tests.envs.toys import Count, CountDict, DICount


class Sized(Count):
    """`Count` whose length is a key of the `env` section, with a default of its own."""

    config = dict(size=5, stop_value=1)

    def __init__(self, cfg):
        super().__init__(cfg.size)


@pytest.fixture(autouse=True)
def _registered():
    for name, cls in {"count": Count, "sized": Sized, "of_di": DICount, "nested": CountDict}.items():
        ENV_REGISTRY.register(name, cls, force_overwrite=True)


def section(*tasks, **env):
    return deep_merge_defaults(ENV_CONFIG, {"tasks": list(tasks), **env})


THREE = section(
    dict(name="two", env_kwargs=dict(n=2)),
    dict(name="nine", env_kwargs=dict(n=9, trunc=True)),
    dict(name="cut", env_kwargs=dict(n=9), max_episode_steps=4),
    type="count",
    env_kwargs=dict(reward=3.0),
    collector_env_num=6,
    evaluator_env_num=3,
)


def ends(env):
    env.reset(seed=0)
    for t in range(1, 99):
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            return t, terminated
    return None


@pytest.mark.parametrize("role", ["collect", "eval"])
def test_column_b_runs_task_b_modulo_their_number(role):
    envs = [fn() for fn in make_env_fns(THREE, 6, role)]
    assert [ends(env) for env in envs] == [(2, True), (9, False), (4, False)] * 2
    assert len({id(env.unwrapped) for env in envs}) == 6
    assert [ends(fn()) for fn in make_env_fns(THREE, 4, role)] == [(2, True), (9, False), (4, False), (2, True)]


def test_what_a_task_leaves_out_is_that_of_env_and_its_arguments_are_joined():
    first, second, _ = task_sections(THREE)
    assert (first.type, first.env_kwargs, second.env_kwargs) == (
        "count",
        dict(reward=3.0, n=2),
        dict(reward=3.0, n=9, trunc=True),
    )
    assert "tasks" not in first and task_sections(section(type="count")) == []


def test_a_class_of_ones_own_gets_its_defaults_and_its_own_config_a_column():
    fns = make_env_fns(section(dict(type="sized"), dict(type="sized", name="long", size=8)), 2)
    assert [ends(fn())[0] for fn in fns] == [5, 8]
    fns = make_env_fns(section(dict(type="of_di"), dict(type="of_di", name="b")), 4, "eval")
    cfgs = [fn().env.cfg for fn in fns]
    assert all(cfg["is_train"] is False for cfg in cfgs) and len({id(cfg) for cfg in cfgs}) == 4


def test_a_section_of_such_a_class_that_a_task_gives_in_part_keeps_the_rest():
    class Rooms(Sized):
        config = dict(room=dict(size=5, light=True))

        def __init__(self, cfg):
            super().__init__(CfgDict(size=cfg.room.size))
            self.cfg = cfg

    ENV_REGISTRY.register("rooms", Rooms, force_overwrite=True)
    tasks = dict(name="a", room=dict(size=7)), dict(name="b")
    fns = make_env_fns(section(*tasks, type="rooms", room=dict(light=False)), 2)
    assert [fn().unwrapped.cfg.room for fn in fns] == [dict(size=7, light=False), dict(size=5, light=False)]


def test_tasks_and_an_env_setting_do_not_go_together():
    with pytest.raises(ValueError, match=r"env_setting brings the envs, and env.tasks names others"):
        make_env_fns(THREE, 3, env_setting=Count)


def test_tasks_of_different_spaces_are_named_with_them():
    fns = make_env_fns(section(dict(type="count"), dict(type="nested")), 2)
    with pytest.raises(EnvError, match=r"column 1 \(CountDict\) has the observation_space Dict.*column 0 \(Count\)"):
        BaseEnvManager(fns)


def test_a_change_reaches_every_task_and_twice_is_once():
    def change(env):
        return CfgDict({**env, "env_kwargs": {**env.env_kwargs, "reward": env.env_kwargs.n}})

    changed = each_task(each_task(THREE, change), change)
    assert [task.env_kwargs.reward for task in changed.tasks] == [2, 9, 9]
    assert task_sections(changed) == list(changed.tasks) and changed.collector_env_num == 6
    alone = each_task(section(type="count", env_kwargs=dict(n=3)), change)
    assert alone.env_kwargs == dict(n=3, reward=3) and alone.tasks == []


@pytest.mark.parametrize(
    ("tasks", "env", "told"),
    [
        (["CartPole-v1"], {}, r"env.tasks\[0\]: got 'CartPole-v1', wanted a section, such as dict\(type='CartPole-v1'"),
        ([dict(typo="x")], {}, r"env.tasks\[0\].typo: unknown key; did you mean env.tasks\[0\].type\?"),
        ([dict(env_kwargs=3)], {}, r"env.tasks\[0\].env_kwargs: got 3, wanted a section"),
        ([dict(wrappers="atari")], {}, r"env.tasks\[0\].wrappers: got 'atari', wanted a list"),
        ([dict(name="")], {}, r"env.tasks\[0\].name: got '', wanted a name"),
        ([dict(type=[1])], {}, r"env.tasks\[0\].type: got \[1\], wanted a name"),
        ([dict(max_episode_steps=0)], {}, r"env.tasks\[0\].max_episode_steps: got 0, wanted an integer of at least 1"),
        ([dict(reference=[2, 1])], {}, r"env.tasks\[0\].reference: got \[2, 1\], wanted \[random, reference\], two"),
        ([dict(reference=[0, "1"])], {}, r"env.tasks\[0\].reference: got \[0, '1'\]"),
        ([{}, dict(max_episode_steps=3)], {}, r"env.tasks: two are called 'count'; give each a 'name' of its own"),
        ([dict(name=c) for c in "abc"], {"evaluator_env_num": 3}, r"env.collector_env_num: got 8, wanted a multi"),
        ([dict(name=c) for c in "abcd"], {"evaluator_env_num": 2}, r"env.evaluator_env_num: got 2, wanted a mul"),
        ([], {"score": "capped_normalised"}, r"env.score: got 'capped_normalised', wanted None without env.tasks"),
        (
            [dict(reference=[0, 1]), dict(name="b")],
            {"score": "capped_normalised"},
            r"env.tasks\[1\].reference: got None, wanted \[random, reference\] returns of 'b' for env.score",
        ),
    ],
)
def test_what_a_run_could_not_do_is_named(tasks, env, told):
    (line,) = task_mistakes(section(*tasks, type="count", **env))
    assert re.match(told, line), line


def test_a_right_list_and_none_at_all_have_no_mistakes():
    assert list(task_mistakes(THREE)) == list(task_mistakes(section(type="count"))) == []
    own = section(dict(type="sized", size=3), dict(type="sized", name="b"))
    assert list(task_mistakes(own)) == []


def test_the_capped_normalised_score_is_the_mean_of_the_parts_of_the_way_at_most_one():
    own, pong = dict(reference=[-10, 10]), dict(type="ALE/Pong-v5", name="pong")
    env = section(own, pong, type="count", score="capped_normalised")
    tasks = Tasks.of(env)
    assert tasks == Tasks(("count", "pong"), ((-10.0, 10.0), (-20.7, 14.6)))
    assert tasks.score([0.0, -20.7]) == pytest.approx((0.5 + 0) / 2)
    assert tasks.score([30.0, 21.0]) == 1  # capped
    assert tasks.score([-30.0, 14.6]) == pytest.approx((-1 + 1) / 2)  # not capped below
    assert Tasks.of({**env, "score": None}).references == () == Tasks.of(section(type="count")).names


def test_the_atari_references_are_of_57_games_by_any_id():
    assert len(ATARI_SCORES) == 57
    assert all(random < human for random, human in ATARI_SCORES.values())
    assert scores_of("ALE/Breakout-v5") == (1.7, 30.5) == scores_of("BreakoutDeterministic-v4")
    assert scores_of("MontezumaRevengeNoFrameskip-v4") == (0.0, 4753.3)
    assert scores_of("CartPole-v1") is None is scores_of("Pong")
