"""One currency for data: trees of arrays with leading axes."""

from ding_like.data.array_dict import ArrayDict
from ding_like.data.block import Block, RowLink
from ding_like.data.namedarraytuple import (
    Infos,
    NamedArrayTupleSchema,
    dict_to_namedarraytuple,
    namedarraytuple,
    namedarraytuple_like,
    namedarraytuple_to_dict,
)
from ding_like.data.tree import (
    buffer_from_example,
    leading_shape,
    numpify,
    torchify,
    tree_cat,
    tree_index,
    tree_leaves,
    tree_map,
    tree_paths,
    tree_stack,
    tree_write,
)

__all__ = [
    "ArrayDict",
    "Block",
    "Infos",
    "NamedArrayTupleSchema",
    "RowLink",
    "buffer_from_example",
    "dict_to_namedarraytuple",
    "leading_shape",
    "namedarraytuple",
    "namedarraytuple_like",
    "namedarraytuple_to_dict",
    "numpify",
    "torchify",
    "tree_cat",
    "tree_index",
    "tree_leaves",
    "tree_map",
    "tree_paths",
    "tree_stack",
    "tree_write",
]
