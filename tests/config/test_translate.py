import pytest

import ding_like.utils.log as log
from ding_like.config import ConfigError, drop_obsolete, fill_aliases, resolve_aliases
from ding_like.utils import ENV_REGISTRY

DEFAULTS = {
    "env": {"collector_env_num": 8, "evaluator_env_num": 8, "n_evaluator_episode": 8},
    "policy": {"discount_factor": 0.99, "learn": {}, "collect": {}, "eval": {"evaluator": {}}},
}


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch):
    monkeypatch.setattr(log, "_warned", set())


def test_a_value_given_at_its_alias_moves_to_its_source():
    user = {"policy": {"collect": {"env_num": 4, "n_sample": 1}, "learn": {"discount_factor": 0.9}}}
    assert resolve_aliases(user, DEFAULTS) == {
        "env": {"collector_env_num": 4},
        "policy": {"collect": {"n_sample": 1}, "discount_factor": 0.9},
    }
    assert user["policy"]["collect"]["env_num"] == 4


def test_equal_values_in_both_places_are_fine_and_different_ones_raise_naming_both():
    both = {"env": {"collector_env_num": 4}, "policy": {"collect": {"env_num": 4}}}
    assert resolve_aliases(both, DEFAULTS) == {"env": {"collector_env_num": 4}}
    both["policy"]["collect"]["env_num"] = 5
    with pytest.raises(ConfigError, match=r"policy.collect.env_num is 5 but env.collector_env_num is 4; .* keep one"):
        resolve_aliases(both, DEFAULTS)
    two = {"policy": {"learn": {"discount_factor": 0.9}, "collect": {"discount_factor": 0.8}}}
    with pytest.raises(ConfigError, match=r"policy.learn.discount_factor is 0.9 but policy.collect.discount_factor is"):
        resolve_aliases(two, DEFAULTS)


def test_an_alias_stays_where_the_defaults_have_no_source():
    user = {"policy": {"collect": {"unroll_len": 4}}}
    assert resolve_aliases(user, DEFAULTS) == user


def test_every_reader_of_an_alias_finds_the_value_of_the_source():
    cfg = fill_aliases(DEFAULTS)
    assert cfg.policy.collect == {"env_num": 8, "discount_factor": 0.99}
    assert cfg.policy.learn == {"discount_factor": 0.99}
    assert cfg.policy.eval == {"env_num": 8, "evaluator": {"n_episode": 8}}
    assert resolve_aliases(cfg, DEFAULTS) == {"env": DEFAULTS["env"], "policy": {"discount_factor": 0.99}}


