"""Videos of an evaluation: what they show, that they change nothing, and what cannot be recorded."""

import json
import logging
import os
import sys

import gymnasium
import imageio
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ding_like.config import ConfigError
from ding_like.entry import cli, serial_pipeline
from ding_like.entry import eval as evaluate
from ding_like.entry.video import Recorder, VideoError, picture
from ding_like.envs import EnvError
from ding_like.torch_utils.checkpoint import CheckpointError
from ding_like.utils import ENV_REGISTRY
from tests.envs.toys import Count
from tests.helpers import Constant, ding, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")
POLE = (202, 152, 101)  # its colour in CartPole's pictures


class Balancing(nn.Module):
    """Pushes to the side that the pole falls to; holds it for the whole episode."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.1, 0.5, 10.0, 3.0]))

    def forward(self, x):
        score = x @ self.weight
        return {"logit": torch.stack([-score, score], -1)}


def frames(path):
    return [np.asarray(frame)[..., :3] for frame in imageio.get_reader(path)]


def tilt(frame):
    """Degrees between the pole and the vertical, by the pixels of its colour."""
    rows, columns = np.nonzero(np.abs(frame.astype(int) - POLE).sum(-1) < 40)
    top, bottom = rows.min(), rows.max()
    across = columns[rows == top].mean() - columns[rows == bottom].mean()
    return abs(np.degrees(np.arctan2(across, bottom - top)))


def setting(steps=60):
    main, create = tiny_config()
    main["env"]["max_episode_steps"] = steps
    return main, create


@pytest.mark.system
@pytest.mark.parametrize("name", ["a.mp4", "deep/er/a.gif"])
def test_a_policy_that_balances_is_seen_to_balance(name, caplog):
    plain = evaluate(setting(), model=Balancing())
    with caplog.at_level(logging.INFO, "ding_like"):
        recorded = evaluate(setting(), model=Balancing(), video=name)
    assert recorded == plain and plain["returns"] == [60.0] * 3
    assert f"video: 61 pictures of the first episode of env column 0 in {name}" in caplog.messages
    shown = frames(name)
    assert shown[0].shape == (400, 600, 3)
    assert len(shown) == 61 or (name.endswith("gif") and len(shown) > 30)  # a gif joins equal pictures
    assert max(map(tilt, shown)) < 5


@pytest.mark.system
def test_a_policy_that_lets_the_pole_fall_is_seen_to_fail():
    result = evaluate(setting(), model=Constant(0.0, 1.0), video="a.mp4")
    shown = frames("a.mp4")
    assert len(shown) < 15 and tilt(shown[-1]) > 8
    assert len(shown) - 1 in result["returns"]


class Drawn(Count):
    """`Count` that draws its step as the red of its picture; the reset draws a number, as some envs do."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    made = []

    def __init__(self, n=6, render_mode=None):
        super().__init__(n)
        self.render_mode = render_mode
        self.made.append(self)

    def reset(self, *, seed=None, options=None):
        self.r = float(np.random.random())
        return super().reset(seed=seed)

    def render(self):
        frame = np.zeros((9, 20, 3))
        frame[..., 0] = self.t / 8
        return frame


def drawn_config():
    main, create = tiny_config()
    create["env"] = dict(type="drawn")
    return main, create


def test_pictures_are_those_of_one_whole_episode_and_the_numbers_stay():
    ENV_REGISTRY.register("drawn", Drawn, force_overwrite=True)
    plain = evaluate(drawn_config(), model=Constant(0.0, 1.0))
    Drawn.made.clear()
    assert evaluate(drawn_config(), model=Constant(0.0, 1.0), video="a.gif", n_episode=3) == plain
    shown = frames("a.gif")
    assert [round(float(frame[..., 0].mean()) / 255 * 8) for frame in shown] == [0, 1, 2, 3, 4, 5, 6]
    assert shown[0].shape == (162, 360, 3)  # enlarged by 18
    assert imageio.v3.immeta("a.gif")["duration"] == 200
    assert sorted(os.listdir()) == ["a.gif"]


class Mute(Count):
    """No pictures at all."""


class Blank(Drawn):
    """Promises pictures and draws none."""

    def render(self):
        return None


class Unable(Drawn):
    """Its render is that of the base class."""

    def render(self):
        return gymnasium.Env.render(self)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (Mute, "env 'Mute' cannot be recorded: its render_mode is None; wanted 'rgb_array'"),
        (lambda: Count(6), "env 'Count' cannot be recorded: its render_mode is None"),
        (Count(6), "env 'Count' cannot be recorded: its render_mode is None"),
        (Blank, r"env 'Blank' cannot be recorded: render\(\) gives a NoneType; wanted an array"),
        (Unable, r"env 'Unable' cannot be recorded: its render\(\) raises NotImplementedError"),
    ],
)
def test_an_env_without_pictures_is_named_before_anything_runs(env, says, in_tmp):
    with pytest.raises(VideoError, match=says):
        evaluate(tiny_config(), model=Constant(0.0, 1.0), env_setting=env, video="deep/a.gif")
    assert list(in_tmp.iterdir()) == []


