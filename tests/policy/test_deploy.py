"""Acting outside of a run: the env's own observations and actions, and policies from checkpoints alone."""

import copy
import logging

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ding_like.data import tree_stack
from ding_like.entry import serial_pipeline
from ding_like.model.template.q_learning import DQN
from ding_like.policy import DQNPolicy, load_policy
from ding_like.torch_utils.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from ding_like.utils import MODEL_REGISTRY, POLICY_REGISTRY
from tests.helpers import fingerprint, make_policy, python, tiny_config
from tests.policy.deploying import ACTIONS, CASES, OBSERVATIONS, VECTOR, made


def saved(policy, path, changes=()):
    """`path`, where a checkpoint of the policy lies, its recipe changed; a change to ... takes the part out."""
    recipe = {key: value for key, value in {**policy.recipe(), **dict(changes)}.items() if value is not ...}
    save_checkpoint(path, policy._cfg.type, policy.learn_mode.state_dict(), {"train_iter": 1}, recipe)
    return path


def played(policy, manager, env):
    """What the env saw and got when the manager played one episode with the policy's eval mode."""
    env.seen.clear()
    env.got.clear()
    manager.launch(3)
    for _ in range(10):
        manager.step(policy.eval_mode.forward(manager.ready_obs, data_id=np.arange(1))["action"])
    return list(zip(env.seen, env.got))


def weigh(policy, seed):
    """Weights with which actions depend on observations, as a rule."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in policy.get_model().parameters():
            p.copy_(torch.randn_like(p) if p.dim() > 1 else p * 0)


def same(a, b):
    return type(a) is type(b) and np.array_equal(a, b) and getattr(a, "dtype", None) == getattr(b, "dtype", None)


# ------------------------------------------------------------------ act
@pytest.mark.parametrize(("kind", "obs", "action"), CASES)
def test_act_gives_the_env_what_a_manager_would_have_given_it(kind, obs, action):
    norm = obs in ("vector", "dict")
    policy, manager, env = made(kind, OBSERVATIONS[obs], ACTIONS[action], norm_obs=dict(use_norm=norm))
    for seed in range(100):
        weigh(policy, seed)
        steps = played(policy, manager, env)
        if len({str(got) for _, got in steps}) > 1:
            break
    assert len({str(got) for _, got in steps}) > 1
    for seen, got in steps:
        mine = policy.act(seen)
        assert env.action_space.contains(mine)
        assert same(mine, int(got) if isinstance(env.action_space, spaces.Discrete) else got)
    batch = tree_stack([seen for seen, _ in steps])
    np.testing.assert_allclose(policy.act(batch, batched=True), [got for _, got in steps], rtol=1e-5, atol=1e-5)


def test_a_loaded_policy_acts_alike(tmp_path):
    for kind, obs, action in CASES:
        norm = obs in ("vector", "dict")
        policy, _, env = made(kind, OBSERVATIONS[obs], ACTIONS[action], norm_obs=dict(use_norm=norm))
        loaded = load_policy(saved(policy, tmp_path / "a.pth.tar"))
        assert type(loaded) is type(policy) and not hasattr(loaded, "_optimizer")
        for _ in range(5):
            assert same(loaded.act(env.see()), policy.act(env.seen[-1])), (kind, obs, action)
        assert fingerprint(loaded.get_model().state_dict()) == fingerprint(policy.get_model().state_dict())
        assert loaded.recipe() == policy.recipe()


def test_the_normaliser_takes_part(tmp_path):
    policy, _, _ = made(norm_obs=dict(use_norm=True))
    with torch.no_grad():  # the action is 0 below the mean of the first number, 3 above
        net = policy.get_model().model
        net.forward = lambda x: {"logit": torch.stack([-x[:, 0], x[:, 0] * 0, x[:, 0] * 0, x[:, 0]], 1)}
        net.numpy_ready = lambda: False
        policy._acting._numpy = False
    mean = float(policy.get_model().statistics[0].mean[0])
    assert abs(mean) > 0.05
    assert policy.act(np.array([mean - 0.1, 0, 0, 0])) == 2 and policy.act(np.array([mean + 0.1, 0, 0, 0])) == 5


class Noisy(nn.Module):
    """Dropout and batch-norm before the Q-values."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))

    def forward(self, x):
        return {"logit": self.net(x)}


