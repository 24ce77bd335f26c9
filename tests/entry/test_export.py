"""ONNX graphs say what the policy says, of everything the env gives, in the env's units."""

import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ding_like import export_onnx
from ding_like.data import tree_leaves
from ding_like.entry import cli
from ding_like.entry.export import ExportError
from ding_like.policy import DQNPolicy, load_policy
from ding_like.torch_utils.checkpoint import save_checkpoint
from tests.helpers import ding, fingerprint, make_policy
from tests.policy.deploying import ACTIONS, OBSERVATIONS, VECTOR, made

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("in_tmp")]


def session(path="a.onnx"):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("kind", "action"), [("dqn", "discrete"), ("ppo", "discrete"), ("ppo", "box"), ("sac", "box")])
def test_graph_act_and_training_policy_agree_on_a_thousand_observations(kind, action):
    policy, _, _ = made(kind, VECTOR, ACTIONS[action], norm_obs=dict(use_norm=True))
    spread = 0.4 if kind == "sac" else 1.0  # its layers are wide
    torch.manual_seed(0)
    with torch.no_grad():
        for p in policy.get_model().parameters():
            p.copy_(torch.randn_like(p) * spread if p.dim() > 1 else p * 0)
    save_checkpoint("a.pth.tar", kind, policy.learn_mode.state_dict(), {"train_iter": 1}, policy.recipe())
    loaded = load_policy("a.pth.tar")
    export_onnx(loaded, "a.onnx")
    mean, std = policy.get_model().moments("")
    rows = (mean + 1.5 * std * np.random.default_rng(1).standard_normal((1000, 4))).astype(np.float32)
    graph = session().run(["action"], {"obs": rows})[0]
    training = policy.eval_mode.forward(rows)["action"]
    acted = np.array([loaded.act(row) for row in rows])
    if action == "discrete":
        assert len(np.unique(graph)) > 2
        np.testing.assert_array_equal(graph, training + 2)  # the space starts at 2
        np.testing.assert_array_equal(graph, acted)
    else:
        assert (np.ptp(graph, 0) > 0.5).all() and ACTIONS["box"].high[0] in graph[:, 0]  # clipped ones among them
        room = 5e-3 if kind == "sac" else 1e-4  # the logit of wide layers is large, its tanh steep where it is near 0
        np.testing.assert_allclose(graph, training, rtol=1e-4, atol=room)
        np.testing.assert_allclose(graph, acted, rtol=1e-4, atol=room)


@pytest.mark.parametrize(
    ("kind", "obs", "action", "inputs", "outputs"),
    [
        ("dqn", "mask", "discrete", {"a": "float32 [B, 2]", "action_mask": "int8 [B, 4]"}, ["logit"]),
        ("ppo", "tuple", "multi discrete", {"0": "float32 [B, 2]", "1": "int64 [B]"}, ["logit.0", "logit.1"]),
        ("ppo", "discrete", "float64 box", {"obs": "int64 [B]"}, ["logit.mu", "logit.sigma"]),
        (
            *("dqn", "dict", "discrete"),
            {"a": "float32 [B, 2]", "obs.action": "int64 [B]", "b.d": "int64 [B]", "b.image": "uint8 [B, 12, 12, 3]"},
            ["logit"],
        ),
        ("ppo", "words", "discrete", {"a": "float32 [B, 2]", "say": "int64 [B, 4]"}, ["logit"]),
        ("dqn", "float image", "discrete", {"obs": "float32 [B, 3, 12, 12]"}, ["logit"]),
    ],
)
def test_inputs_are_the_arrays_of_an_observation_and_outputs_the_envs_actions(kind, obs, action, inputs, outputs):
    policy, _, env = made(kind, OBSERVATIONS[obs], ACTIONS[action])
    told = export_onnx(policy, "deep/er/a.onnx")
    assert told["inputs"] == inputs and list(told["outputs"]) == ["action", *outputs]
    graph = session("deep/er/a.onnx")
    assert [one.name for one in graph.get_inputs()] == list(told["inputs"])
    assert [one.name for one in graph.get_outputs()] == list(told["outputs"])
    for n in (1, 3):
        seen = [env.see() for _ in range(n)]
        leaves = [tree_leaves(row) for row in seen]
        fed = {name: np.stack([row[i] for row in leaves]) for i, name in enumerate(told["inputs"])}
        (got,) = graph.run(["action"], fed)
        for row, one in zip(seen, got):
            assert env.action_space.contains(one)
            np.testing.assert_allclose(one, policy.act(row), rtol=1e-5, atol=1e-6)