def test_an_env_of_ones_own_that_draws_is_recorded_as_it_is():
    evaluate(
        tiny_config(), model=Constant(0.0, 1.0), env_setting=lambda: Drawn(4, render_mode="rgb_array"), video="a.gif"
    )
    assert len(frames("a.gif")) == 5


def test_what_an_error_leaves_unfinished_is_removed(in_tmp):
    class Breaks(Drawn):
        def step(self, action):
            if self.t == 3:
                raise RuntimeError("boom")
            return super().step(action)

    before = dict(os.environ)
    with pytest.raises(EnvError, match="boom"):
        evaluate(tiny_config(), model=Constant(0.0, 1.0), env_setting=Breaks, video="a.gif")
    assert list(in_tmp.iterdir()) == [] and dict(os.environ) == before


def test_other_endings_folders_and_missing_packages_are_named(in_tmp, monkeypatch):
    with pytest.raises(VideoError, match=r"--video a\.avi: wanted a file that ends in \.mp4 or \.gif"):
        Recorder("a.avi")
    (in_tmp / "b.gif").mkdir()
    with pytest.raises(VideoError, match=r"--video b\.gif is a folder; wanted a file"):
        Recorder("b.gif")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ImportError, match=r"needs the package imageio_ffmpeg: pip install 'ding_like\[video\]'"):
        Recorder("a.mp4")


@pytest.mark.parametrize("path", ["/proc/v.gif", "file/v.gif"])
def test_a_place_that_cannot_be_written_is_named_and_not_the_env(path, in_tmp):
    (in_tmp / "file").touch()
    env = lambda: Drawn(4, render_mode="rgb_array")  # noqa: E731
    with pytest.raises(VideoError, match=f"--video {path} cannot be written: .*; give another place"):
        evaluate(tiny_config(), model=Constant(0.0, 1.0), env_setting=env, video=path)


@pytest.mark.parametrize(
    ("frame", "shape", "top"),
    [
        (np.full((160, 161, 3), 7, np.uint8), (160, 162, 3), 7),
        (np.full((10, 10, 3), 0.5), (160, 160, 3), 127),
        (np.full((300, 200, 3), 300, np.int64), (300, 200, 3), 255),
    ],
)
def test_pictures_of_any_kind_become_even_ones_of_bytes(frame, shape, top):
    made = picture(frame)
    assert made.shape == shape and made.dtype == np.uint8 and made.max() == made.min() == top


@pytest.mark.parametrize("frame", [np.zeros((5, 5)), np.zeros((5, 5, 4)), np.zeros((0, 5, 3)), [1], spaces.Discrete(2)])
def test_what_is_no_picture_is_refused(frame):
    with pytest.raises(TypeError, match=r"render\(\) gives .*; wanted an array \[height, width, 3\]"):
        picture(frame)


@pytest.fixture
def run(in_tmp):
    serial_pipeline(tiny_config(), seed=0, max_train_iter=5)
    return in_tmp / "run"


@pytest.mark.system
def test_the_command_records_and_its_line_stays_the_last_and_the_same(run, in_tmp):
    plain = ding("-m", "eval", "-c", "run/total_config.yaml", "--load-path", "run/ckpt/ckpt_best.pth.tar", cwd=in_tmp)
    recorded = ding("-m", "eval", "--load-path", "run", "--video", "a.mp4", cwd=in_tmp)
    assert (plain.returncode, recorded.returncode) == (0, 0), recorded.stderr
    assert recorded.stdout == plain.stdout and json.loads(plain.stdout)["n_episode"] == 3
    assert len(frames("a.mp4")) > 5


def test_a_run_folder_brings_its_config(run, in_tmp, monkeypatch):
    best = evaluate("run/total_config.yaml", load_path="run/ckpt/ckpt_best.pth.tar")
    assert evaluate(load_path="run") == evaluate(load_path=run / "ckpt" / "ckpt_best.pth.tar") == best
    monkeypatch.chdir(run / "ckpt")
    assert evaluate(load_path="ckpt_best.pth.tar") == best
    (run / "ckpt" / "ckpt_best.pth.tar").rename(in_tmp / "alone.pth.tar")
    with pytest.raises(ConfigError, match="there is no config: give -c FILE"):
        evaluate(load_path=in_tmp / "alone.pth.tar")
    with pytest.raises(ConfigError, match="there is no config"):
        evaluate()
    with pytest.raises(CheckpointError, match=r"no\.pth\.tar does not exist"):
        evaluate(load_path="no.pth.tar")


def test_the_option_goes_with_eval_alone(capsys):
    assert cli.main(["-m", "serial", "-c", "x.py", "--video", "a.mp4"]) == 2
    assert "--video: no meaning with -m serial; it records an evaluation" in capsys.readouterr().err
