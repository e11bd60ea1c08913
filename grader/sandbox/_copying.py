"""The zygote's program: imports once what every copy needs, then copies itself into sandboxes.

It is trusted, uses the standard library only, and never runs a submission; it imports this file, `_inside.py` and the
module that it is given. A copy takes three steps, because joining a pid namespace affects only the children:

zygote                     helper                            copy
fork
                           joins cgroup and namespaces
                           fork
                           ends                              privileges given up, becomes the command
adopts the copy (subreaper), and tells the sandbox's first command how it ended
"""

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import _inside  # type: ignore[import-not-found]  # in the same folder as this file

PR_SET_CHILD_SUBREAPER = 36
MAX_REQUEST_BYTES = 1 << 16
MAX_DESCRIPTORS = 16
IDLE_MS = 500
"""Time without a request after which the zygote has time for more imports. A choice: the first copies are asked for
together."""


def start(requests_fd: int, parent_pid: int, module: str, later: str) -> None:
    """Serve requests until the grader closes the socket or ends, and all copies have ended.

    In a copy, call `main` of the module, which is the command, and return when it does. The module `later`, unless it
    is empty, is imported once the first copies are at work and none is asked for; later copies have it too.
    """
    libc = _inside.libc
    _inside.check(libc.prctl(_inside.PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0), "parent-death signal")
    _inside.check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
    if os.getppid() != parent_pid:
        return
    gc.disable()  # makes the import of torch faster
    main: Callable[..., None] = importlib.import_module(module).main
    gc.freeze()  # permanent objects: to visit them would copy their memory
    request = _serve(requests_fd, later)
    if request is not None:
        main(*request)


def _serve(requests_fd: int, later: str) -> list[Any] | None:
    """Serve requests and return None; in a copy, return the arguments of its command."""
    woken_fd, wake_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
    end_fds: dict[int, int] = {}
    serving = True
    while serving or end_fds:
        poller = select.poll()
        for fd in (woken_fd, requests_fd) if serving else (woken_fd,):
            poller.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(IDLE_MS if later and end_fds else None)}
        if not ready:
            _import(later)
            later = ""
        if woken_fd in ready:
            serving &= signal.SIGTERM not in os.read(woken_fd, 1 << 12)
            _tell_ends(end_fds)
        if serving and requests_fd in ready:
            message, fds = _receive(requests_fd)
            serving = bool(message)
            if serving:
                command = _copy(json.loads(message), fds, end_fds)
                if command is not None:
                    return command
    return None


def _import(module: str) -> None:
    """Import what copies can do without."""
    try:
        importlib.import_module(module)
    except Exception as error:
        os.write(2, f"{module} was not imported: {error!r}\n".encode())
    gc.freeze()


def _receive(requests_fd: int) -> tuple[bytes, list[int]]:
    requests = socket.socket(fileno=requests_fd)
    try:
        message, fds, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, MAX_DESCRIPTORS)
        return message, fds
    finally:
        requests.detach()  # a copy closes descriptors by number, and no object may close them again


def _tell_ends(end_fds: dict[int, int]) -> None:
    """Report the status of copies that have ended, as a shell would."""
    for pid in list(end_fds):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            end_fd = end_fds.pop(pid)
            _write(end_fd, str(code if code >= 0 else 128 - code))
            os.close(end_fd)


def _copy(request: dict[str, Any], fds: list[int], end_fds: dict[int, int]) -> list[Any] | None:
    """Make a copy. Returns None in the zygote, and in the copy the arguments of its command."""
    init_fd, output_fd, end_fd, entered_fd, *passed = fds
    pid_read_fd, pid_write_fd = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            _enter(init_fd, request)
            pid = os.fork()
            if pid == 0:
                _become(request["orders"], output_fd, passed)
                return [*passed, *request["arguments"]]
            os.write(pid_write_fd, str(pid).encode())
        except BaseException as error:
            os.write(output_fd, f"a copy cannot enter its sandbox: {error}\n".encode())
        os._exit(0)
    os.close(pid_write_fd)
    entered = os.read(pid_read_fd, 16)
    os.waitpid(helper, 0)
    if entered:
        end_fds[int(entered)] = end_fd
        _write(entered_fd, f"{int(entered)}\n")
    for fd in (pid_read_fd, init_fd, output_fd, entered_fd, *passed, *([] if entered else [end_fd])):
        os.close(fd)
    return None


def _enter(init_fd: int, request: dict[str, Any]) -> None:
    """Join the sandbox's cgroups and namespaces; only the children are in its pid namespace."""
    for group in request["cgroups"]:
        Path(group, "cgroup.procs").write_text("0")
    libc = _inside.libc
    libc.setns.argtypes = [ctypes.c_int, ctypes.c_int]
    _inside.check(libc.setns(init_fd, request["namespaces"]), "setns")


def _become(orders: dict[str, Any], output_fd: int, passed: list[int]) -> None:
    """Give up all privileges, as `_inside.py` does for executed commands; keep passed descriptors."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    try:
        _inside.restrict(orders, {0, 1, 2, *passed})
    except BaseException as error:
        os.write(2, f"a copy cannot give up its privileges: {error}\n".encode())
        os._exit(_inside.LOST)


def _write(fd: int, text: str) -> None:
    """Write, even if no reader is left."""
    with suppress(BrokenPipeError):
        os.write(fd, text.encode())
