"""The place of a policy server: taken by one at a time, and left as it was found."""

import contextlib
import socket

import click
import pytest

from gmiflow.commands.serve_place import Place


@pytest.fixture
def listen():
    """`listen(path, backlog)` listens there until the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(path, backlog=8):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen(backlog)
            return listener

        yield start


def test_who_comes_second_is_refused_and_the_first_one_keeps_its_token(tmp_path, listen):
    path = tmp_path / "serve.sock"
    first, second = Place(path, None), Place(path, None)  # both have looked before either listens
    with first.taken():
        listen(path)
    with pytest.raises(click.UsageError, match="another server listens"), second.taken():
        pass
    second.leave()
    assert (tmp_path / "serve.token").read_text() == f"{first.token}\n"
    first.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_ends_late_leaves_its_successor_alone(tmp_path, listen):
    path = tmp_path / "serve.sock"
    old, new = Place(path, None), Place(path, None)
    with old.taken():
        listener = listen(path)
    listener.close()  # it still answers what it has read; the place looks like that of a killed server
    with new.taken():
        listen(path)
    old.leave()
    assert path.is_socket() and (tmp_path / "serve.token").read_text() == f"{new.token}\n"


def test_a_server_too_busy_to_accept_is_not_taken_for_a_dead_one(tmp_path, listen):
    path = tmp_path / "serve.sock"
    listen(path, backlog=0)
    with contextlib.ExitStack() as waiting:
        for _ in range(3):
            client = waiting.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect_ex(str(path))
        with pytest.raises(click.UsageError, match="another server listens"):
            Place(path, None)
    assert path.is_socket()


def test_nothing_stays_of_a_server_that_cannot_start(tmp_path):
    place = Place(tmp_path / "serve.sock", None)
    with pytest.raises(OSError, match="taken"), place.taken(), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "serve.sock"))
        raise OSError("the port is taken")
    assert list(tmp_path.iterdir()) == []
