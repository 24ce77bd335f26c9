"""From a config to components: defaults of every class, derived values, and what does not fit."""

import copy

import numpy as np
import pytest
from gymnasium import spaces

import ding_like.utils.log as log
from ding_like.config import ALIASES, CfgDict, ConfigError, join_config, walk
from ding_like.config.checks import at_least
from ding_like.config.paths import set_path
from ding_like.entry.build import (
    Components,
    build,
    build_policy,
    choose_seed,
    config_defaults,
    eval_manager,
    full_config,
)
from ding_like.entry.checks import CHECKS
from ding_like.envs import BaseEnvManager, EnvError
from ding_like.model.template.q_learning import DQN
from ding_like.policy import Policy
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils import BUFFER_REGISTRY, ENV_REGISTRY, HOOK_REGISTRY, POLICY_REGISTRY, UnknownNameError
from ding_like.worker import Evaluator, Learner, LearnerHook, Replay, SampleCollector
from tests.envs.toys import AnySpace, Boom, Count
from tests.helpers import tiny_config


def test_the_full_config_holds_every_default_and_the_users_values():
    cfg = full_config(tiny_config())
    assert cfg.policy.learn.batch_size == 8 and cfg.policy.discount_factor == DQNPolicy.default_config().discount_factor
    assert cfg.policy.learn.target_update_freq == 100 and cfg.policy.learn.loss == "huber"
    assert cfg.policy.learn.learner.hook.save_ckpt_after_iter == Learner.config["hook"]["save_ckpt_after_iter"]
    assert cfg.policy.collect.collector == SampleCollector.config
    assert cfg.policy.eval.evaluator.keys() >= Evaluator.config.keys()
    assert cfg.policy.other.replay_buffer.replay_buffer_size == 200
    assert cfg.env.type == "CartPole-v1" and cfg.replay_buffer.type == "replay" and cfg.torch_threads == 1


def test_one_value_in_two_places_is_one():
    """n_evaluator_episode and stop_value may be given to the env or to the evaluator."""
    main, create = tiny_config()
    main["env"]["stop_value"] = 99
    cfg = full_config((main, create))
    assert (cfg.policy.eval.evaluator.n_episode, cfg.policy.eval.evaluator.stop_value) == (3, 99)
    assert (cfg.policy.collect.env_num, cfg.policy.eval.env_num) == (2, 2)


def test_sets_and_exp_name_come_last_and_the_input_stays():
    pair = tiny_config()
    before = copy.deepcopy(pair)
    cfg = full_config(pair, sets=("policy.learn.batch_size=32", "env.collector_env_num=1"), exp_name="other")
    assert (cfg.policy.learn.batch_size, cfg.env.collector_env_num, cfg.exp_name) == (32, 1, "other")
    assert pair == before


def test_a_full_config_is_a_config_again():
    cfg = full_config(tiny_config())
    assert full_config(cfg) == cfg


def test_di_engines_command_suffix_means_the_policy():
    main, create = tiny_config()
    create["policy"]["type"] = "dqn_command"
    assert full_config((main, create)).policy.type == "dqn"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("policy.learn.batch_sise", 3, "policy.learn.batch_sise: unknown key; did you mean policy.learn.batch_size?"),
        ("policy.discont_factor", 0.9, "did you mean policy.discount_factor"),
        ("policy.other.eps.tpye", "exp", "did you mean policy.other.eps.type"),
        ("policy.batch_size", 3, "did you mean policy.learn.batch_size"),
        ("policy.learn.learner.hook.log_show_after_itr", 3, "log_show_after_iter"),
        ("env.colector_env_num", 3, "env.collector_env_num"),
        ("env_manager.typ", "base", "env_manager.type"),
        ("torch_thread", 3, "torch_threads"),
        ("policy.learn.learning_rate", "1e-3", "policy.learn.learning_rate: got '1e-3', wanted a number"),
        ("policy.learn.batch_size", 2.5, "policy.learn.batch_size: got 2.5, wanted an integer"),
        ("policy.learn", 3, "policy.learn: got 3, wanted a section"),
        ("policy.double", "yes", "policy.double: got 'yes', wanted true or false"),
    ],
)
def test_wrong_keys_and_types_are_named_with_their_path(path, value, says):
    """Case B56."""
    cfg = join_config(*tiny_config())
    *sections, key = path.split(".")
    section = cfg
    for name in sections:
        section = section[name]
    section[key] = value
    with pytest.raises(ConfigError) as caught:
        full_config(cfg)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("policy", r"no policy is called 'dqm'.*Did you mean 'dqn'"),
        ("env_manager", "no env_manager is called 'dqm'"),
        ("replay_buffer", "no replay_buffer is called 'dqm'"),
    ],
)
def test_unknown_components_are_named(section, says):
    cfg = join_config(*tiny_config())
    cfg.setdefault(section, {})["type"] = "dqm"
    with pytest.raises(UnknownNameError, match=says):
        full_config(cfg)


