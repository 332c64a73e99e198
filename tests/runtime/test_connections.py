"""What GMIs say to their launcher, over real sockets."""

import contextlib
import selectors
import socket
from pathlib import Path

import pytest
from plans import launch_plan, training_plan

from gmiflow.runtime.connections import Connections
from gmiflow.runtime.failure import LAUNCH_FAILED, RuntimeFailure
from gmiflow.runtime.members import Member
from gmiflow.runtime.messages import Failed, Heartbeat, Hello, encode

FAILED = Failed(gmi=1, failure=RuntimeFailure(code=LAUNCH_FAILED, message="no such module"))


class Launcher:
    """Listens for the GMIs of a plan and keeps what they say."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.members = {gmi.id: Member(gmi) for gmi in launch_plan(training_plan(), gmis=2).gmis}
        self.selector = selectors.DefaultSelector()
        self.heard: list[tuple[int, object]] = []
        self.connections = Connections(
            place, self.members, self.selector, lambda member, message: self.heard.append((member.plan.id, message))
        )

    def call(self, *messages: object, more: bytes = b"") -> socket.socket:
        """A GMI calls and says ``messages``, and the bytes ``more``."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.place))
        connection.sendall(b"".join(map(encode, messages)) + more)
        return connection

    def listen_once(self) -> None:
        """Read what is there now."""
        for key, _ in self.selector.select(0):
            key.data()

    def listen(self) -> None:
        """Read all that there is."""
        while found := self.selector.select(0):
            for key, _ in found:
                key.data()


@pytest.fixture
def launcher(tmp_path):
    launcher = Launcher(tmp_path / "socket")
    with contextlib.closing(launcher.selector), contextlib.closing(launcher.connections):
        yield launcher


def test_messages_come_in_order_from_whom_they_are(launcher):
    beat = Heartbeat(gmi=0, stage="sim", stage_s=0.5)
    words = encode(beat)
    with launcher.call(Hello(gmi=0), more=words[:7]) as zero, launcher.call(Hello(gmi=1), FAILED):
        launcher.listen()
        zero.sendall(words[7:])
        launcher.listen()
    assert [message for gmi, message in launcher.heard if gmi == 0] == [Hello(gmi=0), beat]
    assert [message for gmi, message in launcher.heard if gmi == 1] == [Hello(gmi=1), FAILED]


@pytest.mark.parametrize("looked", [False, True])
def test_the_last_words_of_a_gmi_that_nobody_has_listened_to_are_heard(launcher, looked):
    """It called, failed and ended while the launcher did something else; its end is noticed first."""
    with launcher.call(Hello(gmi=0)):
        launcher.call(FAILED).close()
        if looked:
            next(key for key, _ in launcher.selector.select(0)).data()  # lets it in, and has not read yet
        launcher.connections.hear_out(launcher.members[1])
        assert (1, FAILED) in launcher.heard
        launcher.connections.hear_out(launcher.members[1])  # once more changes nothing
        launcher.listen()
    assert launcher.heard.count((1, FAILED)) == 1 and (0, Hello(gmi=0)) in launcher.heard


@pytest.mark.parametrize("words", [(Hello(gmi=1),), (FAILED,), ()])
def test_who_has_been_heard_out_is_not_met_again(launcher, words):
    """Its end and its call were noticed at once, and what its end led to has heard it already."""
    with launcher.call(*words) as caller:
        if not words:
            caller.shutdown(socket.SHUT_WR)
        launcher.listen_once()  # lets it in
        found = launcher.selector.select(0)
        assert found
        launcher.connections.hear_out(launcher.members[1])
        for key, _ in found:
            key.data()
        if words == (Hello(gmi=1),):
            caller.sendall(encode(FAILED))
            launcher.listen()
    assert [message for _, message in launcher.heard] == [*words, *([FAILED] if words == (Hello(gmi=1),) else [])]


def test_who_hangs_up_without_a_word_is_let_go(launcher):
    launcher.call().close()
    launcher.call(more=b"{").close()
    launcher.listen()
    assert not launcher.heard
    assert len(launcher.selector.get_map()) == 1  # only the listener is left
