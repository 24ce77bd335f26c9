"""`ArrayDict`: the open-keyed tree node that policies hold."""

from __future__ import annotations

from typing import Any

from ding_like.data.tree import leading_shape, tree_index, tree_map, tree_write


class ArrayDict(dict):
    """A dictionary of arrays (or nested trees) with common leading axes.

    A string key is a field; any other key (int, slice, array, tuple) indexes every leaf, and assignment
    follows the same rule. `in`, `keys`, `items` and iteration go over fields; `len` is the leading axis. A
    plain dictionary in a field is one of these once it has been read.

    Example: `data['main_obs'] = data['obs'][2:-3]`, `half = data[:4]`, `data[t] = row`.
    """

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            try:
                value = dict.__getitem__(self, key)
            except KeyError:
                raise KeyError(f"no field '{key}': fields are {list(self.keys())}") from None
            if type(value) is dict:  # so that `data['obs'][2:5]` holds for dictionary observations too
                value = ArrayDict(value)
                dict.__setitem__(self, key, value)
            return value
        return type(self)({k: None if v is None else tree_index(v, key) for k, v in dict.items(self)})

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is str:
            dict.__setitem__(self, key, value)
        else:
            tree_write(self, key, value)

    def __len__(self) -> int:
        return leading_shape(self)[0]

    def __bool__(self) -> bool:
        return bool(self.keys())

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def get(self, key: str, default: Any = None) -> Any:
        """The field, or `default`."""
        if key not in self:
            return default
        return self[key]

    def copy(self) -> ArrayDict:
        """A new dictionary over the same arrays."""
        return type(self)(dict.items(self))

    def map(self, fn: Any) -> ArrayDict:
        """`fn` applied to every leaf."""
        return tree_map(fn, self)

    def __repr__(self) -> str:
        def short(v: Any) -> str:
            return f"{v.dtype}{list(v.shape)}" if hasattr(v, "dtype") else repr(v)

        return f"ArrayDict({', '.join(f'{k}={short(v)}' for k, v in dict.items(self))})"
