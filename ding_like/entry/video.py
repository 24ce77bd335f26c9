"""Recording an episode of an evaluation as mp4 or gif."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import gymnasium
import numpy as np

from ding_like.config import CfgDict
from ding_like.envs.adapter import env_name, wrap_env
from ding_like.envs.make import registered
from ding_like.utils.log import get_logger

KINDS = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio", "PIL")}
FPS = 30  # where an env does not tell its own
SMALL = 160  # pixels: pictures with a shorter side are enlarged by a whole factor
HEADLESS = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


class VideoError(ValueError):
    """An evaluation that cannot be recorded; says why and what to do."""


class Recorder:
    """Writes the first episode of one env column to a file, in one step at the episode's end.

    A context: what is unfinished when it ends is removed. Envs inside it draw without a display.

    Args:
        path: ends in .mp4 or .gif; missing folders are made, a file of before is replaced.

    Raises VideoError for another ending, ImportError naming what to install.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        kind = self.path.suffix.lower()
        if kind not in KINDS:
            raise VideoError(f"--video {self.path}: wanted a file that ends in .mp4 or .gif")
        if self.path.is_dir():
            raise VideoError(f"--video {self.path} is a folder; wanted a file")
        for name in KINDS[kind]:
            try:
                importlib.import_module(name)
            except ImportError as err:
                raise ImportError(
                    f"recording a video needs the package {name}: pip install 'ding_like[video]'"
                ) from err
        self._part = self.path.with_name(f"{self.path.stem}.part{kind}")
        self._writer: Any = None
        self._frames = 0
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Recorder:
        self._before = {key: os.environ.get(key) for key in HEADLESS}
        for key, value in HEADLESS.items():
            os.environ.setdefault(key, value)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for key, value in self._before.items():
            if value is None:
                del os.environ[key]
        if self._writer is not None:
            self._writer.close()
        with suppress(OSError):  # where nothing could be written, nothing is to be removed
            self._part.unlink()

    def around(self, make: Callable[[], Any]) -> Callable[[], gymnasium.Env]:
        """The factory of an env that is recorded, after a trial that it can be.

        Raises VideoError naming the env and why it gives no pictures, or the file where it cannot be written.
        """
        self._try(make)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._part.touch()
        except OSError as err:
            raise VideoError(f"--video {self.path} cannot be written: {err}; give another place") from err

        def recorded() -> gymnasium.Env:
            return _Recorded(wrap_env(make()), self)

        recorded.__name__ = getattr(make, "__name__", type(make).__name__)
        return recorded

    def start(self, env: gymnasium.Env) -> None:
        """Begin the file with what `env` shows."""
        if self._frames:  # one episode alone
            return
        fps = (env.metadata or {}).get("render_fps") or FPS
        import imageio

        if self.path.suffix.lower() == ".gif":
            self._writer = imageio.get_writer(self._part, mode="I", duration=1000 / fps, loop=0)
        else:
            self._writer = imageio.get_writer(
                self._part, format="FFMPEG", mode="I", fps=fps, macro_block_size=2, ffmpeg_log_level="error"
            )
        self.add(env)

    def add(self, env: gymnasium.Env, end: bool = False) -> None:
        """One more picture; with `end` the last one."""
        if self._writer is None:
            return
        self._writer.append_data(picture(env.render()))
        self._frames += 1
        if end:
            writer, self._writer = self._writer, None
            writer.close()
            os.replace(self._part, self.path)
            get_logger().info(f"video: {self._frames} pictures of the first episode of env column 0 in {self.path}")

    def _try(self, make: Callable[[], Any]) -> None:
        env = wrap_env(make())
        try:
            if env.render_mode != "rgb_array":
                raise VideoError(
                    f"env '{env_name(env)}' cannot be recorded: its render_mode is {env.render_mode!r}; wanted "
                    "'rgb_array', which its constructor is given where it takes render_mode"
                )
            env.reset(seed=0)
            picture(env.render())
        except (NotImplementedError, ImportError, TypeError, gymnasium.error.Error) as err:
            reason = str(err) or f"its render() raises {type(err).__name__}"
            raise VideoError(f"env '{env_name(env)}' cannot be recorded: {reason}") from err
        finally:
            env.close()


class _Recorded(gymnasium.Wrapper):
    """An env whose first episode goes to a recorder."""

    def __init__(self, env: gymnasium.Env, recorder: Recorder) -> None:
        super().__init__(env)
        self._recorder = recorder

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        result = self.env.reset(**kwargs)
        self._recorder.start(self.env)
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._recorder.add(self.env, end=bool(result[2] or result[3]))
        return result


def with_pictures(env_cfg: Mapping[str, Any], env_setting: Any = None) -> CfgDict:
    """The `env` section with `render_mode='rgb_array'` among its `env_kwargs`, where what makes the envs takes it."""
    source = registered(env_cfg) if env_setting is None else env_setting
    if source is not None:
        parameters = inspect.signature(source).parameters if callable(source) else {}
        anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if not anything and not {"render_mode", "cfg", "config", "env_cfg"} & set(parameters):
            return CfgDict(env_cfg)
    return CfgDict({**env_cfg, "env_kwargs": {**(env_cfg.get("env_kwargs") or {}), "render_mode": "rgb_array"}})


def picture(frame: Any) -> np.ndarray:
    """What an env rendered as `[H, W, 3]` uint8, with even sides, not too small to look at; floats are shares of 1.

    Raises TypeError for anything else than `[H, W, 3]`.
    """
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        found = f"an array of shape {frame.shape}" if isinstance(frame, np.ndarray) else f"a {type(frame).__name__}"
        raise TypeError(f"render() gives {found}; wanted an array [height, width, 3]")
    if frame.dtype != np.uint8:
        frame = np.clip(frame * 255 if frame.dtype.kind == "f" else frame, 0, 255).astype(np.uint8)
    times = -(-SMALL // min(frame.shape[:2]))
    if times > 1:
        frame = frame.repeat(times, 0).repeat(times, 1)
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