def test_no_policy_is_told():
    with pytest.raises(ConfigError, match=r"policy.type is missing; name a policy there"):
        full_config(dict(env=dict(type="CartPole-v1")))


def test_unknown_env_is_named_with_suggestions():
    main, create = tiny_config()
    create["env"]["type"] = "CartPol-v1"
    with pytest.raises(UnknownNameError, match=r"no env is called 'CartPol-v1'.*'CartPole-v1'"):
        build(full_config((main, create)), 0)


def test_components_are_those_of_the_config():
    parts = build(full_config(tiny_config()), 3)
    assert isinstance(parts, Components) and isinstance(parts.policy, DQNPolicy) and isinstance(parts.store, Replay)
    collect, evaluate = parts.managers
    assert (collect.env_num, collect.role, collect.auto_reset, collect.seed_every_episode) == (
        2,
        "collect",
        True,
        False,
    )
    assert (evaluate.env_num, evaluate.role, evaluate.auto_reset, evaluate.seed_every_episode) == (
        2,
        "eval",
        False,
        True,
    )
    assert parts.evaluator.n_episode == 3 and parts.collector.n_sample == 8
    net = parts.policy.get_model()
    assert isinstance(net, DQN) and net.encoder.main[0].in_features == 4
    parts.close()
    with pytest.raises(EnvError, match="closed"):
        collect.launch(0)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Box(-1, 1, (2,)), "Box"),
        (spaces.MultiDiscrete([2, 3]), "MultiDiscrete"),
        (spaces.MultiBinary(2), "MultiBinary"),
    ],
)
def test_action_spaces_the_policy_cannot_serve_are_named(space, kind):
    env = AnySpace(spaces.Box(-1, 1, (2,)), space)
    with pytest.raises(ConfigError, match=rf"policy 'dqn' serves Discrete actions; env '.*' has {kind}"):
        build(full_config(tiny_config()), 0, env_setting=env)


def test_observation_spaces_that_cannot_be_batched_are_named():
    env = AnySpace(spaces.Dict({"x": spaces.Text(5)}))
    with pytest.raises(TypeError, match=r"obs\.x is a Text space"):
        build(full_config(tiny_config()), 0, env_setting=env)


def test_envs_are_closed_when_a_later_part_fails():
    closed = []

    class Closes(Count):
        def close(self):
            closed.append(1)

    cfg = full_config(tiny_config())
    cfg.policy.model.obs_shape = 3
    with pytest.raises(ConfigError, match="obs_shape is 3"):
        build(cfg, 0, env_setting=Closes)
    assert len(closed) == 4


def test_an_env_that_fails_in_its_constructor_is_named():
    with pytest.raises(EnvError, match=r"env '<lambda>', column 0 \(collect\): making it raised RuntimeError: boom-7"):
        build(full_config(tiny_config()), 0, env_setting=lambda: Boom("init"))


def test_a_policy_of_another_package_keeps_keys_of_its_own():
    class Mine(DQNPolicy):
        config = dict(mine=dict(a=1))

    Mine.__module__ = "somewhere"
    POLICY_REGISTRY.register("mine", Mine)
    main, create = tiny_config(mine=dict(a=2), surprise=5)
    create["policy"]["type"] = "mine"
    cfg = full_config((main, create))
    assert (cfg.policy.mine.a, cfg.policy.surprise) == (2, 5)
    with pytest.raises(ConfigError, match="torch_thread"):
        full_config((dict(main, torch_thread=1), create))


