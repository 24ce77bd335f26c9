from pathlib import Path

import pytest

import ding_like
import ding_like.utils.log as log
from ding_like.config import load_config
from ding_like.config.yaml_io import parse_yaml
from ding_like.entry import cli
from ding_like.entry.reference import SOURCES, Source, keys_of, reference
from ding_like.utils import BUFFER_REGISTRY, ENV_REGISTRY, MODEL_REGISTRY, POLICY_REGISTRY

GOOD = "env: {type: CartPole-v1}\npolicy: {type: dqn, learn: {batch_size: 32}}\n"

DESCRIBED = """
class A:
    '''A net.

    Args:
        width: neurons of
            a layer.
        act: name.
    '''
    config = dict(
        x=1,  # one
        deep=dict(
            y=[1, 2],  # two
        ),
        free={},  # anything
        filled={},
    )
    def __init__(self, width, act='relu'):
        pass
TABLE = {'k': 2}  # kay
"""

DI_ENGINE = """
from easydict import EasyDict
main_config = EasyDict(dict(
    exp_name='cartpole_dqn_seed0',
    env=dict(collector_env_num=4, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195,
             replay_path=None, manager=dict(shared_memory=False)),
    policy=dict(
        cuda=False, nstep=1, discount_factor=0.97, priority=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        learn=dict(batch_size=64, learning_rate=0.001, multi_gpu=False, ignore_done=False),
        collect=dict(n_sample=8, unroll_len=1, env_num=4, collector=dict(collect_print_freq=100)),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(eps=dict(type='exp', start=0.95, end=0.1, decay=10000),
                   replay_buffer=dict(replay_buffer_size=20000)))))
create_config = EasyDict(dict(
    env=dict(type='cartpole', env_id='CartPole-v1'),
    env_manager=dict(type='base', cfg_type='BaseEnvManagerDict'),
    policy=dict(type='dqn'), replay_buffer=dict(type='deque', import_names=['some.buffer.module'])))
"""


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return str(path)


def test_config_show_prints_every_key_as_yaml(good, capsys):
    assert cli.main(["config", "show", good, "--set", "policy.learn.learning_rate=1e-4"]) == 0
    cfg = parse_yaml(capsys.readouterr().out)
    assert cfg["policy"]["learn"]["batch_size"] == 32
    assert cfg["policy"]["learn"]["learning_rate"] == 1e-4
    assert cfg["policy"]["collect"]["env_num"] == cfg["env"]["collector_env_num"]