def test_obsolete_keys_are_dropped_and_said_once(caplog):
    user = {
        "env": {"manager": {"shared_memory": False}, "x": 1},
        "env_manager": {"cfg_type": "BaseEnvManagerDict", "type": "base"},
        "policy": {
            "learn": {"ignore_done": False, "multi_gpu": False},
            "collect": {"collector": {"collect_print_freq": 1000}},
            "other": {"replay_buffer": {"max_use": 3, "replay_buffer_size": 100}},
        },
    }
    for _ in range(2):
        got = drop_obsolete(user)
    assert got == {
        "env": {"x": 1},
        "env_manager": {"type": "base"},
        "policy": {"other": {"replay_buffer": {"replay_buffer_size": 100}}},
    }
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 6
    assert (
        "env.manager.shared_memory: a key without effect here: an env manager chooses by itself "
        "how observations travel; remove it"
    ) in said
    assert any(line.startswith("env_manager.cfg_type: a key without effect") for line in said)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "ignore_done",
            True,
            "policy.learn.ignore_done: True asks .* only a termination stops a bootstrap; remove",
        ),
        (
            "multi_gpu",
            True,
            "policy.learn.multi_gpu: True asks for what does not exist here: a learner runs on one",
        ),
    ],
)
def test_an_obsolete_key_that_asks_for_something_raises_naming_what_is_there(key, value, message):
    with pytest.raises(ConfigError, match=message):
        drop_obsolete({"policy": {"learn": {key: value}}})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("env.norm_obs", {"use_norm": True}, "observations are normalised by policy.norm_obs.use_norm=True"),
        ("env.norm_reward", {"use_norm": True, "reward_discount": 0.99}, "'reward_scale' or 'reward_clip'"),
        ("env.frame_stack", 4, "type='frame_stack', n=4"),
        ("policy.learn.learner.hook.load_ckpt_before_run", "a.pth.tar", "'a.pth.tar' asks .* give --load-path"),
        ("policy.other.replay_buffer.type", "priority", "'priority' asks .* named in replay_buffer.type"),
        ("policy.other.eps.collect", 0.2, "0.2 asks .* epsilon follows start, end and decay"),
    ],
)
def test_keys_of_di_engine_that_ask_for_something_say_where_it_is_asked_for_here(path, value, message):
    with pytest.raises(ConfigError, match=f"{path}: .*{message}"):
        drop_obsolete(set_in(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("env.norm_obs", {"use_norm": False}),
        ("env.norm_reward", {"use_norm": False, "reward_discount": 0.99}),
        ("env.norm_obs", False),
        ("env.frame_stack", 1),
        ("env.is_train", True),
        ("policy.learn.learner.hook.save_ckpt_after_run", True),
        ("policy.learn.learner.hook.load_ckpt_before_run", ""),
        ("policy.other.replay_buffer.type", "advanced"),
    ],
)
def test_keys_of_di_engine_that_change_nothing_are_dropped_and_said(path, value, caplog):
    assert drop_obsolete(set_in(path, value)) == {}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [path]


def test_flags_that_a_registered_env_may_read_are_left_to_it():
    ENV_REGISTRY.register("reads_frame_stack", object)
    user = {"env": {"type": "reads_frame_stack", "frame_stack": 4, "is_train": True}}
    assert drop_obsolete(user) == user


