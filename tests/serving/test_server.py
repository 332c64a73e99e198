"""The policy server under clients that behave and clients that do not."""

import contextlib
import socket
import struct
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_support import TOKEN, WEIGHT, act
from waiting import PATIENCE_S, until

from gmiflow.serving import PolicyClient, RefusedError, protocol
from gmiflow.serving.protocol import Kind, Reason, Terms
from gmiflow.serving.server import Limits


def connect(running):
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(PATIENCE_S)
    raw.connect(str(running.path))
    return raw


def welcomed(running):
    raw = connect(running)
    raw.sendall(protocol.frame(protocol.hello(TOKEN)))
    assert body_of(raw)[0] == Kind.WELCOME
    return raw


def body_of(raw):
    """The next body, or b"" when the server has hung up."""
    head = exactly(raw, 4)
    return exactly(raw, struct.unpack("<I", head)[0]) if head else b""


def exactly(raw, size):
    data = b""
    while len(data) < size:
        part = raw.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def reason_of(body):
    kind, _, reason = struct.unpack_from("<BIH", body)
    assert kind == Kind.REFUSED
    return Reason(reason)


@pytest.mark.parametrize("tcp", [False, True])
def test_actions_are_those_of_the_policy(serve, tcp):
    running = serve()
    address = ("127.0.0.1", running.port) if tcp else running.path
    with PolicyClient(address, TOKEN) as client:
        assert client.terms == Terms(3, 2, 100, 4)
        assert client.act(np.array([1.0, 0.0, 1.0])).tolist() == [6.0, 8.0]  # by hand
        rows = np.arange(300, dtype=np.float32).reshape(100, 3)
        assert np.array_equal(client.act(rows), rows @ WEIGHT)
        for wrong in (np.zeros(2), np.zeros((101, 3)), np.zeros((0, 3)), np.zeros((1, 1, 3))):
            with pytest.raises(ValueError, match="expected"):
                client.act(wrong)
        assert client.act(rows[:1]).shape == (1, 2)


def test_many_clients_at_once_get_their_own_answers(serve):
    running = serve(answers=(act, act))
    wrong = []

    def work(number):
        rows = np.full((number % 5 + 1, 3), number, np.float32)
        with PolicyClient(running.path, TOKEN) as client:
            for _ in range(20):
                if not np.array_equal(client.act(rows), rows @ WEIGHT):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals = running.server.totals()
    assert not wrong and totals["requests"] == 600
    assert totals["rows"] == sum(20 * (n % 5 + 1) for n in range(30)) and totals["refused"] == {}


def test_a_crowd_that_comes_while_the_server_is_busy_is_not_turned_away(serve):
    running = serve()
    busy = threading.Event()
    running.after(lambda: busy.wait(PATIENCE_S))
    with contextlib.ExitStack() as crowd:
        sockets = [crowd.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(300)]
        for raw in sockets:
            raw.setblocking(False)
        assert {raw.connect_ex(str(running.path)) for raw in sockets} == {0}
        busy.set()
        for raw in sockets:
            raw.settimeout(PATIENCE_S)
            raw.sendall(protocol.frame(protocol.hello(TOKEN)))
        assert {body_of(raw)[0] for raw in sockets} == {Kind.WELCOME}


def test_a_client_waits_when_no_more_can_wait_to_be_accepted(tmp_path):
    path = tmp_path / "serve.sock"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(path))
        with pytest.raises(TimeoutError, match="too many others wait"):
            PolicyClient(path, TOKEN, timeout_s=0.05)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (protocol.hello("wrong"), Reason.UNAUTHENTICATED),
        (protocol.hello(""), Reason.UNAUTHENTICATED),
        (protocol.act(1, bytes(12)), Reason.UNAUTHENTICATED),
        (b"", Reason.UNAUTHENTICATED),
        (struct.pack("<BH", Kind.HELLO, 99) + TOKEN.encode(), Reason.VERSION),
        (protocol.hello("x" * 2000), Reason.OVERSIZED),
        (struct.pack("<BH", Kind.HELLO, 1) + b"\xff" * 20, Reason.UNAUTHENTICATED),
    ],
)
def test_strangers_are_refused_and_hung_up_on(serve, first, reason):
    running = serve()
    with PolicyClient(running.path, TOKEN) as client, connect(running) as raw:
        raw.sendall(protocol.frame(first))
        assert reason_of(body_of(raw)) == reason
        assert body_of(raw) == b""
        assert client.act(np.ones(3)).tolist() == [9.0, 12.0]


def test_the_client_says_why_it_was_refused(serve):
    with pytest.raises(RefusedError, match="token is wrong") as refused:
        PolicyClient(serve().path, "wrong")
    assert refused.value.reason == Reason.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (protocol.act(7, bytes(11)), Reason.MALFORMED),
        (protocol.act(7, b""), Reason.MALFORMED),
        (bytes([9]) + bytes(16), Reason.MALFORMED),
        (protocol.act(7, bytes(12 * 101)), Reason.OVERSIZED),
        (protocol.act(7, struct.pack("<3f", 1.0, float("nan"), 0.0)), Reason.NOT_FINITE),
        (protocol.act(7, struct.pack("<3f", 1.0, float("inf"), 0.0)), Reason.NOT_FINITE),
    ],
)
def test_bad_requests_harm_nobody_else(serve, bad, reason):
    running = serve()
    with PolicyClient(running.path, TOKEN) as client, welcomed(running) as raw:
        raw.sendall(protocol.frame(bad))
        assert reason_of(body_of(raw)) == reason
        if reason.final:
            assert body_of(raw) == b""
        else:
            raw.sendall(protocol.frame(protocol.act(8, bytes(12))))
            assert body_of(raw) == protocol.actions(8, bytes(8))
        assert client.act(np.ones(3)).tolist() == [9.0, 12.0]
    assert running.server.totals()["refused"] == {reason.name.lower(): 1}


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.booleans())
def test_no_bytes_end_the_server(fuzzed, pieces, known):
    raw = welcomed(fuzzed) if known else connect(fuzzed)
    with raw:
        for piece in pieces:
            try:
                raw.sendall(piece)
            except OSError:
                break  # hung up on, as it should be
    with PolicyClient(fuzzed.path, TOKEN) as client:
        assert client.act(np.ones(3)).tolist() == [9.0, 12.0]


