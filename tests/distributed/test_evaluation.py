"""Evaluation by another process: the numbers of one made here, of the weights of the moment it was asked for."""

import json
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from ding_like.distributed.evaluation import EvaluationError, EvaluationTask, EvaluatorProcess
from ding_like.entry import eval as evaluate
from ding_like.entry import serial_pipeline
from ding_like.entry.build import build, evaluation, full_config
from ding_like.torch_utils.checkpoint import load_checkpoint
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import LearnerHook
from tests.entry.resuming import OFTEN, Break, broken_and_resumed
from tests.envs.toys import Count
from tests.helpers import Constant, fingerprint, metrics, result, tiny_config

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("in_tmp")]


class Slow(Count):
    """A step of the evaluation takes long enough for training to go on meanwhile."""

    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


def config(where="process", name="run", n_episode=3, **over):
    evaluator = dict(where=where, n_episode=n_episode, **over.pop("evaluator", {}))
    learn = dict(learning_rate=0.05, **over.pop("learn", {}))
    return tiny_config(name, eval=dict(evaluator=evaluator), learn=learn, **over)


def apart(collect, evaluation):
    """Envs of one class to collect from, of another to evaluate in."""
    return lambda cfg: cfg["make"](), [dict(make=collect)] * 2, [dict(make=evaluation)] * 2


def records(name, section):
    return [line for line in metrics(name) if line["section"] == section]


def in_order(records):
    return sorted(records, key=lambda line: line["train_iter"])


def one(make_env=lambda: Slow(4), model=None, **evaluator):
    """A policy, and an evaluation process for it."""
    cfg = full_config(config(evaluator=evaluator), own_model=model is not None)
    manager, policy, _ = evaluation(cfg, 0, make_env, model)
    manager.close()
    task = EvaluationTask(partial(evaluation, cfg, 0, make_env, model), 0)
    return EvaluatorProcess(cfg.policy.eval.evaluator, policy, task)


@pytest.fixture
def process():
    made = one()
    yield made
    made.close()


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


# ------------------------------------------------------------------ in a run
@pytest.mark.parametrize("mode", ["serial", "async"])
def test_a_run_gets_the_same_evaluations_and_the_same_weights(mode):
    runs = {}
    for where in ("here", "process"):
        collector = dict(collector=dict(num_workers=2))
        policy = serial_pipeline(config(where, where, collect=collector), seed=1, max_train_iter=100, mode=mode)
        runs[where] = fingerprint(policy.learn_mode.state_dict())
    assert runs["here"] == runs["process"]
    assert in_order(records("process", "eval")) == records("here", "eval")
    assert len({line["eval_value"] for line in records("here", "eval")}) > 1
    for section in ("learner", "data", "collect"):
        assert records("process", section) == records("here", section)
    ended = [{k: v for k, v in result(name).items() if k != "wall_time_s"} for name in runs]
    assert ended[0] == ended[1]
    best = [load_checkpoint(f"{name}/ckpt/ckpt_best.pth.tar") for name in runs]
    assert best[0]["counters"] == best[1]["counters"]
    assert fingerprint(best[0]["state"]) == fingerprint(best[1]["state"])


def test_training_goes_on_and_the_best_checkpoint_is_of_the_weights_that_were_evaluated():
    """Evaluations take long; when their results come, the policy has moved."""
    serial_pipeline(config(), seed=1, max_train_iter=60, env_setting=apart(lambda: Count(3), lambda: Slow(9)))
    order = [(line["section"], line["train_iter"]) for line in metrics("run")]
    first = order.index(("eval", 0))
    assert max(train_iter for _, train_iter in order[:first]) > 0
    assert [line["train_iter"] for line in records("run", "eval")] == [0, 20, 40, 60]
    best = load_checkpoint("run/ckpt/ckpt_best.pth.tar")
    assert best["counters"] == {"train_iter": 0, "envstep": 0}  # every evaluation gives 9: the first is kept


def test_a_checkpoint_kept_late_gives_its_value_again():
    serial_pipeline(config(), seed=1, max_train_iter=100)
    best = max(records("run", "eval"), key=lambda line: line["eval_value"])
    counters = load_checkpoint("run/ckpt/ckpt_best.pth.tar")["counters"]
    assert counters == {"train_iter": best["train_iter"], "envstep": best["envstep"]}
    assert evaluate(load_path="run", seed=None)["eval_value"] == best["eval_value"]


def test_the_stop_value_ends_the_run_when_it_is_known():
    """Every evaluation gives 5; the one at the start never ends a run, that at gradient step 20 does."""
    serial_pipeline(config(evaluator=dict(stop_value=5.0)), seed=1, env_setting=lambda: Count(5))
    told = result("run")
    assert (told["stop"], told["reason"], told["eval_value"]) == (True, "stop value 5 reached", 5.0)
    assert told["train_iter"] >= 20 and records("run", "eval")[-1]["train_iter"] == 20


class AtEval(LearnerHook):
    """Asks for an evaluation, and for its result, at gradient step 7."""

    told: list = []

    def __call__(self, learner):
        if learner.train_iter == 7:
            AtEval.told.append(learner.run.evaluate())