def test_act_moves_nothing_of_the_training():
    policy, _, _ = made(model=Noisy(), norm_obs=dict(use_norm=True))
    policy.get_model().train()
    policy.get_model().model.net[2].eval()  # a part that the user froze
    rows = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    first = policy.collect_mode.forward(rows, eps=1.0)
    policy._noises["eval"] = policy._noises["collect"]
    policy.get_model().train()
    policy.get_model().model.net[2].eval()

    def everything():
        modes = [module.training for module in policy.get_model().modules()]
        noises = fingerprint({key: noise.state_dict() for key, noise in policy._noises.items()})
        rng = np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()
        return fingerprint(policy.learn_mode.state_dict()), modes, noises, rng

    before = everything()
    actions = {policy.act(row) for row in rows for _ in range(20)}
    assert len(actions) <= 3 and everything() == before
    assert len(first["action"]) == 3


class Drawing(DQNPolicy):
    """Its evaluation draws from noise."""

    def _init_eval(self):
        self._eval_model = self._collect_model

    def _forward_eval(self, obs, data_id=None):
        return self._act("eval", self._eval_model, obs, data_id, {"eps": 1.0})


def test_a_policy_that_evaluates_with_noise_acts_the_same_each_time():
    policy, _, _ = made(cls=Drawing)
    assert len({policy.act(np.zeros(4, np.float32)) for _ in range(20)}) == 1


BAD = [
    ("vector", np.zeros(3), r"obs has shape \(3,\); wanted \(4,\)$"),
    ("vector", np.zeros((5, 4)), r"obs has shape \(5, 4\); wanted \(4,\): a batch wants act\(obs, batched=True\)"),
    ("vector", np.array(["a"] * 4), r"obs has dtype <U1; wanted float32"),
    ("vector", np.zeros(4, complex), r"obs has dtype complex128; wanted float32"),
    ("vector", [0, 1, float("nan"), 2], "obs is not finite"),
    ("vector", [1, [2, 3], 4, 5], "obs is a list that makes no array: "),
    ("vector", "abcd", r"obs has shape \(\); wanted \(4,\)"),
    ("vector", ["a", "b", "c", "d"], "obs has dtype <U1; wanted float32"),
    ("tuple", ([1, [2]], 0), r"obs\.0 is a list that makes no array: "),
    ("vector", {"obs": np.zeros(4)}, r"obs is a dict; wanted an array of shape \(4,\)"),
    ("uint8 image", np.zeros((12, 12, 3)), "obs has dtype float64; wanted uint8"),
    ("uint8 image", np.zeros((3, 12, 12), np.uint8), r"obs has shape \(3, 12, 12\); wanted \(12, 12, 3\)"),
    ("discrete", 2, "obs is 2; wanted whole numbers from 3 to 7"),
    ("discrete", 8, "obs is 8; wanted whole numbers from 3 to 7"),
    ("discrete", 3.5, "obs has dtype float64; wanted int64"),
    ("discrete", [3], r"obs has shape \(1,\); wanted \(\)"),
    ("multi discrete", np.array([1, 1]), r"obs is \[1, 1\]; wanted whole numbers from \[1, -2\] to \[2, 0\]"),
    ("dict", np.zeros(2), r"obs is a ndarray; wanted a dict with the keys \['a', 'action', 'b'\]"),
    ("dict", {"a": 0}, r"obs has the keys \['a'\]; wanted \['a', 'action', 'b'\]"),
    ("dict", {"a": np.zeros(2), "action": 7, "b": {"image": 0, "d": 0}}, r"obs\.b\.image has shape \(\)"),
    ("tuple", (np.zeros(2),), "obs is a tuple of 1; wanted a tuple of 2"),
    ("tuple", (np.zeros(2), 2), r"obs\.1 is 2; wanted whole numbers from -1 to 1"),
    ("mask", {"a": np.zeros(2), "action_mask": np.zeros(4, np.int8)}, r"no action is allowed in column\(s\) \[0\]"),
]


@pytest.mark.parametrize(("kind", "obs", "says"), BAD)
def test_an_observation_that_is_not_the_envs_is_named(kind, obs, says):
    with pytest.raises(ValueError, match=says):
        made(obs=OBSERVATIONS[kind])[0].act(obs)


def test_batches_that_do_not_fit_are_named():
    policy, _, _ = made(obs=OBSERVATIONS["tuple"])
    with pytest.raises(ValueError, match=r"obs\.0 has shape \(2,\); wanted \(B, 2\)"):
        policy.act((np.zeros(2), 0), batched=True)
    with pytest.raises(ValueError, match=r"parts of different length: \{'0': 3, '1': 2\}"):
        policy.act((np.zeros((3, 2)), [0, 1]), batched=True)


def test_lists_and_tensors_do_as_observations():
    policy, _, _ = made()
    assert policy.act([0, 1, 2, 3]) == policy.act(np.arange(4.0)) == policy.act(torch.arange(4))
    for tensor in (torch.arange(4.0, requires_grad=True), torch.arange(4.0, dtype=torch.bfloat16)):
        assert policy.act(tensor) == policy.act(np.arange(4.0))