@pytest.fixture
def fuzzed(serve):
    return serve()


def test_who_does_not_say_hello_is_hung_up_on(serve):
    running = serve(limits=Limits(hello_s=0.2))
    with connect(running) as raw:
        raw.sendall(b"\x10")
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(1) == b""


def test_one_client_too_many_is_told_so(serve):
    running = serve(limits=Limits(clients=2))
    first, second = PolicyClient(running.path, TOKEN), PolicyClient(running.path, TOKEN)
    with pytest.raises(RefusedError) as refused:
        PolicyClient(running.path, TOKEN)
    assert refused.value.reason == Reason.TOO_MANY_CLIENTS
    first.close()
    until(lambda: running.server.clients <= 1, "the first client's end")
    with PolicyClient(running.path, TOKEN) as third:
        assert third.act(np.ones(3)).tolist() == [9.0, 12.0]
    second.close()


def test_a_flood_waits_at_the_client_and_is_answered_in_the_end(serve):
    """In-flight limit 4 and room for 40 waiting rows, against 300 requests sent without reading."""
    gate = threading.Event()
    seen = []

    def slow(observations):
        gate.wait(PATIENCE_S)
        seen.append(running.server._batcher.waiting_rows)
        return act(observations)

    running = serve(answers=(slow,), limits=Limits(waiting_rows=40, batch_rows=8))
    with welcomed(running) as raw:
        sender = threading.Thread(
            target=lambda: [raw.sendall(protocol.frame(protocol.act(n, bytes(12 * 10)))) for n in range(1, 301)]
        )
        sender.start()
        until(lambda: running.server._batcher.waiting_rows >= 30, "as many requests as may be in flight")
        gate.set()
        answers = [struct.unpack_from("<BI", body_of(raw)) for _ in range(300)]
        sender.join()
    assert answers == [(Kind.ACTIONS, n) for n in range(1, 301)]
    assert max(seen) <= 50  # 40, and the request that went over it


def test_a_client_that_never_reads_costs_bounded_memory(serve):
    terms = Terms(3, 2000, 100, 8)
    running = serve(
        answers=(lambda rows: np.zeros((len(rows), 2000), np.float32),), terms=terms, limits=Limits(unread_bytes=65536)
    )
    with welcomed(running) as raw:
        raw.settimeout(3.0)
        sent = 0
        with pytest.raises(TimeoutError):
            for number in range(100_000):
                raw.sendall(protocol.frame(protocol.act(number, bytes(12 * 100))))
                sent += 1
        (connection,) = running.server._connections
        # Each answer has 0.8 MB: at most those of the requests under way wait, not one for each request sent.
        assert connection._transport.get_write_buffer_size() <= 9 * 800_009
        assert running.server.totals()["requests"] < sent
        with PolicyClient(running.path, TOKEN) as client:
            assert client.act(np.ones(3)).shape == (2000,)


def test_a_policy_that_fails_says_so_and_goes_on(serve):
    def moody(observations):
        if observations[0, 0] < 0:
            raise RuntimeError("no")
        return act(observations)

    with PolicyClient(serve(answers=(moody,)).path, TOKEN) as client:
        with pytest.raises(RefusedError) as refused:
            client.act(-np.ones(3))
        assert refused.value.reason == Reason.FAILED
        assert client.act(np.ones(3)).tolist() == [9.0, 12.0]


def test_who_sends_no_more_still_gets_the_answers(serve):
    slow = threading.Event()

    def act_late(rows):
        slow.wait(PATIENCE_S)
        return act(rows)

    running = serve(answers=(act_late,))
    with welcomed(running) as raw:
        for number in (1, 2, 3):
            raw.sendall(protocol.frame(protocol.act(number, np.full((1, 3), number, "<f4").tobytes())))
        raw.shutdown(socket.SHUT_WR)
        slow.set()
        answers = [protocol.read_answer(body_of(raw)) for _ in range(3)]
        assert {n: np.frombuffer(a, "<f4").tolist() for n, a in answers} == {n: [9.0 * n, 12.0 * n] for n in (1, 2, 3)}
        assert body_of(raw) == b""


def test_stopping_answers_what_was_read(serve):
    begun = threading.Event()

    def slow(observations):
        begun.set()
        time.sleep(0.2)
        return act(observations)

    running = serve(answers=(slow,))
    with welcomed(running) as raw:
        raw.sendall(b"".join(protocol.frame(protocol.act(n, bytes(12))) for n in (1, 2, 3)))
        begun.wait(PATIENCE_S)
        running.stop()
        assert [struct.unpack_from("<BI", body_of(raw)) for _ in range(3)] == [(Kind.ACTIONS, n) for n in (1, 2, 3)]
        assert body_of(raw) == b""
