"""Datasets: whole episodes in one compressed file of plain arrays, and the store that trains from one."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, tree_index, tree_leaves, tree_paths
from ding_like.data.tree import is_node
from ding_like.rl_utils.windows import plan_windows
from ding_like.utils import BUFFER_REGISTRY
from ding_like.utils.seed import generator
from ding_like.worker.attribute import attribute_of

FORMAT = "ding_like dataset"
STEPS = ("obs", "action", "reward", "terminated", "truncated")  # fields that every dataset has
_UNREADABLE = (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, zipfile.BadZipFile, zlib.error)


class DatasetError(ValueError):
    """A dataset that cannot be used; says which file, what is wrong and what was wanted."""


@dataclass
class Episodes:
    """Whole episodes, one after the other.

    Attributes:
        steps: fields `[L, ...]` of all steps, those of `STEPS` among them: `obs` a tree, `action` in the policy's
            units; where they were there `env_action` (in the env's units, of a Box), `logit` and `log_prob`.
        starts: `[E]`, ascending: the first step of each episode.
        finals: tree `[E, ...]`, the observation after the last step of each.
        header: plain types: what the episodes were collected with.
    """

    steps: ArrayDict
    starts: np.ndarray
    finals: Any
    header: dict[str, Any]

    @property
    def ends(self) -> np.ndarray:
        """`[E]`: one past the last step of each episode."""
        return np.append(self.starts[1:], len(self.steps["reward"]))

    @property
    def returns(self) -> np.ndarray:
        """`[E]`, float64: the sum of each episode's rewards."""
        return np.add.reduceat(np.asarray(self.steps["reward"], np.float64), self.starts)


def save_dataset(path: str | os.PathLike, episodes: Episodes) -> None:
    """Write a dataset in one step (beside its name, then renamed); a file of that name is replaced.

    Raises DatasetError for steps that make no dataset, and where the disk refuses.
    """
    path = Path(path)
    _check(episodes, path)
    arrays: dict[str, np.ndarray] = {}
    trees = {"steps": dict(dict.items(episodes.steps)), "finals": episodes.finals}
    header = {**episodes.header, "format": FORMAT, "trees": {k: _taken(v, k, arrays) for k, v in trees.items()}}
    arrays |= {"episode_start": episodes.starts, "header": np.array(json.dumps(header))}
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(part, path)
    except (OSError, ValueError) as err:  # ValueError: an array of objects
        raise DatasetError(f"dataset {path} cannot be written: {err}") from err
    finally:
        part.unlink(missing_ok=True)


def load_dataset(path: str | os.PathLike) -> Episodes:
    """Read a dataset into memory. Raises DatasetError for a file that is missing, damaged or none."""
    path = Path(path)
    if not path.is_file():
        raise DatasetError(f"dataset {path} does not exist; wanted a file that `ding -m collect` wrote")
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            if header["format"] != FORMAT:
                raise ValueError(f"its format is {header['format']!r}")
            trees = header.pop("trees")
            steps = ArrayDict({name: _given(one, file) for name, one in trees["steps"].items()})
            episodes = Episodes(steps, file["episode_start"], _given(trees["finals"], file), header)
    except _UNREADABLE as err:
        raise DatasetError(
            f"{path} is no dataset, or a damaged one ({type(err).__name__}: {err}); wanted a file that "
            "`ding -m collect` wrote"
        ) from err
    _check(episodes, path)
    return episodes


def _taken(tree: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Put the leaves of a tree among `arrays`. Returns the tree with their names: a list is a tuple."""
    if isinstance(tree, dict):
        return {key: _taken(value, f"{name}.{key}", arrays) for key, value in tree.items() if value is not None}
    if is_node(tree):
        return [_taken(value, f"{name}.{i}", arrays) for i, value in enumerate(tree)]
    name = name.removeprefix("steps.")
    while name in arrays:  # the key of one dictionary may hold a dot
        name += "_"
    arrays[name] = np.asarray(tree)
    return name


def _given(names: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The tree that `_taken` took apart."""
    if isinstance(names, dict):
        return ArrayDict({key: _given(value, arrays) for key, value in names.items()})
    if isinstance(names, list):
        return tuple(_given(value, arrays) for value in names)
    return arrays[names]


def _check(episodes: Episodes, path: Path) -> None:
    """Raises DatasetError where the arrays are not those of whole episodes."""
    steps, starts = episodes.steps, np.asarray(episodes.starts)
    missing = [name for name in STEPS if name not in steps]
    if missing:
        raise DatasetError(f"dataset {path} lacks {', '.join(missing)}; wanted the fields {', '.join(STEPS)}")
    length = np.size(steps["reward"])
    odd = [name for name, leaf in tree_paths(steps) if np.shape(leaf)[:1] != (length,)]
    if odd:
        raise DatasetError(f"dataset {path}: {odd[0]} has not the {length} steps of reward; wanted one entry a step")
    if not length or starts.ndim != 1 or not len(starts) or starts[0] or (np.diff(starts, append=length) < 1).any():
        raise DatasetError(
            f"dataset {path}: wanted one episode or more, first steps ascending from 0 in {length} steps"
        )
    if any(len(leaf) != len(starts) for leaf in tree_leaves(episodes.finals)):
        raise DatasetError(f"dataset {path}: wanted one final observation for each of its {len(starts)} episodes")


@BUFFER_REGISTRY.register("dataset")
class Dataset:
    """The steps of a dataset, or windows of them, in epochs: each once, in a random order, without end.

    Args:
        cfg: the `policy.other.replay_buffer` section.
        seed: keys the orders.

    Attributes:
        offline: a run from this store takes no env step.
    """

    config: dict = dict(
        path=None,  # the dataset that a run trains from, a file that `ding -m collect` wrote
    )
    offline = True

    def __init__(self, cfg: Any, seed: int = 0) -> None:
        if not isinstance(cfg.path, str | os.PathLike):
            raise DatasetError(
                f"policy.other.replay_buffer.path is {cfg.path!r}; wanted the dataset to train from, a file that "
                "`ding -m collect` wrote"
            )
        self._path = Path(cfg.path)
        self.episodes = load_dataset(self._path)
        self._steps = ArrayDict({name: self.episodes.steps[name] for name in ("obs", "action")})
        self._digest = zlib.crc32(np.ascontiguousarray(self._steps["action"]).tobytes())
        self._windows: ArrayDict | None = None  # rows, mask and cut `[N, U]`
        self._rng = generator(seed, "dataset")
        self._began: Mapping[str, Any] = {}  # the generator before the order of this epoch
        self._order = np.arange(0)
        self._next = 0  # minibatch of the epoch

    @property
    def count(self) -> int:
        """Items of an epoch: steps, or windows."""
        return len(self.episodes.steps["reward"] if self._windows is None else self._windows["rows"])

    def attach(self, policy: Any, interface: Any) -> None:
        """Make the items that a policy trains on, and let its normaliser see all observations.

        Args:
            policy: a `collect_mode`. Its `sample_len`, where above 1, makes windows of so many steps that train, with
                `burnin` more in front.
            interface: what its env gives and takes.

        Raises DatasetError where the dataset is of an env that gives or takes something else, or holds no such actions.
        """
        wanted = json.loads(json.dumps(interface.plain))
        made = self.episodes.header.get("interface") or wanted
        for name in wanted:
            if made.get(name) != wanted[name]:
                raise DatasetError(
                    f"dataset {self._path} is of env '{self.episodes.header.get('env')}', whose {name} is "
                    f"{made.get(name)}; this run's is {wanted[name]}: take the env and the wrappers that it was "
                    "collected with"
                )
        self._check_action(interface.plain["action"].get("n"))
        if (length := int(attribute_of(policy, "sample_len", 1))) > 1:
            self._windows = self._cut(length, int(attribute_of(policy, "burnin", 0)))
        if policy.get_attribute("norm_obs"):
            policy.observe(self._steps["obs"])

    def _check_action(self, numbers: Any) -> None:
        """Raises DatasetError for actions that are not among so many (of each, where there are several)."""
        action = self._steps["action"]
        if numbers is None or (action.dtype.kind in "iu" and ((action >= 0) & (action < np.asarray(numbers))).all()):
            return
        raise DatasetError(
            f"dataset {self._path}: action holds {action.dtype} from {action.min()} to {action.max()}; wanted whole "
            f"numbers that count from 0, below {numbers}"
        )

    def _cut(self, length: int, burnin: int) -> ArrayDict:
        """Windows of single episodes: `mask` is 0 at slots that are no step or there for burn-in; after slots where
        `cut` is 0 an episode begins.
        """
        plan, slots, real = plan_windows(length, "last", burnin, None, 0), [], []
        for start, end in zip(self.episodes.starts, self.episodes.ends):
            at = start + plan.slots(plan.firsts(int(end - start)))  # [N, U]
            real.append((at >= start) & (at < end))
            slots.append(at.clip(start, end - 1))
        within = np.concatenate(real)
        mask, cut = within.astype(np.float32), np.ones(within.shape, np.float32)
        mask[:, :burnin] = 0
        cut[:, :-1][~within[:, :-1] & within[:, 1:]] = 0
        return ArrayDict(rows=np.concatenate(slots), mask=mask, cut=cut)

    def batches(self, updates: int, batch_size: int) -> Iterator[ArrayDict]:
        """The next `updates` minibatches, of at most `batch_size` items whose number differs by one at most: `obs` and
        `action` `[n, ...]`, or of windows `[n, U, ...]` with `mask` and `cut`.
        """
        pieces = -(-self.count // batch_size)
        for _ in range(updates):
            if self._next == 0:
                self._shuffle()
            first, last = (self.count * i // pieces for i in (self._next, self._next + 1))
            self._next = (self._next + 1) % pieces
            yield self._gather(self._order[first:last])

    def _shuffle(self) -> None:
        self._began = self._rng.bit_generator.state
        self._order = self._rng.permutation(self.count)

    def _gather(self, index: np.ndarray) -> ArrayDict:
        if self._windows is None:
            return tree_index(self._steps, index)
        windows = tree_index(self._windows, index)
        batch = tree_index(self._steps, windows.pop("rows"))
        return ArrayDict({**batch, **windows})

    def state_dict(self) -> dict[str, Any]:
        """Where it stands in its epoch, and how many items that has."""
        rng = self._began if self._next else self._rng.bit_generator.state
        return {"rng": rng, "next": self._next, "count": self.count, "actions": self._digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`. Raises ValueError where the dataset is another one than it was."""
        if (state["count"], state["actions"]) != (self.count, self._digest):
            raise ValueError(f"dataset {self._path} is another one than it was: it had {state['count']} items")
        self._rng.bit_generator.state = state["rng"]
        if state["next"]:
            self._shuffle()
        self._next = state["next"]