def test_a_policy_without_an_env_says_what_act_wants():
    with pytest.raises(ValueError, match="act wants a policy made with its mode 'eval' and the spaces of an env"):
        make_policy().act(np.zeros(1))


# ------------------------------------------------------------------ load_policy
def test_a_recipe_is_of_plain_types_and_shares_nothing(tmp_path):
    policy, _, _ = made("ppo", OBSERVATIONS["dict"], ACTIONS["box"])
    path = saved(policy, tmp_path / "a.pth.tar")
    assert torch.load(path, weights_only=True)["recipe"] == policy.recipe()
    before = copy.deepcopy(policy.recipe())
    policy._cfg.model.encoder_hidden_size_list.append(1)
    assert policy.recipe() != before and load_checkpoint(path)["recipe"] == before


def test_a_folder_of_a_run_stands_for_its_best_checkpoint(tmp_path, caplog):
    policy, _, _ = made()
    (tmp_path / "run" / "ckpt").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"run is a folder without ckpt/ckpt_best\.pth\.tar"):
        load_policy(tmp_path / "run")
    saved(policy, tmp_path / "run" / "ckpt" / "ckpt_best.pth.tar")
    with caplog.at_level(logging.INFO, "ding_like"):
        assert load_policy(tmp_path / "run").act(np.zeros(4)) == policy.act(np.zeros(4))
    assert caplog.messages == [
        f"{tmp_path}/run is a folder; the checkpoint taken is {tmp_path}/run/ckpt/ckpt_best.pth.tar"
    ]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"no\.pth\.tar does not exist"):
        load_policy(tmp_path / "no.pth.tar")


@pytest.mark.parametrize("path", [None, 3, "", b"a"])
def test_what_is_no_path_is_named(path):
    with pytest.raises(CheckpointError, match=f"load_policy: path is {path!r}; wanted a checkpoint file, or the fold"):
        load_policy(path)


def test_an_older_checkpoint_says_what_to_do(tmp_path):
    policy, _, _ = made()
    save_checkpoint(tmp_path / "a.pth.tar", "dqn", policy.learn_mode.state_dict(), {"train_iter": 1})
    with pytest.raises(CheckpointError, match=r"holds no recipe .*ding -m eval -c CONFIG --load-path .*a\.pth\.tar"):
        load_policy(tmp_path / "a.pth.tar")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(policy="ppo"), "damaged recipe: its policy is missing or of another kind"),
        (dict(config=3), "damaged recipe: its config is"),
        (dict(config=..., shapes=...), "damaged recipe: its config, shapes is"),
        (dict(interface={}), r"its policy 'dqn' cannot be made from its recipe: KeyError: action"),
        (dict(interface={"action": {}, "obs": 3}), r"cannot be made from its recipe: TypeError"),
        (dict(shapes={}), r"cannot be made from its recipe: KeyError: action_space"),
        (dict(config={"model": {"no": 1}}), r"cannot be made from its recipe: ConfigError: policy.model.no: model"),
        (dict(shapes={"action_space": "discrete", "obs_shape": 5, "action_shape": 4}), "is of another network"),
    ],
)
def test_a_damaged_recipe_is_named(tmp_path, changes, says):
    policy, _, _ = made()
    with pytest.raises(CheckpointError, match=says):
        load_policy(saved(policy, tmp_path / "a.pth.tar", changes))


def test_an_unknown_policy_names_the_modules_it_came_from(tmp_path):
    cls = POLICY_REGISTRY.register("of_a_script")(type("OfAScript", (DQNPolicy,), {"__module__": "__main__"}))
    policy = made("of_a_script", cls=cls)[0]
    path = saved(policy, tmp_path / "b.pth.tar")
    named = saved(policy, tmp_path / "a.pth.tar", dict(import_names=["my_missing_module"]))
    assert type(load_policy(path)) is type(load_policy(named)) is cls  # it is known, however it came to be
    del POLICY_REGISTRY._entries["of_a_script"]
    with pytest.raises(
        CheckpointError, match=r"no policy is called 'of_a_script'.*Import the module that registers it"
    ):
        load_policy(path)
    with pytest.raises(
        CheckpointError, match="'of_a_script' is not known here: import_names entry 'my_missing_module'"
    ):
        load_policy(named)


def test_another_device_is_refused(tmp_path):
    with pytest.raises(ValueError, match="device is 'tpu'; wanted 'cpu' or 'cuda'"):
        load_policy(tmp_path, device="tpu")


def test_a_policy_trained_on_a_gpu_loads_on_the_cpu(tmp_path):
    policy, _, _ = made()
    recipe = policy.recipe()
    recipe["config"]["cuda"] = True
    assert load_policy(saved(policy, tmp_path / "a.pth.tar", recipe))._device.type == "cpu"