@pytest.fixture
def outside_policy():
    class Mine(DQNPolicy):
        config = dict(learn=dict(own=dict(depth=3)))
        config_checks = {"learn.own.depth": at_least(2), "learn.learning_rate": None}

    Mine.__module__ = "somewhere"
    POLICY_REGISTRY.register("outside", Mine, force_overwrite=True)
    main, create = tiny_config()
    create["policy"]["type"] = "outside"
    return main, create


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("policy.learn.learner.hok=3", "policy.learn.learner.hok: unknown key; did you mean policy.learn.learner.hook"),
        ("policy.learn.learner.hook.save_ckpt_after_itr=3", "did you mean policy.learn.learner.hook.save_ckpt_after_i"),
        ("policy.other.replay_buffer.replay_bufer_size=5", "did you mean policy.other.replay_buffer.replay_buffer_si"),
        ("policy.eval.evaluator.eval_frq=4", "policy.eval.evaluator.eval_frq: unknown key; did you mean"),
        (
            "policy.collect.collector.zzz=4",
            "policy.collect.collector.zzz: unknown key; keys here: sampler, num_workers",
        ),
        ("env.manager.retry=4", "env.manager.retry: unknown key"),
        ("policy.learn.own.depth=1", "policy.learn.own.depth: got 1, wanted an integer of at least 2"),
        ("policy.learn.batch_size=0", "policy.learn.batch_size: got 0, wanted an integer of at least 1"),
    ],
)
def test_sections_that_we_read_stay_strict_with_a_policy_of_another_package(outside_policy, override, says):
    with pytest.raises(ConfigError) as caught:
        full_config(outside_policy, sets=[override])
    assert says in str(caught.value)


def test_a_near_miss_in_a_lenient_section_warns_with_the_right_key(outside_policy, caplog, monkeypatch):
    monkeypatch.setattr(log, "_warned", set())
    assert full_config(outside_policy, sets=["policy.collect.n_sampel=4"]).policy.collect.n_sampel == 4
    assert "policy.collect.n_sampel: unknown key; did you mean policy.collect.n_sample?" in caplog.text


def test_a_policy_may_lift_a_check_of_its_parent(outside_policy):
    assert full_config(outside_policy, sets=["policy.learn.learning_rate=-1"]).policy.learn.learning_rate == -1


def test_a_default_of_a_policys_own_passes_its_parents_check():
    class Odd(DQNPolicy):
        config = dict(learn=dict(optimizer="lion"))

    POLICY_REGISTRY.register("odd", Odd)
    main, create = tiny_config()
    create["policy"]["type"] = "odd"
    assert full_config((main, create)).policy.learn.optimizer == "lion"
    with pytest.raises(ConfigError, match=r"policy.learn.optimizer: got 'adan', wanted one of"):
        full_config((main, create), sets=["policy.learn.optimizer=adan"])


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("seed=x", "seed: got 'x', wanted an integer of at least 0, or None"),
        ("torch_threads=0", "torch_threads: got 0, wanted an integer of at least 1"),
        ("env.collector_env_num=0", "env.collector_env_num: got 0, wanted an integer of at least 1"),
        ("env.evaluator_env_num=0", "env.evaluator_env_num: got 0, wanted an integer of at least 1"),
        ("policy.eval.evaluator.n_episode=0", "env.n_evaluator_episode: got 0, wanted an integer of at least 1"),
        ("env.stop_value=x", "env.stop_value: got 'x', wanted a number, or None"),
        ("env.max_episode_steps=2.5", "env.max_episode_steps: got 2.5, wanted an integer of at least 1, or None"),
        ("policy.discount_factor=1.1", "policy.discount_factor: got 1.1, wanted a number from 0 to 1"),
        ("policy.nstep=0", "policy.nstep: got 0, wanted an integer of at least 1"),
        ("policy.random_collect_size=-5", "policy.random_collect_size: got -5, wanted an integer of at least 0"),
        ("policy.norm_obs.clip=0", "policy.norm_obs.clip: got 0.0, wanted a number above 0"),
        ("policy.learn.update_per_collect=0", "policy.learn.update_per_collect: got 0, wanted an integer of at least"),
        ("policy.learn.learning_rate=.inf", "policy.learn.learning_rate: got inf, wanted a number above 0"),
        ("policy.learn.optimizer=adan", "wanted one of 'adam', 'adamw', 'rmsprop', 'sgd'; did you mean 'adam'?"),
        ("policy.learn.grad_clip_norm=big", "policy.learn.grad_clip_norm: got 'big', wanted a number above 0, or None"),
        ("policy.learn.grad_clip_norm=true", "policy.learn.grad_clip_norm: got True, wanted a number above 0, or None"),
        (
            "policy.learn.loss=hubr",
            "learn.loss: got 'hubr', wanted one of 'huber', 'mse'; did you mean 'huber'?",
        ),
        (
            "policy.learn.target_theta=0",
            "learn.target_theta: got 0, wanted a number above 0, at most 1, or None",
        ),
        ("policy.learn.target_update_freq=0", "policy.learn.target_update_freq: got 0, wanted an integer of at least"),
        (
            "policy.other.eps.type=expo",
            "policy.other.eps.type: got 'expo', wanted one of 'exp', 'linear'; did you",
        ),
        ("policy.other.eps.start=1.5", "policy.other.eps.start: got 1.5, wanted a number from 0 to 1"),
        ("policy.other.eps.decay=0", "policy.other.eps.decay: got 0, wanted an integer of at least 1"),
        ("policy.learn.learner.hook.log_show_after_iter=0", "log_show_after_iter: got 0, wanted an integer of at le"),
        (
            "policy.model.duelling=true",
            "policy.model.duelling: model 'dqn' has no such argument. Did you mean 'du",
        ),
        ("policy.model.dueling=3", "policy.model.dueling: got 3, wanted true or false"),
        ("policy.model.activation=rleu", "policy.model.activation: got 'rleu', wanted one of 'relu', "),
        (
            "policy.on_policy=true",
            "policy.on_policy: got True, but policy 'dqn' is off-policy; remove the key",
        ),
        ("policy.collect.collector.type=episode", "policy.collect.collector.type: 'episode' asks for what does not"),
        (
            "policy.other.replay_buffer.replay_buffer_size=7",
            "policy.other.replay_buffer.replay_buffer_size: got 7, wanted at least 8, as policy.learn.batch_size says",
        ),
        ("policy.collect.n_sample=300", "replay_buffer_size: got 200, wanted at least 300, as policy.collect.n_sample"),
    ],
)
def test_values_that_cannot_work_are_named_with_what_was_wanted(override, says):
    with pytest.raises(ConfigError) as caught:
        full_config(tiny_config(), sets=[override])
    assert says in str(caught.value)


