"""A policy without its config and its env: the recipe that a checkpoint holds, and the policy made from it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from ding_like.config.cfg_dict import CfgDict, to_plain
from ding_like.config.merge import deep_merge_defaults
from ding_like.model.normalizer import NormalizedModel
from ding_like.rl_utils.action_scale import ActionScale
from ding_like.torch_utils.checkpoint import CheckpointError, find_checkpoint, load_checkpoint, load_model_state
from ding_like.utils import POLICY_REGISTRY, import_modules

if TYPE_CHECKING:
    from ding_like.policy.base_policy import Policy

PARTS = {"policy": str, "import_names": list, "config": dict, "shapes": dict, "interface": dict}
_BUILT_IN = ("ding_like", "torch", "__main__")  # modules that need or allow no import by name


def policy_recipe(
    cls: type[Policy], network: nn.Module, config: Mapping[str, Any], shapes: Mapping[str, Any], own_model: bool
) -> dict[str, Any]:
    """All that makes a policy anew but its weights, in plain types; `{'obstacle': why}` where that cannot be had.

    Args:
        config, shapes: what the policy was made with; `own_model` tells whether a network was among it.
    """
    plain = to_plain(config)
    plain.get("learn", {}).pop("learner", None)  # of the learner and its hooks, not of the policy
    odd = next(_odd(plain, "policy"), None)
    if odd is not None:
        return {"obstacle": f"{odd}, which a checkpoint cannot hold; name it by a string"}
    if "interface" not in shapes or not isinstance(plain.get("type"), str):
        return {"obstacle": "the policy was made without a config's policy.type and the spaces of an env"}
    if isinstance(network, NormalizedModel):
        network = network.model
    names = [*plain.get("import_names", []), cls.__module__, type(network).__module__]
    own = [name for name in names if name.split(".")[0] not in _BUILT_IN]
    return {
        "policy": plain["type"],
        "import_names": list(dict.fromkeys(own)),
        "config": plain,
        "shapes": to_plain({key: shapes[key] for key in ("obs_shape", "action_shape", "action_space")}),
        "interface": shapes["interface"],
        "network": type(network).__name__ if own_model else None,
    }


def load_policy(path: str | os.PathLike, device: str = "cpu", model: nn.Module | None = None) -> Policy:
    """The policy of a checkpoint, ready to `act`; neither an env nor the config is needed.

    Args:
        path: a checkpoint, or the folder of a run, of which the best checkpoint is taken.
        device: 'cpu' or 'cuda'.
        model: the network, its weights of no account, where the policy was trained with one that came as an object.

    Modules of your own that the policy was registered in are imported by name, so they must be on the path.

    Raises CheckpointError naming what is missing, damaged, unknown or does not fit; ValueError for another device.
    """
    if str(device) not in ("cpu", "cuda"):
        raise ValueError(f"device is {device!r}; wanted 'cpu' or 'cuda'")
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise CheckpointError(f"load_policy: path is {path!r}; wanted a checkpoint file, or the folder of a run")
    path = find_checkpoint(path)
    content = load_checkpoint(path)
    recipe = _checked_recipe(content, path)
    network = recipe.get("network")
    if network is not None and model is None:
        raise CheckpointError(
            f"checkpoint {path} is of a policy whose network ({network}) came as an object, not from its config; give "
            "one like it: load_policy(path, model=...)"
        )
    cls = _policy_class(recipe, path)
    defaults = {**cls.default_config(), "model": {}}  # a network of the user's own may not take the policy's arguments
    config = CfgDict(deep_merge_defaults(defaults, recipe["config"]))
    config["cuda"] = str(device) == "cuda"
    try:
        policy = cls(config, model, ["eval"], shapes=_shapes(recipe))
    except (ValueError, TypeError, LookupError, AttributeError, ImportError, RuntimeError) as err:
        reason = str(err.args[0]) if isinstance(err, KeyError) and err.args else str(err)
        raise CheckpointError(
            f"checkpoint {path}: its policy '{recipe['policy']}' cannot be made from its recipe: "
            f"{type(err).__name__}: {reason}"
        ) from err
    load_model_state(policy.get_model(), content["state"]["model"], path)
    return policy


def _checked_recipe(content: Mapping[str, Any], path: str | os.PathLike) -> dict[str, Any]:
    recipe = content.get("recipe")
    if recipe is None:
        raise CheckpointError(
            f"checkpoint {path} holds no recipe of its policy, as it was written by an earlier version; use it with "
            f"the config it was trained with: ding -m eval -c CONFIG --load-path {path}"
        )
    if "obstacle" in recipe:
        raise CheckpointError(
            f"checkpoint {path} holds no recipe of its policy: {recipe['obstacle']}. As it is, use it with its config: "
            f"ding -m eval -c CONFIG --load-path {path}"
        )
    wrong = [name for name, kind in PARTS.items() if not isinstance(recipe.get(name), kind)]
    if not wrong and recipe["policy"] != content["policy"]:
        wrong = ["policy"]
    if wrong:
        raise CheckpointError(
            f"checkpoint {path} has a damaged recipe: its {', '.join(wrong)} is missing or of another kind; take "
            "another file of <exp_name>/ckpt/"
        )
    return recipe


def _policy_class(recipe: Mapping[str, Any], path: str | os.PathLike) -> type[Policy]:
    missing: ImportError | None = None
    for name in recipe["import_names"]:
        try:
            import_modules([name])
        except ImportError as err:  # the program may have registered the policy by another way
            missing = missing or err
    try:
        return POLICY_REGISTRY.get(recipe["policy"])
    except LookupError as unknown:
        reason = missing or unknown
        modules = ", ".join(recipe["import_names"]) or "none, as it was registered in the program that trained it"
        raise CheckpointError(
            f"checkpoint {path}: its policy '{recipe['policy']}' is not known here: {reason} It names the modules: "
            f"{modules}. Import the module that registers it first, or put it on the path."
        ) from reason


def _shapes(recipe: Mapping[str, Any]) -> dict[str, Any]:
    shapes = {**recipe["shapes"], "interface": recipe["interface"]}
    action = recipe["interface"]["action"]
    if shapes["action_space"] == "continuous":
        shapes["action_scale"] = ActionScale(action["low"], action["high"], action["dtype"])
    return shapes


def _odd(value: Any, path: str) -> Iterator[str]:
    """What is of no plain type in a plain tree, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _odd(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _odd(item, f"{path}[{i}]")
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        yield f"{path} is {value!r}"