def test_a_hook_that_evaluates_gets_the_result():
    HOOK_REGISTRY.register("at_eval", AtEval)
    AtEval.told.clear()
    hooks = dict(learner=dict(hooks=[dict(type="at_eval")]))
    serial_pipeline(config(learn=hooks), seed=1, max_train_iter=10, env_setting=lambda: Count(4))
    assert [told["eval_value"] for told in AtEval.told] == [4.0]
    assert 7 in [line["train_iter"] for line in records("run", "eval")]


def test_a_run_broken_off_amid_an_evaluation_goes_on_as_if_it_had_not_been():
    HOOK_REGISTRY.register("break", Break)

    def made(name):
        hooks = dict(learner=dict(hooks=[dict(type="break")]))
        main, create = config(name=name, learn=hooks)
        return {**main, "resume": OFTEN, "env": {**main["env"], "max_episode_steps": 20}}, create

    straight = serial_pipeline(made("straight"), seed=2, max_train_iter=60)
    resumed = broken_and_resumed(made("broken"), at=(22, 43), seed=2, max_train_iter=60)
    assert fingerprint(straight.learn_mode.state_dict()) == fingerprint(resumed.learn_mode.state_dict())
    assert in_order(records("broken", "eval")) == in_order(records("straight", "eval"))
    assert [line["train_iter"] for line in in_order(records("broken", "eval"))] == [0, 20, 40, 60]
    for section in ("learner", "data", "collect"):
        assert records("broken", section) == records("straight", section)


# ------------------------------------------------------------------ the process
class Pays(Slow):
    """The reward is the action."""

    def step(self, action):
        self.r = float(action)
        return super().step(action)


def test_the_weights_are_those_of_the_moment_it_was_asked():
    process = one(lambda: Pays(4), Constant(0.0, 1.0))
    try:
        process.begin()
        with torch.no_grad():
            process._policy.get_model().q.copy_(torch.tensor([1.0, 0.0]))
        assert process.wait()["eval_value"] == 4.0
        assert process.evaluate()["eval_value"] == 0.0
    finally:
        process.close()


def test_a_result_is_there_once_the_episodes_are_over(process):
    process.begin()
    assert process.under_way and process.poll() is None
    until = time.monotonic() + 10
    while (told := process.poll()) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert (told["eval_value"], told["n_episode"], process.under_way) == (4.0, 3, False)


def test_a_killed_process_is_replaced_and_a_second_one_named(process, caplog):
    process.begin()
    os.kill(process._child.pid, signal.SIGKILL)
    assert process.wait()["eval_value"] == 4.0
    assert "evaluation (pid" in caplog.text and "another process makes the evaluation again" in caplog.text
    process.begin()  # each evaluation has a second chance
    os.kill(process._child.pid, signal.SIGKILL)
    assert process.wait()["eval_value"] == 4.0
    process.begin()
    for _ in range(2):
        os.kill(process._child.pid, signal.SIGKILL)
        if _ == 0:
            while process._lost == 0:
                process.poll()
    with pytest.raises(EvaluationError, match=r"evaluation \(pid \d+\) was killed by SIGKILL .*second time in one"):
        process.wait()


def test_one_killed_between_two_evaluations_is_replaced(process):
    assert process.evaluate()["eval_value"] == 4.0
    os.kill(process._child.pid, signal.SIGKILL)
    process._child.process.join()
    assert process.evaluate()["eval_value"] == 4.0


def test_a_stopped_process_is_replaced_after_its_time():
    process = one(lambda: Slow(4), timeout=1.0)
    try:
        process.begin()
        pid = process._child.pid
        os.kill(pid, signal.SIGSTOP)
        assert process.wait()["eval_value"] == 4.0
        assert gone(pid)
    finally:
        process.close()


def test_what_cannot_be_sent_there_is_named_with_a_remedy():
    lock = threading.Lock()
    told = (
        r"evaluation: its env or model cannot be sent to another process .*lock.*set policy\.eval\.evaluator\.where to"
    )
    with pytest.raises(TypeError, match=told):
        one(lambda: (lock, Slow(4))[1])


def test_closing_leaves_no_process_even_amid_an_evaluation(process):
    process.begin()
    pid, start = process._child.pid, time.monotonic()
    process.close()
    process.close()
    assert gone(pid) and time.monotonic() - start < 1.5


class Breaks(Count):
    def step(self, action):
        if self.t == 2:
            raise RuntimeError("boom-7")
        return super().step(action)


class BreaksAtStart(Count):
    def __init__(self):
        raise RuntimeError("boom-8")


def test_what_an_env_raises_there_is_raised_here_with_its_traceback():
    with pytest.raises(Exception, match="boom-7") as told:
        serial_pipeline(config(), seed=0, max_train_iter=10, env_setting=apart(lambda: Count(3), Breaks))
    assert "in step" in str(told.value.__cause__)
    assert json.loads(Path("run/result.json").read_text())["reason"] == type(told.value).__name__
    with pytest.raises(Exception, match="boom-8"):
        build(full_config(config(name="other")), 0, apart(lambda: Count(3), BreaksAtStart))
    assert not Path("other").exists()