def test_all_mistakes_of_a_config_are_said_at_once():
    wrong = dict(batch_sise=3, learning_rate="fast")
    model = dict(head_layer_num=-1)
    config = tiny_config(nstep=0, multi_gpu=True, collect=dict(env_num=7), learn=wrong, model=model)
    with pytest.raises(ConfigError) as caught:
        full_config(config)
    keys = ("batch_sise", "learning_rate", "policy.nstep", "multi_gpu", "env_num", "model.head_layer_num")
    lines = str(caught.value).splitlines()
    assert len(lines) == len(keys)
    assert all(sum(key in line for line in lines) == 1 for key in keys)


def test_arguments_of_the_network_are_not_checked_where_it_comes_as_an_object():
    main, create = tiny_config(model=dict(mine=1))
    assert full_config((main, create), own_model=True).policy.model.mine == 1
    with pytest.raises(ConfigError, match=r"policy.model.mine"):
        full_config((main, create))


def test_a_network_that_is_known_only_later_is_checked_later():
    class Late(DQNPolicy):
        def default_model(self):
            return self._chosen, []

    class Without(DQNPolicy):
        def default_model(self):
            return Policy.default_model(self)

    for name, cls in (("late", Late), ("without", Without)):
        POLICY_REGISTRY.register(name, cls)
        main, create = tiny_config(model=dict(mine=1))
        create["policy"]["type"] = name
        assert full_config((main, create)).policy.model.mine == 1


def test_every_number_of_our_classes_has_a_range():
    """Booleans and free text apart, no key of ours takes whatever has the right type."""
    cfg = full_config(tiny_config())
    checked = {*CHECKS, *(f"policy.{key}" for cls in DQNPolicy.__mro__ for key in vars(cls).get("config_checks", {}))}
    checked |= {alias for alias, _ in ALIASES} | {"env.manager." + key for key in BaseEnvManager.config}
    numbers = {path for path, value in walk(cfg) if type(value) in (int, float) and ".model." not in path}
    assert numbers - checked == set()
    known = {path for path, _ in walk(config_defaults(cfg, DQNPolicy))}
    known |= {f"policy.other.replay_buffer.{key}" for key in BUFFER_REGISTRY.get("queue").config}
    assert checked - known - {alias for alias, _ in ALIASES} == set()


