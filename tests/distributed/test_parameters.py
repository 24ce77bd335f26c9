"""Readers of the parameter board see whole publications, whenever they look."""

import functools
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.distributed.parameters import ParameterBoard
from ding_like.utils.child import Child, receive, tell
from ding_like.utils.shared_memory import recv_fd, send_fd
from tests.distributed.parts import within


def tree(value, size=20000):
    """Every number of it is `value`."""
    return {"a": torch.full((size,), float(value)), "b": {"c": torch.full((3, 5), int(value))}, "d": np.full(7, value)}


def numbers(state):
    return {float(x) for leaf in (state["a"], state["b"]["c"], state["d"]) for x in np.unique(np.asarray(leaf))}


def test_the_newest_publication_arrives_once():
    board = ParameterBoard(tree(0))
    state = tree(-1)
    assert board.version == 0 and board.fetch(state) == 0 and numbers(state) == {-1.0}
    for value in (3, 4, 5, 6):
        assert board.publish(tree(value)) == value - 2
    reader = ParameterBoard(board.shared.spec, board.shared.fd)
    assert reader.fetch(state) == 4 and numbers(state) == {6.0}
    state["d"][:] = 9
    assert reader.fetch(state, have=4) == 4 and numbers(state) == {6.0, 9.0}
    assert board.publish(tree(7)) == 5 and reader.fetch(state, have=4) == 5 and numbers(state) == {7.0}


def test_types_and_shapes_are_kept_also_of_scalars():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    board = ParameterBoard(net.state_dict())
    net[1].num_batches_tracked += 5
    board.publish(net.state_dict())
    board.fetch(other.state_dict())
    for name, value in net.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]) and value.dtype == other.state_dict()[name].dtype


def test_a_fetch_is_a_change_that_torch_counts():
    """Caches of a network, such as those of its normaliser, go by the version of a tensor."""
    state = {"w": nn.Parameter(torch.zeros(3)).detach()}
    board, before = ParameterBoard(state), state["w"]._version
    board.publish({"w": torch.ones(3)})
    board.fetch(state)
    assert state["w"]._version > before and state["w"].tolist() == [1, 1, 1]


def test_a_tree_of_another_size_is_refused():
    board = ParameterBoard({"a": torch.zeros(3)})
    with pytest.raises(ValueError):
        board.publish({"a": torch.zeros(3), "b": torch.zeros(1)})


def test_a_reader_beside_a_writer_in_a_thread_never_sees_a_mixture():
    board, over = ParameterBoard(tree(0)), threading.Event()

    def write():
        value = 0
        while not over.is_set():
            value += 1
            board.publish(tree(value))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        check_reads(board, 0.7)
    finally:
        over.set()
        thread.join()


def check_reads(board, seconds):
    state, have, seen, end = tree(0), 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        version = board.fetch(state, have)
        assert version >= have and numbers(state) == {float(version)}
        seen, have = seen + (version > have), version
    assert seen > 10


def _reader(conn):
    """A process that looks until it is told to stop."""
    _, spec = receive(conn)
    board, have, state, seen = ParameterBoard(spec, recv_fd(conn)), 0, tree(0), 0
    tell(conn, "ready")
    while not conn.poll():
        version = board.fetch(state, have)
        assert version >= have and numbers(state) == {float(version)}, (version, numbers(state))
        seen, have = seen + (version > have), version
    tell(conn, "seen", seen)


@pytest.mark.system
def test_readers_in_other_processes_never_see_a_mixture():
    board = ParameterBoard(tree(0))
    readers = [Child(f"reader {i}", functools.partial(_reader)) for i in range(2)]
    try:
        with within(60):
            for reader in readers:
                reader.send("spec", board.shared.spec)
                send_fd(reader.conn, board.shared.fd, reader.pid)
            for reader in readers:
                assert reader.recv()[0] == "ready"
            end, value = time.monotonic() + 2, 0
            while time.monotonic() < end:
                value += 1
                board.publish(tree(value))
            for reader in readers:
                reader.send("stop")
            assert all(reader.recv()[1] > 10 for reader in readers)
    finally:
        for reader in readers:
            reader.close()
        board.shared.close()
