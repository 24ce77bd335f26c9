import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ding_like
from ding_like.entry import cli
from tests.helpers import metrics

pytestmark = pytest.mark.system

ENV = {**os.environ, "PYTHONPATH": str(Path(ding_like.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
DING = [sys.executable, "-m", "ding_like.entry.cli"]
CONFIG = """
exp_name: run
env: {type: CartPole-v1, collector_env_num: 2, evaluator_env_num: 2, n_evaluator_episode: 2}
policy:
  type: dqn
  model: {encoder_hidden_size_list: [16]}
  learn: {batch_size: 8, update_per_collect: 2}
  eval: {evaluator: {eval_freq: 20}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "c.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def _ding(line):
    return cli.main(line.split())


def test_a_run_leaves_its_folder_and_can_be_evaluated_and_run_again(folder, capsys, caplog):
    caplog.set_level("INFO")
    assert _ding("-m serial -c c.yaml -s 3 --env-step 400") == 0
    assert "Results: run" in caplog.text
    result = json.loads((folder / "run" / "result.json").read_text())
    assert (result["seed"], result["stop"], result["version"]) == (3, False, ding_like.__version__)
    assert result["env_step"] >= 400
    checkpoints = sorted(path.name for path in (folder / "run" / "ckpt").glob("*.tar"))
    assert checkpoints == ["ckpt_best.pth.tar", f"iteration_{result['train_iter']}.pth.tar"]
    lines = metrics("run")
    assert lines[-1]["section"] == "eval"
    assert lines[-1]["envstep"] == result["env_step"]
    assert lines[-1]["eval_value"] == result["eval_value"]

    best = "run/ckpt/ckpt_best.pth.tar"
    assert _ding(f"-m eval -c run/total_config.yaml -s 3 --load-path {best}") == 0
    evaluation = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(evaluation) == {"eval_value", "eval_value_raw", "n_episode"}
    assert evaluation["eval_value"] == max(line["eval_value"] for line in lines if line["section"] == "eval")

    # B56: the complete config that was saved gives the same run again.
    assert _ding("-m serial -c run/total_config.yaml -s 3 --env-step 400 --exp-name again") == 0
    assert metrics("again") == lines


@pytest.mark.parametrize(
    ("sent", "code", "said"), [(signal.SIGINT, 130, "Interrupted."), (signal.SIGTERM, 143, "Terminated.")]
)
def test_ctrl_c_and_sigterm_write_a_checkpoint_and_the_result(folder, sent, code, said):
    run = subprocess.Popen([*DING, "-m", "serial", "-c", "c.yaml"], env=ENV, stderr=subprocess.PIPE, text=True)
    log, deadline = folder / "run" / "metrics.jsonl", time.monotonic() + 40
    while not log.exists() or log.read_text().count("\n") < 3:
        assert run.poll() is None, run.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.send_signal(sent)
    _, err = run.communicate(timeout=20)
    assert run.returncode == code
    assert said in err
    assert "Traceback" not in err
    result = json.loads((folder / "run" / "result.json").read_text())
    assert (folder / "run" / "ckpt" / f"iteration_{result['train_iter']}.pth.tar").is_file()


def test_bad_input_is_told_before_anything_is_made(folder, capsys):
    for line, message in [
        ("-m serial -c c.yaml --set policy.learn.batch_sise=3", "did you mean policy.learn.batch_size?"),
        ("-m serial -c c.yaml --set env.type=CartPol-v1", "Did you mean 'CartPole-v1'"),
        ("-m serial -c c.yaml --set env.type=Pendulum-v1", "policy 'dqn' serves Discrete"),
        ("-m serial -c d.yaml", "config file d.yaml does not exist, did you mean c.yaml?"),
        ("-m eval -c c.yaml", "eval needs a checkpoint"),
        ("-m eval -c c.yaml --load-path c.yaml", "c.yaml"),
    ]:
        assert _ding(line) == 1, line
        out, err = capsys.readouterr()
        assert out == "", line
        assert message in err, line
        assert "Traceback" not in err, line
    assert [path.name for path in folder.iterdir()] == ["c.yaml"]


def test_modules_beside_the_config_and_in_the_working_folder_are_found(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "my_config.py").write_text(
        "main_config = dict(exp_name='mine', env=dict(evaluator_env_num=1, n_evaluator_episode=1),\n"
        "                   policy=dict(my_key=3, learn=dict(batch_size=8)))\n"
        "create_config = dict(env=dict(type='my_env', import_names=['my_env_here']),\n"
        "                     policy=dict(type='my_dqn', import_names=['my_policy_beside']))\n"
    )
    (folder / "sub" / "my_policy_beside.py").write_text(
        "from ding_like.policy.dqn import DQNPolicy\n"
        "from ding_like.utils import POLICY_REGISTRY\n"
        "@POLICY_REGISTRY.register('my_dqn')\n"
        "class MyDQN(DQNPolicy):\n"
        "    def _init_learn(self):\n"
        "        super()._init_learn()\n"
        "        print('my_key', self._cfg.my_key)\n"
    )
    (folder / "my_env_here.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "from gymnasium.wrappers import TimeLimit\n"
        "from ding_like.utils import ENV_REGISTRY\n"
        "@ENV_REGISTRY.register('my_env')\n"
        "def my_env(cfg=None):\n"
        "    return TimeLimit(CartPoleEnv(), 20)\n"
    )
    line = "-m serial -c sub/my_config.py --env-step 100"
    done = subprocess.run([*DING, *line.split()], env=ENV, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "my_key 3\n"
    assert "policy.my_key: unknown key" in done.stderr


def test_a_disk_that_takes_no_more_ends_the_run_by_name_and_never_hangs(folder):
    """A limit on the size of a file stands for a full disk; metrics.jsonl is the first to meet it."""
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000));"
        "from ding_like.entry.cli import main; sys.exit(main())"
    )
    line = "-m serial -c c.yaml --set policy.learn.learner.hook.log_show_after_iter=1 --env-step 20000"
    done = subprocess.run(
        [sys.executable, "-c", limited, *line.split()], env=ENV, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert "Error: run/metrics.jsonl cannot be written: File too large; free some space" in done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads((folder / "run" / "result.json").read_text())
    assert (folder / "run" / "ckpt" / f"iteration_{result['train_iter']}.pth.tar").is_file()
    assert not list((folder / "run").rglob("*.part"))
