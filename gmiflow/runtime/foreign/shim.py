"""Hosts a simulator's class in the user's own interpreter (docs/guides/foreign-interpreters.md).

`process.py` runs this file with that interpreter: Python 3.8 or later with NumPy, where nothing of gmiflow need be
importable. So it imports nothing else. The GMI's side imports it too: memory, messages and their meaning are
defined here once.

Shared memory holds one page of words and then the ports. For a step the GMI writes the inputs, notes `STEP` and adds
to the event counter `request`; the host steps, writes the outputs where they are not there already, notes `DONE` and
adds to `reply`. Everything rare (setup, reset, state) is a message over a socket, announced the same way.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import mmap
import os
import signal
import socket
import struct
import sys
import traceback
import types
from typing import Any

import numpy as np

STEP, MESSAGE = 1, 2
"""What the GMI asks for, in word `REQUEST`."""
DONE, SAID = 1, 2
"""How the host answers, in word `REPLY`: the outputs are in place, or a message is on the socket."""
REQUEST, REPLY = 0, 16
"""Places of the two words, in cache lines of their own."""
HEADER_BYTES = 4096
ADD_ONE = struct.pack("=Q", 1)
DTYPES = {"f32": "float32", "f16": "float16", "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool"}
"""Element types of the language that NumPy has, by its names."""

TOO_OLD, NO_NUMPY = 86, 87
"""Exit statuses of `BOOT`."""
BOOT = """\
import sys
if sys.version_info < (3, 8):
    sys.stderr.write("Python %d.%d\\n" % sys.version_info[:2])
    sys.exit(86)
try:
    import numpy
except ImportError:
    import traceback
    traceback.print_exc()
    sys.exit(87)
sys.path[:] = [folder for folder in sys.path if folder]
with open(sys.argv[1], "rb") as file:
    code = compile(file.read(), sys.argv[1], "exec")
