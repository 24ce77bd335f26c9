"""What the child processes of tests run; importing this is quick."""

import os
import time

from ding_like.data import tree_leaves
from ding_like.utils import REGISTRIES
from ding_like.utils.child import post, receive, tell
from ding_like.utils.shared_memory import SharedTree, recv_fd


class Own(Exception):
    """An exception whose arguments are not those of its constructor."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def obey(conn, *args):
    """Do what the messages say."""
    while True:
        kind, value = receive(conn)
        if kind == b"p":
            post(conn, b"q")
        elif kind == "echo":
            tell(conn, "echo", value)
        elif kind == "call second":
            tell(conn, "called", args[1]())
        elif kind == "call":
            tell(conn, "called", value())
        elif kind == "plain":
            conn.send(("plain", conn.recv()))
        elif kind == "close":
            return
        elif kind == "raise":
            raise value
        elif kind == "sleep":
            time.sleep(value)


class Get:
    """Calls for environment variables."""

    def __init__(self, names):
        self.names = names

    def __call__(self):
        return list(map(os.environ.get, self.names))


def registered_names(conn):
    tell(conn, "names", {kind: [name for name, _ in REGISTRIES[kind].registered()] for kind in ("env", "policy")})


def add_one(conn):
    """Add 1 to every number of a shared tree that is sent."""
    _, spec = receive(conn)
    shared = SharedTree(spec, recv_fd(conn))
    shared.close()
    for leaf in tree_leaves(shared.tree):
        leaf += 1 if leaf.dtype != bool else False
    tell(conn, "added")