def test_what_config_show_prints_is_a_config_of_the_same_run(good, tmp_path, capsys):
    """B56: the dumped full config reloads to an equal run."""
    assert cli.main(["config", "show", good]) == 0
    shown = capsys.readouterr().out
    again = tmp_path / "again.yaml"
    again.write_text(shown)
    assert cli.main(["config", "show", str(again)]) == 0
    assert capsys.readouterr().out == shown
    assert load_config(again).policy.type == "dqn"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "policy.discont_factor=0.5",
            "policy.discont_factor: unknown key; did you mean policy.discount_factor?",
        ),
        (
            "policy.learn.batch_sise=7",
            "policy.learn.batch_sise: unknown key; did you mean policy.learn.batch_size?",
        ),
        (
            "policy.other.eps.tpye=linear",
            "policy.other.eps.tpye: unknown key; did you mean policy.other.eps.type?",
        ),
        ("policy.batch_size=7", "policy.batch_size: unknown key; did you mean policy.learn.batch_size?"),
        ("policy.eval.evaluator.evalu_freq=7", "did you mean policy.eval.evaluator.eval_freq?"),
        ("polcy.cuda=true", "polcy: unknown key; did you mean policy?"),
        ("policy.learn.learning_rate='1e-3'", "got '1e-3', wanted a number such as 0.001; remove the quotes"),
        (
            "policy.learn.batch_size=apple",
            "policy.learn.batch_size: got 'apple', wanted an integer such as 64",
        ),
        ("policy.type=dqnn", "no policy is called 'dqnn'. Did you mean 'dqn'"),
        ("policy.learn.ignore_done=true", "policy.learn.ignore_done: True asks for what does not exist here"),
        ("policy.collect.env_num=", "env.collector_env_num: got None, wanted an integer such as 8"),
    ],
)
def test_config_check_names_the_mistake(good, capsys, setting, message):
    """B56: said before any env starts, with the full path and the nearest valid key."""
    assert cli.main(["config", "check", good, "--set", setting]) == 1
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["policy.learn.grad_clip_norm=-1"], "policy.learn.grad_clip_norm: got -1, wanted a number above 0, or None"),
        (["policy.model.dulling=1"], "policy.model.dulling: model 'dqn' has no such argument. Did you mean 'dueling'?"),
        (["policy.model.head_layer_num=-1"], "policy.model.head_layer_num: got -1, wanted an integer of at least 0"),
        (["policy.model={type: dqm}"], "no model is called 'dqm'. Did you mean 'dqn' or 'drqn'?"),
        (["env.type=CartPol-v1"], "no env is called 'CartPol-v1'"),
        (["env.type=Pendulum-v1"], "policy 'dqn' serves Discrete actions; env 'Pendulum-v1' has Box("),
        (["env.wrappers=[frame_stak]"], "no env_wrapper is called 'frame_stak'. Did you mean 'frame_stack'"),
        (["env.wrappers=[{type: reward_scale, scal: 2}]"], "unexpected keyword argument 'scal'"),
        (["env.env_kwargs={surprise: 1}"], "'surprise'"),
        (["policy.learn.learner.hooks=[{type: nope}]"], "no learner_hook is called 'nope'"),
        (["policy.nstep=0", "policy.cuda=1"], "policy.cuda: got 1, wanted true or false\npolicy.nstep: got 0, wanted"),
    ],
)
def test_config_check_finds_what_a_run_would_find_before_it_trains(good, capsys, settings, message):
    overrides = [part for setting in settings for part in ("--set", setting)]
    assert cli.main(["config", "check", good, *overrides]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


R2D2 = "policy.type=r2d2"
PPO_GRU = ("policy.type=ppo", "policy.model.lstm_type=gru", "policy.learn.batch_size=4")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((R2D2, "policy.learn_unroll_len=5"), "policy.learn_unroll_len is 5 and policy.nstep is 5; wanted a learn_unr"),
        (("policy.model.type=drqn", "policy.nstep=20"), "policy.learn_unroll_len is 20 and policy.nstep is 20; wanted"),
        ((R2D2, "policy.burnin_step=-1"), "policy.burnin_step: got -1, wanted an integer of at least 0"),
        (
            ("policy.burnin_step=3",),
            "policy.burnin_step is 3 and the network (DQN) has no initial_state(B), which makes",
        ),
        (
            (R2D2, "policy.model.type=dqn"),
            "policy.burnin_step is 20 and the network (DQN) has no initial_state(B), which makes a policy recurrent; "
            "wanted burnin_step=0, or a recurrent network, such as policy.model.type='drqn'\n"
            "policy.learn.value_rescale is True and",
        ),
        ((*PPO_GRU, "policy.collect.n_sample=12"), "policy.collect.n_sample: got 12, wanted a multiple of 8, so that"),
        (
            (*PPO_GRU, "policy.learn_unroll_len=2", "policy.collect.n_sample=15"),
            "got 15, wanted a multiple of 8, so tha",
        ),
        ((*PPO_GRU, "policy.collect.n_step=256"), None),
        (
            (*PPO_GRU, "policy.collect.n_step=264"),
            "policy.collect.n_step: got 264, wanted a multiple of 256, so that the env steps of a rollout are whole "
            "segments of policy.learn_unroll_len=32 steps in each of the env.collector_env_num=8 columns",
        ),
        (
            (*PPO_GRU[:2], "policy.learn.batch_size=9", "policy.collect.n_step=256"),
            "policy.learn.batch_size: got 9, wanted at most 8, what policy.collect.n_step gives in whole rows of all",
        ),
        (
            ("policy.type=ppo", "policy.collect.n_step=65", "policy.learn.batch_size=73"),
            "policy.learn.batch_size: got 73, wanted at most 72, what policy.collect.n_step gives",
        ),
        (("policy.collect.n_step=0",), "policy.collect.n_step: got 0, wanted an integer of at least 1, or None"),
        (
            ("policy.collect.n_step=100", "policy.other.replay_buffer.replay_buffer_size=90"),
            "replay_buffer_size: got 90, wanted at least 100, as policy.collect.n_step says",
        ),
        ((R2D2, "policy.collect.n_step=1000", "policy.other.replay_buffer.replay_buffer_size=90"), None),
    ],
)
@pytest.mark.parametrize("env_type", ["CartPole-v1", "registered_cartpole"])
def test_config_check_knows_what_fits_a_recurrent_network_and_a_rollout(good, capsys, settings, message, env_type):
    """Also where the env is a registered one, which is not made for a check."""
    ENV_REGISTRY.register("registered_cartpole", unmade)
    overrides = [part for setting in (*settings, f"env.type={env_type}") for part in ("--set", setting)]
    assert cli.main(["config", "check", good, *overrides]) == (0 if message is None else 1)
    captured = capsys.readouterr()
    assert (message or "") in captured.err and "Traceback" not in captured.err