exec(code, {"__name__": "gmiflow_shim", "__file__": sys.argv[1]})
"""
"""What the interpreter is told with `-c`: runs in any Python, so that an old one can be named."""

_PR_SET_PDEATHSIG = 1


class PortMismatch(Exception):
    """The class returned something other than the ports declare."""


class EntryUnusable(Exception):
    """There is no such module or class."""


class Channel:
    """Messages over a socket: a JSON object and arrays by name."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, header: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> None:
        """Send one message."""
        parts = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
        kinds = [[name, part.dtype.str, array_shape(arrays, name)] for name, part in parts.items()]
        text = json.dumps([header, kinds]).encode()
        self.connection.sendall(struct.pack("=Q", len(text)) + text)
        for part in parts.values():
            self.connection.sendall(part.tobytes())

    def receive(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Wait for one message.

        Raises:
            EOFError: when the other side is gone.
        """
        (size,) = struct.unpack("=Q", self._exactly(8))
        header, kinds = json.loads(self._exactly(size).decode())
        arrays = {}
        for name, kind, shape in kinds:
            count = int(np.prod(shape, dtype=np.int64))
            data = self._exactly(np.dtype(kind).itemsize * count)
            arrays[name] = np.frombuffer(data, dtype=kind).reshape(shape).copy()
        return header, arrays

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.connection.recv(min(size, 1 << 20))
            if not part:
                raise EOFError("the connection ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def array_shape(arrays: dict[str, np.ndarray] | None, name: str) -> list[int]:
    """Shape of one of ``arrays``; `np.ascontiguousarray` would make a scalar a vector."""
    return list((arrays or {})[name].shape)


def nested(fields: list[dict[str, Any]], values: list[Any]) -> dict[str, Any]:
    """Values by port, those of a record by port and field."""
    found: dict[str, Any] = {}
    for field, value in zip(fields, values):
        inner = found
        for name in field["path"][:-1]:
            inner = inner.setdefault(name, {})
        inner[field["path"][-1]] = value
    return found


class HostMemory:
    """Ports in shared memory of the machine, as NumPy arrays."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def view(self, field: dict[str, Any]) -> np.ndarray:
        """The array of a field of the layout."""
        dtype = np.dtype(DTYPES[field["dtype"]])
        count = int(np.prod(field["shape"], dtype=np.int64))
        return np.frombuffer(self._memory, dtype, count, field["offset"]).reshape(field["shape"])

    def put(self, label: str, buffer: np.ndarray, value: Any) -> None:  # noqa: ANN401 - whatever the class returned
        """Copy what the class returned into the array of its port."""
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        fits = (
            array.dtype.kind in "biu" if buffer.dtype == bool else np.can_cast(array.dtype, buffer.dtype, "same_kind")
        )
        if array.shape != buffer.shape or not fits:
            raise mismatch(label, buffer, array)
        np.copyto(buffer, array, casting="unsafe")

    def settle(self) -> None:
        """Nothing is under way."""


def mismatch(label: str, buffer: Any, value: Any) -> PortMismatch:  # noqa: ANN401 - arrays of any library
    """Says which type was declared and which returned."""
    declared, returned = (f"{each.dtype}{list(each.shape)}" for each in (buffer, value))
    return PortMismatch(f"{label} is declared {declared}, but the class returned {returned}")


class Host:
    """Serves one simulator until it is told to end."""

    def __init__(self, channel: Channel, request: int, reply: int, memory: int) -> None:
        self._channel = channel
        self._request, self._reply, self._memory_file = request, reply, memory
        self._words = memoryview(mmap.mmap(memory, HEADER_BYTES)).cast("q")
        self._simulator: Any = None
        self._memory: Any = None
        self._inputs: dict[str, Any] = {}
        self._outputs: list[tuple[str, tuple[str, ...], Any]] = []

    def run(self) -> None:
        """Answer requests; returns when the GMI asks for the end."""
        words, request, reply = self._words, self._request, self._reply
        while True:
            os.read(request, 8)
            try:
                if words[REQUEST] == STEP:
                    self._store(self._simulator.step(self._inputs))
                    words[REPLY] = DONE
                    os.write(reply, ADD_ONE)
                    continue
                header, arrays = self._channel.receive()
                answer = getattr(self, "_" + header.pop("call"))(arrays, **header)
            except EOFError:
                return
            except BaseException as problem:  # sys.exit of a simulator too: the GMI decides what it means
                answer = describe(problem)
            said, parts = answer if isinstance(answer, tuple) else (answer or {}, {})
            words[REPLY] = SAID
            os.write(reply, ADD_ONE)  # first: a long message must find its reader
            self._channel.send(said, parts)
            if said.get("closed"):
                return

    def _load(self, arrays: dict[str, Any], entry: str, file: str | None, folders: list[str]) -> dict[str, Any]:
        """Import the class and construct it."""
        sys.path.extend(folder for folder in folders if folder not in sys.path)
        module_name, _, class_name = entry.partition(":")
        found = getattr(load_module(module_name, file), class_name, None)
        if found is None:
            raise EntryUnusable(f"the module {module_name} has no class {class_name}")
        missing = [name for name in ("setup", "reset", "step") if not callable(getattr(found, name, None))]
        if missing:
            raise EntryUnusable(f"{entry} has no method `{missing[0]}`")
        self._simulator = found()
        return {
            "on_gpu": bool(getattr(found, "on_gpu", False)),
            "has_diagnostics": callable(getattr(found, "diagnostics", None)),
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "numpy": np.__version__,
        }

    def _setup(
        self,
        arrays: dict[str, Any],
        context: dict[str, Any],
        inputs: list[Any],
        outputs: list[Any],
        **place: Any,  # noqa: ANN401
    ) -> None:
        """Map the ports and set the class up."""
        self._memory, buffers = self._open(**place), {}
        self._view(inputs, outputs, buffers)
        before = "torch" in sys.modules
        self._simulator.setup(types.SimpleNamespace(**context, buffers=buffers))
        if "slab" in place and "torch" in sys.modules and not before:
            self._view(inputs, outputs, buffers)  # now as its tensors

    def _view(self, inputs: list[Any], outputs: list[Any], buffers: dict[str, Any]) -> None:
        """View the ports; ``buffers`` receives those that the class knows, by port."""
        self._inputs = nested(inputs, [self._memory.view(field) for field in inputs])
        views = [self._memory.view(field) for field in outputs]
        self._outputs = [(field["label"], tuple(field["path"]), view) for field, view in zip(outputs, views)]
        buffers.update(nested(outputs, views))

    def _open(self, size: int, slab: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - either kind of memory
        """Map the memory of the ports: on the machine, or a slab of a GPU that the GMI allocated."""
        if slab is None:
            return HostMemory(mmap.mmap(self._memory_file, size))
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cuda_slab.py")
        return load_module("cuda_slab", beside).ImportedSlab(mismatch=mismatch, **slab)

    def _reset(self, arrays: dict[str, Any], ports: list[str]) -> None:
        self._store(self._simulator.reset(), ports)

    def _observe(self, arrays: dict[str, Any], ports: list[str]) -> None:
        look = getattr(self._simulator, "observe", None) or self._simulator.reset
        self._store(look(), ports)

    def _state_dict(self, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        save = getattr(self._simulator, "state_dict", None)
        state = save() if save is not None else {}
        if not isinstance(state, dict):
            raise PortMismatch(f"`state_dict` shall return arrays by name, but it returned {type(state).__name__}")
        return {}, {str(name): to_numpy(value) for name, value in state.items()}

    def _load_state_dict(self, arrays: dict[str, Any]) -> None:
        self._simulator.load_state_dict(arrays)

    def _diagnostics(self, arrays: dict[str, Any]) -> dict[str, Any]:
        found = self._simulator.diagnostics()
        return {"diagnostics": {str(name): float(value) for name, value in found.items()}}

    def _close(self, arrays: dict[str, Any]) -> dict[str, Any]:
        close = getattr(self._simulator, "close", None)
        if close is not None:
            close()
        return {"closed": True}

    def _store(self, returned: Any, ports: list[str] | None = None) -> None:  # noqa: ANN401 - what the class returned
        """Put what the class returned where the GMI reads it; ``ports`` limits which are expected."""
        put = self._memory.put
        for label, path, buffer in self._outputs:
            if ports is not None and path[0] not in ports:
                continue
            value = returned
            try:
                for name in path:
                    value = value[name]
            except (KeyError, TypeError, IndexError):
                kind = "" if isinstance(returned, dict) else f": it returned {type(returned).__name__}, not a dict"
                raise PortMismatch(f"{label} is declared, but the class did not return it{kind}") from None
            if value is not buffer:
                put(label, buffer, value)
        self._memory.settle()


def to_numpy(value: Any) -> np.ndarray:  # noqa: ANN401 - an array of any library, or a number
    """As an array on the host."""
    return np.array(value.detach().cpu() if hasattr(value, "detach") else value)


def load_module(name: str, file: str | None) -> types.ModuleType:
    """Import a module by name, or from the file that gmiflow keeps it in."""
    if file is not None:
        name = "gmiflow_hosted_" + name.rpartition(".")[2]
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        if problem.name is None or not (name + ".").startswith(problem.name + "."):
            raise  # it is there, and what it needs is not
        raise EntryUnusable(f"there is no Python module {problem.name}") from None


def describe(problem: BaseException) -> dict[str, Any]:
    """An exception as a message, with the frames of the user's own code."""
    kinds = {PortMismatch: "port", EntryUnusable: "entry"}
    ours = (__file__, "<frozen importlib")
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if not frame.filename.startswith(ours)]
    lines = traceback.format_list(frames) + traceback.format_exception_only(type(problem), problem)
    text = str(problem)
    message = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    kind = kinds.get(type(problem), "raised")
    return {"failed": kind, "message": message if kind == "raised" else text, "traceback": "".join(lines).rstrip()}


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the GMI that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Serve; ``arguments`` are the parent's process id and the descriptors of socket, counters and memory."""
    parent, connection, request, reply, memory = map(int, arguments)
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the GMI, which then ends this process
    Host(Channel(socket.socket(fileno=connection)), request, reply, memory).run()


if __name__ == "gmiflow_shim":  # as `BOOT` calls it
    main(sys.argv[2:])