def test_a_network_that_came_as_an_object_has_to_come_again(tmp_path):
    policy, _, _ = made(model=Noisy())
    path = saved(policy, tmp_path / "a.pth.tar")
    with pytest.raises(CheckpointError, match=r"whose network \(Noisy\) came as an object"):
        load_policy(path)
    assert load_policy(path, model=Noisy()).act(np.ones(4)) == policy.act(np.ones(4))
    with pytest.raises(CheckpointError, match="is of another network"):
        load_policy(path, model=nn.Linear(4, 4))


def test_a_config_that_no_checkpoint_can_hold_does_not_hinder_the_run(tmp_path):
    policy, _, _ = made("ppo", net=dict(encoder_hidden_size_list=[8], activation=nn.Tanh))
    path = saved(policy, tmp_path / "a.pth.tar")
    with pytest.raises(CheckpointError, match=r"policy\.model\.activation is <class .*Tanh'>.*name it by a string"):
        load_policy(path)


def test_settings_of_hooks_are_no_part_of_a_recipe():
    policy, _, _ = made()
    policy._cfg.learn.learner.hooks = [dict(type="mine", fn=print)]
    assert "learner" not in policy.recipe()["config"]["learn"]


def test_a_key_that_came_later_has_its_default(tmp_path):
    policy, _, _ = made()
    recipe = policy.recipe()
    del recipe["config"]["norm_obs"], recipe["config"]["learn"]["grad_clip_norm"]
    assert load_policy(saved(policy, tmp_path / "a.pth.tar", recipe)).act(np.zeros(4)) == policy.act(np.zeros(4))


MINE = """
from torch import nn
from ding_like import Policy
from ding_like.policy import DQNPolicy
from ding_like.utils import MODEL_REGISTRY, POLICY_REGISTRY


@MODEL_REGISTRY.register("mine_net")
class Net(nn.Module):
    def __init__(self, obs_shape, action_shape, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_shape, width), nn.Dropout(0.5), nn.Linear(width, action_shape))

    def forward(self, x):
        return {"logit": self.net(x)}


@POLICY_REGISTRY.register("mine")
class Mine(DQNPolicy):
    config = dict(other=dict(bias=1))

    def default_model(self):
        return "mine_net", []
"""


@pytest.mark.system
def test_a_policy_and_a_network_of_ones_own_load_in_a_new_process(in_tmp):
    (in_tmp / "my_policy.py").write_text(MINE)
    import my_policy

    policy, _, _ = made("mine", cls=my_policy.Mine, net=dict(width=5))
    saved(policy, in_tmp / "a.pth.tar")
    assert policy.recipe()["import_names"] == ["my_policy"]
    code = "import ding_like, numpy as np; print(ding_like.load_policy('a.pth.tar').act(np.ones((9, 4)), batched=True))"
    done = python("-c", code, cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(policy.act(np.ones((9, 4)), batched=True))
    (in_tmp / "my_policy.py").unlink()
    done = python("-c", code, cwd=in_tmp)
    assert "policy 'mine' is not known here: import_names entry 'my_policy' is not a module" in done.stderr
    assert MODEL_REGISTRY.get("mine_net") is my_policy.Net


def test_spaces_are_told_in_the_envs_own_numbers():
    policy, _, _ = made(obs=OBSERVATIONS["discrete"])
    assert policy.recipe()["interface"] == {
        "obs": {"kind": "Discrete", "shape": [], "dtype": "int64", "n": 5, "start": 3},
        "action": {"kind": "Discrete", "shape": [], "dtype": "int64", "n": 4, "start": 2},
    }
    assert made(obs=VECTOR)[0].recipe()["shapes"] == {
        "obs_shape": 4,
        "action_shape": 4,
        "action_space": "discrete",
    }


def test_a_network_of_ones_own_is_made_with_the_arguments_it_was_trained_with(in_tmp):
    """It takes none of the policy's default ones."""

    @MODEL_REGISTRY.register("own_quantiles")
    class Own(DQN):
        def __init__(self, obs_shape, action_shape, encoder_hidden_size_list=(8,)):
            super().__init__(obs_shape, action_shape, encoder_hidden_size_list, head_type="quantile", num_quantiles=5)

    main, create = tiny_config("run", model=dict(type="own_quantiles"))
    create["policy"]["type"] = "qrdqn"
    serial_pipeline((main, create), seed=0, max_train_iter=2)
    loaded = load_policy("run")
    assert isinstance(loaded.get_model(), Own) and loaded.act(np.zeros(4, np.float32)) in (0, 1)