def unmade():
    raise AssertionError("no check makes it")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["policy.type=ppo", "policy.model={lstm_hidden_size: 8}"], "lstm_hidden_size, num_layers, use_prev_action"),
        (["policy.model={type: drqn, res_link: true, head_hidden_size: 8}"], "head_hidden_size is 8, the encoder's"),
        (["policy.model={obs_shape: 3}"], "policy.model.obs_shape is 3, the env's space gives 4"),
    ],
)
def test_config_check_makes_the_network_where_it_knows_the_spaces(good, capsys, settings, message):
    overrides = [part for setting in settings for part in ("--set", setting)]
    assert cli.main(["config", "check", good, *overrides]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err


def test_config_check_needs_no_gpu(good, capsys):
    assert cli.main(["config", "check", good, "--set", "policy.cuda=true"]) == 0
    assert capsys.readouterr().out == f"{good}: ok\n"


def test_config_check_of_a_right_config_says_ok(good, capsys):
    assert cli.main(["config", "check", good]) == 0
    assert capsys.readouterr().out == f"{good}: ok\n"
    assert cli.main(["config", "check", good + "l"]) == 1
    assert "does not exist, did you mean" in capsys.readouterr().err


def test_a_di_engine_config_is_taken_and_what_means_nothing_is_said(tmp_path, capsys, caplog, monkeypatch):
    monkeypatch.setattr(log, "_warned", set())
    path = tmp_path / "di_engine_style.py"
    path.write_text(DI_ENGINE)
    assert cli.main(["config", "show", str(path)]) == 0
    cfg = parse_yaml(capsys.readouterr().out)
    assert (cfg["env"]["collector_env_num"], cfg["policy"]["discount_factor"]) == (4, 0.97)
    said = {record.getMessage().split(":")[0] for record in caplog.records}
    assert said == {
        "env.replay_path",
        "env.manager.shared_memory",
        "env_manager.cfg_type",
        "policy.learn.multi_gpu",
        "policy.learn.ignore_done",
        "policy.collect.unroll_len",
        "policy.collect.collector.collect_print_freq",
        "replay_buffer.import_names",
    }


def test_check_env_exits_1_where_training_would_break(capsys):
    assert cli.main(["check-env", "CartPole-v1"]) == 0
    assert "episodes ended" in capsys.readouterr().out
    assert cli.main(["check-env", "CartPol-v1"]) == 1
    assert "Did you mean 'CartPole-v1'" in capsys.readouterr().err


def test_keys_are_read_with_default_and_comment(tmp_path, monkeypatch):
    (tmp_path / "described.py").write_text(DESCRIBED)
    monkeypatch.syspath_prepend(tmp_path)
    assert keys_of(Source("", "a", "described", "A.config")) == [
        ("a.x", "1", "one"),
        ("a.deep.y", "[1, 2]", "two"),
        ("a.free", "{}", "anything"),
    ]
    assert keys_of(Source("", "", "described", "TABLE")) == [("k", "2", "kay")]
    assert keys_of(Source("", "m", "described", "A")) == [
        ("m.width", "", "neurons of a layer"),
        ("m.act", "'relu'", "name"),
    ]
    with pytest.raises(LookupError, match=r"described has no A.cfg"):
        keys_of(Source("", "", "described", "A.cfg"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.title)
def test_every_key_of_every_class_has_its_meaning_beside_it(source):
    keys = keys_of(source)
    assert keys
    assert [key.path for key in keys if not key.meaning] == []


@pytest.mark.parametrize("registry", [POLICY_REGISTRY, BUFFER_REGISTRY, MODEL_REGISTRY], ids=lambda one: one.kind)
def test_every_class_of_the_package_is_in_the_reference(registry):
    told = {source.name.split(".")[0] for source in SOURCES}
    ours = [registry.get(name) for name in registry.query()]
    ours = [cls for cls in ours if cls.__module__.startswith("ding_like.") and vars(cls).get("config", True)]
    assert len(ours) > 3 and [cls.__name__ for cls in ours if cls.__name__ not in told] == []


def test_the_reference_in_the_docs_is_up_to_date(capsys, tmp_path):
    committed = Path(ding_like.__file__).parents[1] / "docs" / "config_reference.md"
    assert committed.read_text(encoding="utf-8") == reference(), "run: ding config reference --write " + str(committed)
    assert cli.main(["config", "reference"]) == 0
    assert capsys.readouterr().out == reference()
    assert cli.main(["config", "reference", "--write", str(tmp_path / "r.md")]) == 0
    assert (tmp_path / "r.md").read_text(encoding="utf-8") == reference()
