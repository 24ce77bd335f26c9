"""Packaging of ding_like. Ranges are wide on purpose; the tested versions are in constraints.txt."""

from pathlib import Path

from setuptools import find_packages, setup

EXTRAS = {
    "box2d": ["gymnasium[box2d]", "pygame-ce"],
    "atari": ["ale-py>=0.9", "opencv-python-headless"],
    "minatar": ["minatar>=1.0.15"],
    "minigrid": ["minigrid>=3.0"],
    "popgym": ["popgym>=1.0.7"],
    "mujoco": ["mujoco>=3.1"],
    "envpool": ["envpool>=1.0"],
    "fast": ["numba"],
    "gym": ["gym==0.26.2"],
    "video": ["imageio>=2.28", "imageio-ffmpeg"],
    "onnx": ["onnx>=1.16", "onnxruntime>=1.17", "onnxscript", "torch>=2.6"],
    "plot": ["matplotlib"],
    "wandb": ["wandb"],
}
TOOLS = ["pytest", "hypothesis", "ruff", "mypy", "types-PyYAML", "psutil"]
TESTED = ("box2d", "atari", "minatar", "minigrid", "popgym", "mujoco", "fast", "gym", "plot", "video", "onnx")
EXTRAS["test"] = TOOLS + sorted({req for name in TESTED for req in EXTRAS[name]})
EXTRAS["all"] = sorted({req for name, extra in EXTRAS.items() if name != "test" for req in extra})

setup(
    name="ding_like",
    version="0.1.0",
    description="Config-driven deep reinforcement learning on PyTorch: small, right, fast.",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["ding_like", "ding_like.*", "dizoo_configs", "dizoo_configs.*"]),
    package_data={"ding_like": ["py.typed"]},
    python_requires=">=3.11",
    install_requires=[
        "torch>=2.4",
        "numpy>=1.26",
        "gymnasium>=1.1",
        "easydict",
        "pyyaml",
        "tensorboardX>=2.6",
        "click>=8",
        "cloudpickle",
        "rich",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["ding=ding_like.entry.cli:main"]},
)