def test_a_forbidden_action_is_not_taken():
    policy, _, _ = made("dqn", OBSERVATIONS["mask"])
    export_onnx(policy, "a.onnx")
    rows = {"a": np.zeros((4, 2), np.float32), "action_mask": np.eye(4, dtype=np.int8)}
    assert session().run(["action"], rows)[0].tolist() == [2, 3, 4, 5]


class Dropped(nn.Module):
    """Dropout, which a graph of eval mode does not have."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.Linear(8, 4))

    def forward(self, x):
        return {"logit": self.net(x)}


def test_exporting_changes_nothing_and_says_nothing(capfd, recwarn):
    policy, _, _ = made(model=Dropped(), norm_obs=dict(use_norm=True))
    policy.get_model().train()
    before = fingerprint(policy.learn_mode.state_dict())
    export_onnx(policy, "a.onnx")
    assert fingerprint(policy.learn_mode.state_dict()) == before
    assert all(module.training for module in policy.get_model().modules())
    assert capfd.readouterr() == ("", "") and [str(w.message) for w in recwarn] == []


class Branching(Dropped):
    """Control flow that depends on numbers."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


class SecondBest(DQNPolicy):
    """Acts otherwise than its network says."""

    def _forward_eval(self, obs, data_id=None):
        output = super()._forward_eval(obs, data_id)
        output["action"] = np.argsort(output["logit"], -1)[:, -2]
        return output


def test_a_policy_that_a_graph_cannot_show_is_refused_and_no_file_stays(in_tmp):
    with pytest.raises(ExportError, match=r"the network \(Branching\) cannot be exported to ONNX: Could not guard"):
        export_onnx(made(model=Branching())[0], "a.onnx")
    with pytest.raises(ExportError, match=r"gives action \d where the policy gives \d \(64 of 64 numbers"):
        export_onnx(made(cls=SecondBest)[0], "a.onnx")
    assert list(in_tmp.iterdir()) == []


def test_what_cannot_be_had_is_named(monkeypatch):
    with pytest.raises(ValueError, match="export_onnx wants a policy made with the spaces of an env"):
        export_onnx(make_policy(), "a.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"needs the package onnxscript: pip install 'ding_like\[onnx\]'"):
        export_onnx(made()[0], "a.onnx")


@pytest.mark.parametrize("path", ["", ".", "folder"])
def test_a_folder_as_the_file_is_refused(path, in_tmp):
    (in_tmp / "folder").mkdir()
    with pytest.raises(ExportError, match=f"export_onnx: path is '{path}'; wanted a file to write"):
        export_onnx(made()[0], path)


def test_a_box_of_whole_numbers_and_one_bounded_on_one_side():
    box = spaces.Box(np.array([-3, 0]), np.array([5, 9]), dtype=np.int64)
    policy, _, env = made("ppo", VECTOR, box)
    assert export_onnx(policy, "a.onnx")["outputs"]["action"] == "int64 [B, 2]"
    rows = np.stack([env.see() for _ in range(50)]) * 20
    assert (np.abs(session().run(["action"], {"obs": rows})[0] - policy.act(rows, batched=True)) <= 1).all()


def test_the_command_writes_the_graph_of_a_run(in_tmp, capsys):
    policy, _, _ = made()
    save_checkpoint("a.pth.tar", "dqn", policy.learn_mode.state_dict(), {"train_iter": 1}, policy.recipe())
    done = ding("export", "a.pth.tar", "a.onnx", cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "input obs: float32 [B, 4]\noutput action: int64 [B]\noutput logit: float32 [B, 4]\n"
    assert done.stderr == ""
    assert session().run(["action"], {"obs": np.zeros((1, 4), np.float32)})[0] == policy.act(np.zeros(4))
    assert cli.main(["export", "none.pth.tar", "b.onnx"]) == 1
    assert "checkpoint none.pth.tar does not exist" in capsys.readouterr().err
