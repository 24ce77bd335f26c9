"""Envs for worker processes: some depend on all that they are given, others end their process."""

import ctypes
import os
import signal
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.envs.toys import Count

ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-2, 2, (2,), np.float32),
}


class Diary(gymnasium.Env):
    """A walk on numbers that depends on every action and on its own generator; it ends, is cut off, or both, at random.

    `masked`: Dict observations with a nested entry and an action mask, else a Box. Infos are empty on most steps.
    """

    def __init__(self, kind="discrete", masked=False):
        self.action_space, self.masked = ACTIONS[kind], masked
        box = spaces.Box(-1e6, 1e6, (3,), np.float32)
        if masked:
            inner = spaces.Dict({"deep": box, "n": spaces.Discrete(1000)})
            mask = spaces.Box(0, 1, (3,), np.int8)
            self.observation_space = spaces.Dict({"see": inner, "action_mask": mask, "pair": spaces.Tuple([box, box])})
        else:
            self.observation_space = box

    def _see(self):
        x = self.x.astype(np.float32)
        if not self.masked:
            return x
        mask = np.array([1, self.t % 2, self.t % 3 > 0], np.int8)
        return {"see": {"deep": x, "n": self.t}, "action_mask": mask, "pair": (x + 1, x * 2)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=3)
        return self._see(), {"fresh": True}

    def step(self, action):
        self.t += 1
        self.x = self.x + np.sum(action) + self.np_random.normal(size=3)
        draw = self.np_random.random()
        terminated, truncated = draw < 0.06, draw > 0.95 or 0.05 < draw < 0.06
        info = {"t": self.t, "x": self.x.copy()} if self.t % 4 == 0 or truncated else {}
        return self._see(), float(self.x[0]), bool(terminated), bool(truncated), info


class Fate(Count):
    """`Count` to 1000 that meets its fate in step `at` of the first episode, in `reset`, or in its constructor.

    `fate`: 'kill', 'stop' (SIGSTOP), 'exit' (os._exit), 'sysexit', 'hang', 'spin' (in C, holding the interpreter's
    lock), 'raise', 'none'. `once`: a file; where it exists, nothing happens, and it is made when the fate comes.
    """

    def __init__(self, fate="raise", at=5, where="step", once=None):
        super().__init__(1000)
        self.fate, self.at, self.where, self.once = fate, at, where, once
        if where == "init":
            self._meet()

    def _meet(self):
        if self.once is not None:
            if os.path.exists(self.once):
                return
            open(self.once, "w").close()
        if self.fate in ("kill", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if self.fate == "kill" else signal.SIGSTOP)
            time.sleep(0.01)
        elif self.fate == "exit":
            os._exit(7)
        elif self.fate == "sysexit":
            sys.exit(3)
        elif self.fate == "hang":
            time.sleep(1000)
        elif self.fate == "spin":
            ctypes.PyDLL(None).sleep(1000)
        elif self.fate == "raise":
            raise RuntimeError("boom-7")

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            self._meet()
        return super().reset(seed=seed)

    def step(self, action):
        if self.where == "step" and self.t == self.at:
            self._meet()
        return super().step(action)


class Slow(Count):
    """`Count` to 10,000, made at once where `folder / "made"` is not there yet, which it then is; others wait for
    `folder / "go"`.
    """

    def __init__(self, folder):
        super().__init__(10_000)
        if not (folder / "made").exists():
            (folder / "made").touch()
            return
        while not (folder / "go").exists():
            time.sleep(0.005)


class Witness(Count):
    """`Count` whose infos tell of the process that it runs in."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        with open("/proc/self/status") as file:
            resident = next(line for line in file if line.startswith("VmRSS")).split()[1]
        info = {"pid": os.getpid(), "torch": "torch" in sys.modules, "mib": int(resident) / 1024}
        return obs, reward, terminated, truncated, info
