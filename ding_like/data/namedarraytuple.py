"""`namedarraytuple`: a namedtuple of arrays with common leading axes (Stooke and Abbeel 2019, section 5).

Closed fields, nested, `None` leaves allowed. Indexing follows the project's one rule: a string key is a
field, any other key indexes every leaf. As a tuple it unpacks and has `len` over fields; positional access is
`x.get(i)`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ding_like.data.tree import LeafTuple, tree_index, tree_write

RESERVED = ("get", "items", "keys", "index", "count")


class Infos(LeafTuple):
    """A tuple of B info dictionaries that trees treat as one leaf; an int gives one, any other key a part."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, np.integer)):
            return tuple.__getitem__(self, key)
        if isinstance(key, slice):
            return Infos(tuple.__getitem__(self, key))
        picked = np.arange(len(self))[key]
        return Infos(tuple.__getitem__(self, int(i)) for i in picked)


class _ArrayTuple:
    """Behaviour shared by every named array tuple; the tuple storage itself comes from `namedtuple`."""

    __slots__ = ()
    _fields: tuple[str, ...]

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            return self._field(key)
        values = []
        for name, leaf in self.items():
            try:
                values.append(leaf[key] if isinstance(leaf, _ArrayTuple) else tree_index(leaf, key))
            except (IndexError, TypeError, ValueError, KeyError) as err:
                raise type(err)(f"in field '{name}': {err}") from err
        return self._make(values)  # type: ignore[attr-defined]

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is str:
            raise TypeError(f"field '{key}' of a {type(self).__name__} is fixed; use x._replace({key}=...)")
        tree_write(self, key, value)

    def _field(self, name: str) -> Any:
        if name not in self._fields:
            raise KeyError(f"no field '{name}' in {type(self).__name__}: fields are {list(self._fields)}")
        return tuple.__getitem__(self, self._fields.index(name))  # type: ignore[call-overload]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def get(self, index: int) -> Any:
        """The field at position `index`."""
        return tuple.__getitem__(self, index)  # type: ignore[call-overload]

    def keys(self) -> tuple[str, ...]:
        """The field names."""
        return self._fields

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs (field name, field)."""
        return zip(self._fields, tuple.__iter__(self))  # type: ignore[call-overload,arg-type]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple:
        return _restore, (type(self).__name__, self._fields, tuple(leaf for _, leaf in self.items()))


_TYPES: dict[tuple[str, tuple[str, ...]], type] = {}


def namedarraytuple(typename: str, field_names: str | Iterable[str]) -> type:
    """The named array tuple type with these fields (the same type for the same name and fields).

    Values pickle into any process: a pickle carries name and fields, and the type is made there when needed.

    Raises ValueError for a reserved or invalid field name.
    """
    fields = tuple(field_names.replace(",", " ").split()) if isinstance(field_names, str) else tuple(field_names)
    bad = [f for f in fields if f in RESERVED]
    if bad:
        raise ValueError(f"field names {bad} of '{typename}' are reserved: choose names outside {list(RESERVED)}")
    key = (typename, fields)
    if key not in _TYPES:
        base = namedtuple(typename, fields)  # type: ignore[misc]
        body = {"__slots__": (), "__doc__": f"Arrays {', '.join(fields)} with common leading axes."}
        _TYPES[key] = type(typename, (_ArrayTuple, base), body)
    return _TYPES[key]


def _restore(typename: str, fields: tuple[str, ...], values: tuple) -> Any:
    return namedarraytuple(typename, fields)._make(values)  # type: ignore[attr-defined]


def namedarraytuple_like(example: Any, typename: str | None = None) -> type:
    """The array-tuple type with the fields of `example`: a namedtuple, namedarraytuple, type of one, dict."""
    fields = tuple(example.keys()) if isinstance(example, dict) else getattr(example, "_fields", None)
    if fields is None:
        raise TypeError(f"cannot take fields from {type(example).__name__}; wanted a namedtuple or a dictionary")
    named = example.__name__ if isinstance(example, type) else type(example).__name__
    return namedarraytuple(typename or named, fields)


class NamedArrayTupleSchema:
    """A layout as data: call it like the type it describes. Pickles as its name and fields."""

    def __init__(self, typename: str, fields: str | Iterable[str]) -> None:
        self._type = namedarraytuple(typename, fields)
        self.typename = typename
        self._fields: tuple[str, ...] = self._type._fields  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._type(*args, **kwargs)

    def _make(self, values: Iterable) -> Any:
        return self._type._make(values)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedArrayTupleSchema) and (self.typename, self._fields) == (
            other.typename,
            other._fields,
        )

    def __hash__(self) -> int:
        return hash((self.typename, self._fields))

    def __reduce__(self) -> tuple:
        return NamedArrayTupleSchema, (self.typename, self._fields)

    def __repr__(self) -> str:
        return f"NamedArrayTupleSchema({self.typename!r}, {list(self._fields)})"


def dict_to_namedarraytuple(value: Any, typename: str = "Fields") -> Any:
    """A nested dictionary as nested named array tuples (sub-types take the names `typename_key`)."""
    if not isinstance(value, dict):
        return value
    made = {k: dict_to_namedarraytuple(v, f"{typename}_{k}") for k, v in dict.items(value)}
    return namedarraytuple(typename, made.keys())(**made)


def namedarraytuple_to_dict(value: Any) -> Any:
    """The reverse of `dict_to_namedarraytuple`."""
    if isinstance(value, _ArrayTuple):
        return {k: namedarraytuple_to_dict(v) for k, v in value.items()}
    return value
