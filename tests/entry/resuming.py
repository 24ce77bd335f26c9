"""Shared parts of the tests of resume: runs that break off, and what two runs must have in common."""

import numpy as np
import torch

from ding_like.entry import serial_pipeline
from ding_like.entry.resume import FORMAT, POINT
from ding_like.torch_utils.checkpoint import read_file
from ding_like.torch_utils.packing import unpack
from ding_like.worker import LearnerHook
from tests.helpers import metrics

OFTEN = {"every": 0.0, "share": 1.0}  # a resume point every round


class Crash(Exception):
    """What breaks a run off."""


class Break(LearnerHook):
    """Raises once, at a gradient step."""

    at = None

    def __call__(self, learner):
        if learner.train_iter == Break.at:
            Break.at = None
            raise Crash(f"at {learner.train_iter}")


def broken_and_resumed(config, at, name="broken", **limits):
    """A run of `config` that breaks off at the gradient steps `at`, resumed each time."""
    for step in at:
        Break.at = step
        try:
            serial_pipeline(config, exp_name=name, resume=step != at[0], **limits)
        except Crash:
            continue
        raise AssertionError(f"the run did not reach gradient step {step}")
    return serial_pipeline(config, exp_name=name, resume=True, **limits)


def last_point(folder):
    """What the newest resume point of a folder holds, leaf by leaf; env snapshots and times left out."""
    return _comparable(unpack(read_file(folder / POINT, FORMAT, "resume point")["state"]))


def differing(one, other):
    """Paths in the states of two runs, as a resume point holds them, where these are not bit for bit the same."""
    a, b = (_comparable(dict(state)) for state in (one, other))
    assert a.keys() == b.keys()
    return [path for path in a if not _same(a[path], b[path])]


def _comparable(state):
    rows = state["collector"].get("env")  # a run from a dataset has none
    for one in [] if rows is None else rows.get("workers", [rows]):
        del one["env"]["envs"]
    del state["logger"], state["config"]
    state["evaluator"].pop("envs", None)
    return {path: leaf for path, leaf in _leaves(state) if not path.endswith(".elapsed")}


def assert_equal_runs(one, other):
    """Metrics, weights, optimiser, replay, noise and counters are bit for bit the same."""
    assert metrics(one) == metrics(other)
    a, b = last_point(one), last_point(other)
    assert a.keys() == b.keys()
    assert [path for path in a if not _same(a[path], b[path])] == []


def _leaves(x, path=""):
    if isinstance(x, dict):
        for key, value in dict.items(x):
            yield from _leaves(value, f"{path}.{key}")
    elif isinstance(x, (list, tuple)):
        for i, value in enumerate(x):
            yield from _leaves(value, f"{path}.{i}")
    else:
        yield path, x


def _same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and (a == b or (a != a and b != b))
