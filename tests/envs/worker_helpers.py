"""Managers of worker processes, and comparing what two managers give."""

import numpy as np

from ding_like.data import tree_paths
from ding_like.envs.env_manager.subprocess_env_manager import SubprocessEnvManager

FIELDS = ("obs", "reward", "done", "terminated", "truncated")


def subprocesses(*fns, workers=2, **cfg):
    kwargs = {key: cfg.pop(key) for key in ("role", "auto_reset", "seed_every_episode") if key in cfg}
    return SubprocessEnvManager(fns, {"num_workers": workers, **cfg}, **kwargs)


def same(a, b):
    """Whether two trees have the same structure, types, shapes, dtypes and bits."""
    left, right = list(tree_paths(a)), list(tree_paths(b))
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, x), (_, y) in zip(left, right):
        assert type(x) is type(y) and x.dtype == y.dtype and x.shape == y.shape, path
        assert x.tobytes() == y.tobytes(), path


def same_step(ours, theirs, finished, expected):
    for name in FIELDS:
        same(ours[name], theirs[name])
    infos, wanted = list(ours.info), list(theirs.info)
    assert len(ours.info) == len(wanted) and [set(i) for i in infos] == [set(i) for i in wanted]
    assert all(np.array_equal(i[k], w[k]) for i, w in zip(infos, wanted) for k in w)
    assert finished == expected


def actions_of(manager, rng, n):
    manager.action_space.seed(int(rng.integers(2**31)))
    return np.array([manager.action_space.sample() for _ in range(n)])
