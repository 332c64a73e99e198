"""Server logs and client errors, replayed as text in the forms that the server and CUDA print them."""

import pytest

from gmiflow.runtime.gmi.mps_logs import CLIENT_ERRORS, LogTail, ServerEvent, client_error, is_out_of_memory
from gmiflow.runtime.gmi.mps_logs import parse_server_log as parse

HEALTHY = """\
[2026-03-02 10:00:00.101 Control  4000] Starting control daemon using socket /tmp/x/pipe/control
[2026-03-02 10:00:01.207 Other  4010] Startup
[2026-03-02 10:00:01.340 Other  4010] Volta MPS Server: Received new client request
[2026-03-02 10:00:01.341 Other  4010] MPS Server: worker created
[2026-03-02 10:00:01.900 Other  4010] Volta MPS: Creating server context on device 0 (NVIDIA H200)
[2026-03-02 10:00:09.000 Other  4010] Receive command failed, assuming client exit
[2026-03-02 10:00:09.001 Other  4010] Volta MPS: Client disconnected. Number of active client contexts is 0
"""

FAULT = """\
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: Server is handling a fatal GPU error.
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: status of client {4101, 1} is INACTIVE
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: status of client {4102, 1} is INACTIVE
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: status of client {4103, 1} is ACTIVE
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: The following devices
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: 0
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: The following clients have a sticky error set:
[2026-03-02 10:00:05.410 Other  4010] Volta MPS: 4102
[2026-03-02 10:00:05.500 Other  4010] Receive command failed, assuming client exit
"""


NEWER = """\
[2026-11-29 21:12:50.991 Server   862] Client {PID: 952, Context ID: 1} connected
[2026-11-29 21:12:50.991 Server   862] Status of client {PID: 952, Context ID: 1} is ACTIVE
[2026-11-29 21:12:51.180 Server   862] Client {PID: 952, Context: 1} encountered a fatal GPU error.
[2026-11-29 21:12:51.180 Server   862] Server is handling a fatal GPU error.
[2026-11-29 21:12:51.180 Server   862] Client {PID: 952, Context ID: 1} on device 0 to be torn down
[2026-11-29 21:12:51.180 Server   862] The following devices will be reset:
[2026-11-29 21:12:51.180 Server   862] 0
[2026-11-29 21:12:51.180 Server   862] The following client process have a sticky error set:
[2026-11-29 21:12:51.180 Server   862] 952
[2026-11-29 21:12:51.200 Server   862] Status of client {PID: 953, Context ID: 1} is INACTIVE
[2026-11-29 21:12:51.235 Server   862] Destroy server context on device 0 (NVIDIA H200)
"""


def test_a_healthy_log_has_no_events():
    assert parse(HEALTHY.splitlines()) == ()


def test_a_fault_names_the_server_its_clients_and_the_guilty_one():
    assert parse((HEALTHY + FAULT).splitlines()) == (
        ServerEvent(kind="fatal_fault", server=4010),
        ServerEvent(kind="client_inactive", server=4010, subject=4101),
        ServerEvent(kind="client_inactive", server=4010, subject=4102),
        ServerEvent(kind="device_affected", server=4010, subject=0),
        ServerEvent(kind="client_faulted", server=4010, subject=4102),
    )


def test_a_fault_as_newer_servers_write_it():
    assert parse(NEWER.splitlines()) == (
        ServerEvent(kind="fatal_fault", server=862),
        ServerEvent(kind="device_affected", server=862, subject=0),
        ServerEvent(kind="client_faulted", server=862, subject=952),
        ServerEvent(kind="client_inactive", server=862, subject=953),
    )


def test_damaged_lines_are_passed_over():
    assert parse(["", "[2026-03-02", "\x00\x00", "Server is handling a fatal GPU error"]) == (
        ServerEvent(kind="fatal_fault", server=0),
    )


def test_a_number_outside_of_a_list_is_no_event():
    assert parse(["[2026-03-02 10:00:05.410 Other  4010] Volta MPS: 17"]) == ()


def test_a_tail_gives_each_event_once_and_waits_for_whole_lines(tmp_path):
    log = tmp_path / "server.log"
    tail = LogTail(log)
    assert tail.events() == ()  # not there yet
    first, second = FAULT.splitlines(keepends=True)[:2]
    log.write_text(HEALTHY + first[:60])
    assert tail.events() == ()
    with log.open("a") as stream:
        stream.write(first[60:] + second)
    assert [event.kind for event in tail.events()] == ["fatal_fault", "client_inactive"]
    assert tail.events() == ()


MESSAGES = {
    805: "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
    806: "cudaErrorMpsRpcFailure: remote procedural call failed",
    807: "torch.AcceleratorError: CUDA error: the MPS server is not ready to accept new MPS client requests",
    808: "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
    809: "CUDA error 809",
    810: "RuntimeError: CUDA error: the MPS client has been terminated by the server",
    811: "Warp CUDA error 811: CUDA_ERROR_CDP_NOT_SUPPORTED (in function wp_cuda_context_create)",
}


@pytest.mark.parametrize(("code", "text"), MESSAGES.items())
def test_client_errors_are_known_by_name_text_or_number(code, text):
    assert client_error(f"some lines\nbefore\n{text}\nand after") is CLIENT_ERRORS[code]


def test_the_last_error_counts():
    assert client_error(MESSAGES[807] + "\n" + MESSAGES[810]).code == 810


def test_ordinary_output_is_no_client_error():
    assert client_error("iteration 805 of 811, loss 0.807\nValueError: no") is None


def test_errors_after_which_the_whole_cohort_must_go():
    assert [code for code, known in CLIENT_ERRORS.items() if known.fault] == [806, 807]


def test_memory_that_ran_out():
    assert is_out_of_memory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert not is_out_of_memory("MemoryError")