def test_hooks_are_looked_up_before_the_envs_are_made():
    def never():
        raise AssertionError("an env was made")

    for entry, error, says in (
        ("nope", ConfigError, r"policy.learn.learner.hooks\[0\]: got 'nope', wanted a dict with 'type'"),
        ({"type": "nope"}, UnknownNameError, "no learner_hook is called 'nope'.* Known: "),
        ({"type": "counts", "evry": 1}, ConfigError, r"hooks\[0\]: hook 'counts': it has no argument 'evry'.* 'every'"),
    ):
        HOOK_REGISTRY.register("counts", Counts)
        cfg = full_config(tiny_config(learn=dict(learner=dict(hooks=[entry]))))
        with pytest.raises(error, match=says):
            build(cfg, 0, env_setting=never)


class Counts(LearnerHook):
    def __init__(self, every=1):
        self.every = every


def test_a_registered_policy_of_any_kind_does_not_spoil_the_hint_for_a_wrong_key():
    POLICY_REGISTRY.register("plain", type("Plain", (), {}))
    with pytest.raises(ConfigError, match=r"policy.learn.zzzzzz: unknown key; keys here: "):
        full_config(tiny_config(learn=dict(zzzzzz=1)))


def test_a_registered_env_brings_defaults_of_its_own():
    class Sized(Count):
        config = dict(size=4)

        def __init__(self, cfg):
            super().__init__(cfg.size)

    ENV_REGISTRY.register("sized", Sized)
    main, create = tiny_config()
    create["env"]["type"] = "sized"
    assert full_config((main, create)).env.size == 4
    main["env"]["size"] = 6
    manager = eval_manager(full_config((main, create)))
    manager.launch(0)
    steps = 0
    while not manager.step(np.zeros(2, np.int64)).done.any():
        steps += 1
    assert steps == 5


def test_a_policy_may_be_built_for_evaluation_alone():
    cfg = full_config(tiny_config())
    policy = build_policy(cfg, eval_manager(cfg), 0, fields=["eval"])
    assert policy.eval_mode.forward(np.zeros((3, 4), np.float32))["action"].shape == (3,)


def test_the_argument_wins_over_the_seed_of_a_config_which_wins_over_zero(caplog):
    cfg = full_config(tiny_config(), sets=["seed=7"])
    assert choose_seed(CfgDict(cfg), None) == 7
    assert choose_seed(full_config(tiny_config()), None) == 0
    with caplog.at_level("INFO", logger="ding_like"):
        assert choose_seed(cfg, 3) == 3
    assert cfg.seed == 3
    assert "seed: the run takes 3, which it was called with; the config's 7 is not used" in caplog.text


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("env.type", 3, "env.type: got 3, wanted a name, such as 'CartPole-v1'"),
        ("env.type", ["CartPole-v1"], "env.type: got .*, wanted a name"),
        ("env_manager", "base", r"env_manager: got 'base', wanted a section, such as dict\(type='base'\)"),
        ("replay_buffer", "x", r"replay_buffer: got 'x', wanted a section, such as dict\(type='x'\)"),
        ("env", 3, "env: got 3, wanted a section"),
        ("env.import_names", [3], r"env.import_names: got \[3\], wanted a list of module names"),
        ("policy.import_names", "mine", r"policy.import_names: got 'mine', .* such as \['mine'\]"),
        ("exp_name", "a\0b", r"exp_name: got 'a\\x00b', .*NUL"),
        ("policy", 3, "policy is a int .3., wanted a section"),
    ],
)
def test_what_has_a_wrong_form_is_named_with_path_value_and_wanted(path, value, says):
    cfg = CfgDict(join_config(*tiny_config()))
    set_path(cfg, path, value)
    with pytest.raises(ConfigError, match=says):
        full_config(cfg)


def test_sets_given_as_one_string_are_refused():
    with pytest.raises(ConfigError, match=r"sets: got the string 'a=b', wanted a list of them: \['a=b'\]"):
        full_config(tiny_config(), sets="a=b")


def test_the_env_that_runs_is_named_where_it_is_not_the_configs():
    env = AnySpace(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,)))
    with pytest.raises(ConfigError, match="env 'AnySpace' has Box"):
        build(full_config(tiny_config()), 0, env)


def test_a_clip_that_may_be_none_can_be_switched_off_where_its_default_is_a_number():
    cfg = full_config(dict(env=dict(type="CartPole-v1"), policy=dict(type="ppo", learn=dict(grad_clip_norm=None))))
    assert cfg.policy.learn.grad_clip_norm is None