def set_in(path, value):
    """A config that holds one value, at a dotted path."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def test_messages_may_be_collected_instead_of_raised():
    told = []
    user = {
        "env": {"collector_env_num": 4},
        "policy": {"on_policy": True, "priority": True, "collect": {"env_num": 5, "collector": {"type": "episode"}}},
    }
    user = drop_obsolete(user, DEFAULTS, told)
    assert resolve_aliases(user, DEFAULTS, told) == {"env": {"collector_env_num": 4}}
    assert [line.partition(" ")[0] for line in told] == [
        "policy.priority:",
        "policy.collect.collector.type:",
        "policy.collect.env_num",
    ]


def test_keys_of_old_complete_configs_are_dropped(caplog):
    user = {"policy": {"on_policy": False, "collect": {"collector": {"type": "sample"}}}}
    user["env"] = {"manager": {"auto_reset": True, "retry_type": "reset"}}
    assert drop_obsolete(user, DEFAULTS) == {}
    assert len(caplog.records) == 4


def test_a_key_the_defaults_know_is_not_obsolete():
    user = {"policy": {"on_policy": True, "priority": True}}
    assert drop_obsolete(user, {"policy": {"on_policy": False, "priority": False}}) == user


def test_an_alias_whose_source_the_defaults_know_is_not_obsolete():
    user = {"policy": {"collect": {"unroll_len": 10}}}
    assert drop_obsolete(user, {"policy": {"unroll_len": 1}}) == user
    with pytest.raises(ConfigError, match=r"unroll_len: 10 asks .* this policy trains on single transitions"):
        drop_obsolete(user, {})
    assert drop_obsolete({"policy": {"collect": {"unroll_len": 1}}}, {}) == {}


PPO_DEFAULTS = {
    "replay_buffer": {"type": None},
    "policy": {
        "discount_factor": 0.99,
        "learn": {"grad_clip_norm": 0.5, "epoch_per_collect": 10},
        "collect": {"n_sample": 256, "gae_lambda": 0.95},
        "other": {"replay_buffer": {}},
    },
}


def on_policy(path, value):
    """A config that holds one value, with the store that an on-policy run has."""
    return {**set_in(path, value), "replay_buffer": {"type": "rollout"}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.recompute_adv", True),
        ("policy.nstep_return", False),
        ("policy.collect.n_episode", None),
        ("policy.learn.ppo_param_init", True),
        ("policy.learn.betas", [0.9, 0.999]),
        ("policy.learn.eps", 1e-8),
        ("policy.learn.grad_clip_type", "clip_norm"),
        ("policy.learn.lr_scheduler", None),
        ("policy.transition_with_policy_data", True),
        ("policy.other.replay_buffer.replay_buffer_size", 1000),
        ("policy.other.replay_buffer.max_use", 10),
        ("env.use_act_scale", True),
    ],
)
def test_on_policy_keys_of_di_engine_that_change_nothing_are_dropped_and_said(path, value, caplog):
    for _ in range(2):
        left = drop_obsolete(on_policy(path, value), PPO_DEFAULTS)
    assert left == {"replay_buffer": {"type": "rollout"}}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [path]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("policy.nstep_return", True, "True asks .* policy.collect.gae_lambda says"),
        ("policy.collect.n_episode", 32, "32 asks .* a rollout is policy.collect.n_sample steps"),
        ("policy.learn.ppo_param_init", False, "False asks .* policy.model.orthogonal_init=False keeps"),
        ("policy.learn.betas", (0.5, 0.9), "asks .* those of torch"),
        ("policy.learn.grad_clip_type", "clip_value", "'clip_value' asks .* policy.learn.grad_clip_norm says where"),
        ("policy.learn.lr_scheduler", (2000, 0.1), "asks .* policy.learn.lr_schedule=.* lowers the rate"),
        ("env.use_act_scale", False, "False asks .* continuous actions are always scaled"),
    ],
)
def test_on_policy_keys_of_di_engine_that_ask_for_something_say_what_there_is(path, value, message):
    with pytest.raises(ConfigError, match=f"{path}: .*{message}"):
        drop_obsolete(on_policy(path, value), PPO_DEFAULTS)


def test_keys_of_replay_are_left_to_stores_other_than_the_rollout():
    user = {"replay_buffer": {"type": "mine"}, "policy": {"other": {"replay_buffer": {"replay_buffer_size": 1000}}}}
    assert drop_obsolete(user, PPO_DEFAULTS) == user


@pytest.mark.parametrize("old", ["grad_clip_value", "grad_norm"])
def test_the_clipping_of_gradients_has_one_name(old, caplog):
    wanted = {"policy": {"learn": {"grad_clip_norm": 10}}}
    for _ in range(2):
        assert drop_obsolete({"policy": {"learn": {old: 10}}}, PPO_DEFAULTS) == wanted
    assert [record.getMessage() for record in caplog.records] == [
        f"policy.learn.{old}: is called policy.learn.grad_clip_norm here and taken as that"
    ]
    both = {"policy": {"learn": {old: 10, "grad_clip_norm": 10}}}
    assert drop_obsolete(both, PPO_DEFAULTS) == wanted
    both["policy"]["learn"]["grad_clip_norm"] = 5
    with pytest.raises(
        ConfigError, match=rf"{old} is 10 but policy.learn.grad_clip_norm is 5; .* keep policy.learn.gr"
    ):
        drop_obsolete(both, PPO_DEFAULTS)


def test_a_policy_that_has_a_renamed_key_keeps_it():
    own = {"policy": {"learn": {"grad_norm": None, "grad_clip_norm": None}}}
    user = {"policy": {"learn": {"grad_norm": 2.0}}}
    assert drop_obsolete(user, own) == user
