"""Cases that every sandbox must pass, as root and as an ordinary user. Known failures are listed as data.

It uses the standard library only and runs as a script, so that another user's interpreter can run it:

    python conformance.py bubblewrap|copied|weak     prints {"layers": [...], "failures": {"case": "why"}}
"""

import contextlib
import ctypes
import fnmatch
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from grader.errors import SandboxError
from grader.sandbox import Exit, Limits, Sandbox, choose

MIB = 1 << 20

PR_SET_CHILD_SUBREAPER = 36

LIMITS = Limits(
    wall_seconds=20,
    memory_bytes=1024 * MIB,
    scratch_bytes=64 * MIB,
    shared_memory_bytes=16 * MIB,
    process_count=40,
    file_bytes=48 * MIB,
    output_bytes=64 * 1024,
)

NEEDED_LAYERS: dict[str, set[str]] = {
    "secret_file_is_unreadable": {"mount-namespace", "landlock"},
    "nothing_else_is_writable": {"mount-namespace", "landlock"},
    "scratch_is_capped": {"scratch-size"},
    "shared_memory_is_writable_and_capped": {"mount-namespace"},
    "hidden_paths_are_empty": {"mount-namespace"},
    "unix_sockets_outside_are_unreachable": {"network-namespace", "landlock"},
    "no_pseudo_terminal_can_be_opened": {"mount-namespace", "landlock"},
    "other_processes_are_invisible": {"pid-namespace"},
    "the_grader_cannot_be_signalled": {"pid-namespace", "user-id", "landlock"},
    "kill_all_reaches_only_the_sandbox": {"pid-namespace", "user-id"},
    "fork_bomb_is_contained": {"cgroup-pids", "rlimit-processes"},
    "memory_hog_is_stopped": {"cgroup-memory", "rlimit-data"},
    "out_of_memory_is_reported": {"cgroup-memory"},
    "shared_memory_objects_count": {"cgroup-memory"},
    "killed_grader_leaves_nothing": {"pid-namespace"},
}
"""A case named here passes if one of its layers is active, and must fail otherwise: a known failure, which
`Sandbox.layers` shows. All other cases pass in every sandbox."""

ENDED_BY_OTHERS = {"killed_grader_leaves_nothing": "cgroup-pids"}
"""A known failure that may pass with this layer: any start of another grader ends what a killed one left in cgroups."""

NOT_OF = {"copied": {"a_command_that_cannot_start_is_a_sandbox_error"}}
"""Cases that do not apply to a sandbox: a copy executes no command."""

Check = Callable[[Sandbox], None]
CASES: dict[str, Check] = {}


def case(check: Check) -> Check:
    CASES[check.__name__] = check
    return check


def run(sandbox: Sandbox, code: str, *, limits: Limits = LIMITS, **options: Any) -> tuple[Exit, str]:
    """Run Python source inside, without site-packages, which takes 10 ms."""
    with sandbox.spawn(python(code), limits=limits, gpu=False, **options) as process:
        ending = some(process.wait())
        return ending, process.output().text


def some(ending: Exit | None) -> Exit:
    assert ending is not None
    return ending


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def seen(sandbox: Sandbox, code: str, **options: Any) -> Any:
    ending, text = run(sandbox, "import json, os, sys\n" + code, **options)
    assert ending.returncode == 0, f"{ending}: {text}"
    return json.loads(text)


@contextlib.contextmanager
def outside_folder() -> Iterator[Path]:
    """A folder that every user may access, so that only the sandbox protects it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def with_marker(marker: str, where: str = "cmdline") -> set[int]:
    """Return the pids of all processes of any user with the marker in their command line or environment."""
    pids = set()
    for process in Path("/proc").glob("[0-9]*"):  # some end meanwhile
        with contextlib.suppress(OSError):
            if marker.encode() in (process / where).read_bytes():
                pids.add(int(process.name))
    return pids


def new_marker() -> str:
    return f"987{random.SystemRandom().randrange(10**9)}.5"


SYSCALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*arguments)
    return "allowed" if result >= 0 else errno.errorcode[ctypes.get_errno()]
"""

CONTINUES_ITS_PARENT = """
import os, signal
print("up", flush=True)
if os.fork() == 0:
    while os.getppid() > 1:
        os.kill(os.getppid(), signal.SIGCONT)
while True:
    pass
"""

SPAWN_TREE = """
import os, subprocess, sys, time
marker = sys.argv[1]
for _ in range(10):
    subprocess.Popen(["sleep", marker])
for _ in range(5):
    subprocess.Popen(["setsid", "sleep", marker])
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", marker])
        os._exit(0)
print("up", flush=True)
time.sleep(1000)
"""


@case
def secret_file_is_unreadable(sandbox: Sandbox) -> None:
    with outside_folder() as folder:
        secret = folder / "secret"
        secret.write_text("the expected output")
        _, text = run(sandbox, f"print(open({str(secret)!r}).read())")
        assert "the expected output" not in text
        _, text = run(sandbox, f"print(open({__file__!r}).read())")
        assert "the expected output" not in text


@case
def readonly_tree_is_readable(sandbox: Sandbox) -> None:
    with outside_folder() as folder:
        (folder / "file").write_text("given")
        assert seen(sandbox, f"print(json.dumps(open({str(folder / 'file')!r}).read()))", readonly=[folder]) == "given"


@case
def nothing_else_is_writable(sandbox: Sandbox) -> None:
    with outside_folder() as folder:
        (folder / "file").write_text("as it was")
        (folder / "file").chmod(0o666)
        places = ["/x", "/usr/x", "/etc/x", "/etc/passwd", "/dev/x", "/run/x", "/var/tmp/x", "/usr/bin/env"]
        places += ["/proc/sys/kernel/core_pattern", f"{sys.prefix}/x", str(folder / "x"), str(folder / "file")]
        code = f"""
written = []
for place in {places!r}:
    try:
        open(place, "a").write("x")
        written.append(place)
    except OSError:
        pass
open(os.environ["TMPDIR"] + "/x", "w").write("x")
print(json.dumps(written))"""
        assert seen(sandbox, code, readonly=[folder]) == []
        assert seen(sandbox, code) == []
        assert (folder / "file").read_text() == "as it was"
        assert not (folder / "x").exists()


@case
def scratch_is_capped(sandbox: Sandbox) -> None:
    ending, text = run(
        sandbox,
        """
import os
for number in range(8):
    open(f"{os.environ['TMPDIR']}/{number}", "wb").write(bytes(16 << 20))""",
    )
    assert ending.returncode == 1
    assert "No space left" in text


@case
def shared_memory_is_writable_and_capped(sandbox: Sandbox) -> None:
    _, text = run(sandbox, "f = open('/dev/shm/x', 'wb', 0)\nfor _ in range(64): print(f.write(bytes(1 << 20)))")
    assert "1048576" in text
    assert "No space left" in text


@case
def scratch_is_private(sandbox: Sandbox) -> None:
    code = 'open(os.environ["TMPDIR"] + "/left", "w").write("x"); print(json.dumps(os.environ["TMPDIR"]))'
    folder = seen(sandbox, code)
    assert not Path(folder, "left").exists()
    assert seen(sandbox, f'print(json.dumps(os.path.exists("{folder}/left")))') is False


@case
def network_is_closed(sandbox: Sandbox) -> None:
    code = """
import socket
opened = []
for family in ("AF_INET", "AF_INET6", "AF_VSOCK", "AF_NETLINK", "AF_PACKET", "AF_ALG"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(getattr(socket, family), kind)
            opened.append(family)
        except OSError:
            pass
socket.socketpair()
print(json.dumps(opened))"""
    assert seen(sandbox, code) == []
    assert (
        seen(sandbox, SYSCALL + "print(json.dumps([call(n, 0, 0, 0, 0) for n in (425, 426, 427)]))") == ["ENOSYS"] * 3
    )


@case
def unix_sockets_outside_are_unreachable(sandbox: Sandbox) -> None:
    name = f"\0conformance-{new_marker()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        ending, text = run(sandbox, f"import socket\nsocket.socket(socket.AF_UNIX).connect({name!r})")
        assert ending.returncode == 1
        assert "Error" in text


@case
def no_pseudo_terminal_can_be_opened(sandbox: Sandbox) -> None:
    code = """
try:
    os.openpty()
    print(json.dumps("opened"))
except OSError:
    print(json.dumps("refused"))"""
    assert seen(sandbox, code) == "refused"


@case
def environment_is_scrubbed(sandbox: Sandbox) -> None:
    os.environ["CONFORMANCE_TOKEN"] = "the-token"
    try:
        code = """
import glob
texts = [json.dumps(dict(os.environ))]
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        texts.append(open(path, errors="replace").read())
    except OSError:
        pass
print(json.dumps(["the-token" in "".join(texts), os.environ["EXTRA"], os.path.isdir(os.environ["HOME"])]))"""
        assert seen(sandbox, code, environment={"EXTRA": "given"}) == [False, "given", True]
    finally:
        del os.environ["CONFORMANCE_TOKEN"]


@case
def only_passed_descriptors_are_open(sandbox: Sandbox) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, Path(__file__).open() as leak:
        os.set_inheritable(leak.fileno(), True)
        code = f"""
import socket
opened = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
opened = [fd for fd in opened if os.path.exists(f"/proc/self/fd/{{fd}}") or fd == {theirs.fileno()}]
socket.socket(fileno={theirs.fileno()}).send(b"hello")
print(json.dumps(opened))"""
        assert seen(sandbox, code, pass_fds=[theirs.fileno()]) == [0, 1, 2, theirs.fileno()]
        assert ours.recv(10) == b"hello"


@case
def other_processes_are_invisible(sandbox: Sandbox) -> None:
    code = "print(json.dumps([int(name) for name in os.listdir('/proc') if name.isdigit()]))"
    pids = seen(sandbox, code)
    assert len(pids) <= 3
    assert max(pids) < 20


@case
def the_grader_cannot_be_signalled(sandbox: Sandbox) -> None:
    code = f"""
try:
    os.kill({os.getpid()}, 0)
    print(json.dumps("reached"))
except OSError as error:
    print(json.dumps("refused"))"""
    assert seen(sandbox, code) == "refused"


@case
def kill_all_reaches_only_the_sandbox(sandbox: Sandbox) -> None:
    assert {"pid-namespace", "user-id"} & set(sandbox.layers), "not run, because it would reach other processes"
    with sandbox.spawn(["sleep", "1000"], limits=LIMITS, gpu=False) as neighbour:
        ending, text = run(sandbox, "import os\nos.fork()\nos.kill(-1, 9)\nprint('still here')")
        assert ending.returncode == 0 or ending.signal == 9, text
        assert neighbour.wait(0.1) is None


@case
def privileges_are_gone(sandbox: Sandbox) -> None:
    code = """
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([status[k].split() for k in ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapEff", "CapPrm")]))"""
    uids, gids, groups, *rest = seen(sandbox, code)
    assert len(set(uids)) == len(set(gids)) == 1
    assert "0" not in uids + gids + groups
    assert set(groups) <= set(gids)
    assert rest == [["1"], ["2"], ["0" * 16], ["0" * 16]]


@case
def dangerous_calls_are_refused(sandbox: Sandbox) -> None:
    code = (
        SYSCALL
        + f"""
import platform
rows = {[(row.name, row.x86_64, row.aarch64, row.when.value) for row in _denied()]!r}
x86 = platform.machine() == "x86_64"
refused = {{name: call(x86_number if x86 else arm, 0, 0, 0, 0, 0) for name, x86_number, arm, when in rows
           if when == "always" and (x86_number if x86 else arm) is not None}}
clone = 56 if x86 else 220
refused["new user namespace"] = call(clone, 0x10000000 | 17, 0, 0, 0, 0)
refused["limits of others"] = call(302 if x86 else 261, 1, 0, 0, 0)
refused["typing for others"] = call(16 if x86 else 29, 0, 0x5412, b"x")
refused["a signal of its choice from a descriptor"] = call(72 if x86 else 25, 0, 10, 18)
refused["another's orphans"] = call(157 if x86 else 167, 36, 0, 0, 0, 0)
refused["unknown"] = call(600, 0, 0, 0, 0)
print(json.dumps(refused))"""
    )
    results = seen(sandbox, code)
    unknown = {results.pop(name) for name in [*results] if name.startswith(("io_uring", "clone3", "unknown"))}
    assert unknown == {"ENOSYS"}
    assert {name: result for name, result in results.items() if result != "EPERM"} == {}
    assert len(results) > 50


def _denied() -> tuple[Any, ...]:
    from grader.sandbox._policy import DENIED

    return DENIED


@case
def foreign_calls_kill(sandbox: Sandbox) -> None:
    if os.uname().machine != "x86_64":
        return
    ending, text = run(sandbox, SYSCALL + "print(call(0x40000000 + 39))")
    assert ending.signal == 31, (ending, text)


@case
def fork_bomb_is_contained(sandbox: Sandbox) -> None:
    code = """
import os, time
count = 0
try:
    while count < 200:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except OSError:
    pass
print(count, flush=True)
time.sleep(1000)"""
    with sandbox.spawn(python(code), limits=LIMITS, gpu=False) as process:
        wait_for(lambda: process.output().text.endswith("\n"))
        assert 10 < int(process.output().text) <= LIMITS.process_count
        assert seen(sandbox, "os.fork() or os._exit(0); os.wait(); print(1)") == 1


@case
def memory_hog_is_stopped(sandbox: Sandbox) -> None:
    ending, text = run(sandbox, "x = bytearray(400 << 20)\nprint('got it')", limits=_small_memory())
    assert "got it" not in text
    assert ending.out_of_memory or "MemoryError" in text, ending


@case
def out_of_memory_is_reported(sandbox: Sandbox) -> None:
    ending, _ = run(sandbox, "x = bytearray(400 << 20)", limits=_small_memory())
    assert ending.out_of_memory
    assert ending.signal == 9
    ending, _ = run(sandbox, "pass", limits=_small_memory())
    assert not ending.out_of_memory


@case
def shared_memory_objects_count(sandbox: Sandbox) -> None:
    code = "import os\nfd = os.memfd_create('x')\nfor _ in range(400): os.write(fd, bytes(1 << 20))\nprint('got it')"
    _, text = run(sandbox, code, limits=replace(_small_memory(), file_bytes=1 << 30))
    assert "got it" not in text


def _small_memory() -> Limits:
    return replace(LIMITS, memory_bytes=200 * MIB)


@case
def file_size_is_capped(sandbox: Sandbox) -> None:
    ending, _ = run(sandbox, "import os\nopen(os.environ['TMPDIR'] + '/x', 'wb').write(bytes(49 << 20))")
    assert ending.returncode == 1
    argv = ["sh", "-c", "exec dd if=/dev/zero bs=1M count=49 of=$TMPDIR/x"]
    with sandbox.spawn(argv, limits=LIMITS, gpu=False) as process:
        assert some(process.wait()).signal == 25


@case
def endless_output_neither_blocks_nor_grows(sandbox: Sandbox) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import os\nfor _ in range(2048): os.write(1, b'x' * 65536)\nos.write(2, b'last words')"
    with sandbox.spawn(python(code), limits=LIMITS, gpu=False) as process:
        ending = process.wait()
    output = process.output()
    assert ending is not None
    assert ending.returncode == 0
    assert output.total_bytes == (128 << 20) + 10
    assert len(output.text) < LIMITS.output_bytes + 100
    assert output.text.endswith("last words")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@case
def output_of_any_bytes_is_text(sandbox: Sandbox) -> None:
    _, text = run(sandbox, "import os\nos.write(1, bytes(range(256)))")
    assert "\N{REPLACEMENT CHARACTER}" in text
    assert "abc" in text


@case
def wall_limit_ends_the_whole_tree(sandbox: Sandbox) -> None:
    marker = new_marker()
    argv = [*python(SPAWN_TREE), marker]
    with sandbox.spawn(argv, limits=replace(LIMITS, wall_seconds=3), gpu=False) as process:
        wait_for(lambda: "up" in process.output().text and len(with_marker(marker)) >= 20)
        ending = some(process.wait())
    assert ending.timed_out
    assert ending.signal == 9
    assert 3 <= ending.wall_seconds < LIMITS.wall_seconds / 2
    _assert_gone(marker, at_once=True)


@case
def members_are_all_processes(sandbox: Sandbox) -> None:
    marker = new_marker()
    try:
        with sandbox.spawn([*python(SPAWN_TREE), marker], limits=LIMITS, gpu=False) as process:
            wait_for(lambda: "up" in process.output().text and len(with_marker(marker)) >= 20)
            counted = {"cgroup-memory", "cgroup-pids", "cgroup-freezer"} & set(sandbox.layers)
            assert (process.members is None) == (not counted)
            if process.members is None:
                return
            before = with_marker(marker)
            members = process.members()
            lasting = before & with_marker(marker)  # the middle of a double fork may end meanwhile
            assert lasting
            assert lasting <= members
        assert process.members() == set()
    finally:
        _end_all(marker)  # a weak sandbox without a cgroup finds only its own session's


@case
def orphans_descend_from_the_roots(sandbox: Sandbox) -> None:
    """Which is where a pause looks for what to stop, without a cgroup."""
    marker = new_marker()
    disown = "import ctypes\nctypes.CDLL(None).prctl(36, 0, 0, 0, 0)\n"  # PR_SET_CHILD_SUBREAPER
    try:
        with sandbox.spawn([*python(disown + SPAWN_TREE), marker], limits=LIMITS, gpu=False) as process:
            wait_for(lambda: "up" in process.output().text and len(with_marker(marker)) >= 20)
            before = with_marker(marker)
            found = descendants(process.roots)
            assert before & with_marker(marker) <= found
        _assert_gone(marker, at_once=True)
    finally:
        _end_all(marker)


def descendants(roots: set[int]) -> set[int]:
    """Return the pids of these processes and of all that descend from them now."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


@case
def a_frozen_tree_can_be_killed(sandbox: Sandbox) -> None:
    with sandbox.spawn(python(CONTINUES_ITS_PARENT), limits=LIMITS, gpu=False) as process:
        wait_for(lambda: "up" in process.output().text)
        assert (process.freezer is not None) == ("cgroup-freezer" in sandbox.layers)
        if process.freezer is None:
            return
        (process.freezer / "cgroup.freeze").write_text("1")
        wait_for(lambda: "frozen 1" in (process.freezer / "cgroup.events").read_text())
        process.kill()
    assert process.ended


@case
def daemons_end_with_the_command(sandbox: Sandbox) -> None:
    marker = new_marker()
    ending, _ = run(sandbox, f"import subprocess\nsubprocess.Popen(['sleep', '{marker}'])")
    assert ending.returncode == 0
    assert not ending.timed_out
    _assert_gone(marker, at_once=True)


@case
def what_nobody_reaps_has_ended(sandbox: Sandbox) -> None:
    def reap_orphans(*, ours: bool) -> None:
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(ours), 0, 0, 0) == 0

    reap_orphans(ours=True)
    try:
        ending, pid = run(sandbox, "import subprocess\nprint(subprocess.Popen(['sleep', '1000']).pid)")
        assert ending.returncode == 0
    finally:
        reap_orphans(ours=False)
    with contextlib.suppress(ChildProcessError):  # its own init reaps those of a namespace
        os.waitpid(int(pid), os.WNOHANG)


@case
def a_stopped_command_still_ends(sandbox: Sandbox) -> None:
    limits = replace(LIMITS, wall_seconds=0.5)
    ending, _ = run(sandbox, "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", limits=limits)
    assert ending.timed_out
    assert ending.wall_seconds < LIMITS.wall_seconds / 2


@case
def kill_is_complete_and_can_be_repeated(sandbox: Sandbox) -> None:
    marker = new_marker()
    process = sandbox.spawn(["sleep", marker], limits=LIMITS, gpu=False)
    wait_for(lambda: with_marker(marker))
    process.kill()
    _assert_gone(marker, at_once=True)
    process.kill()
    ending = some(process.wait())
    assert ending.signal == 9
    assert not ending.timed_out


@case
def nothing_is_left_behind(sandbox: Sandbox) -> None:
    ours = f"grader-*-{os.getpid()}-*"

    def traces() -> dict[str, Any]:
        mounts = set(Path("/proc/self/mountinfo").read_text().splitlines())
        # Unlike rglob, walk passes over the cgroups that others remove meanwhile.
        cgroups = {name for _, names, _ in os.walk("/sys/fs/cgroup") for name in fnmatch.filter(names, ours)}
        scratch = set(Path(tempfile.gettempdir()).glob(f"grader-weak-{os.getpid()}-*"))
        descriptors, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
        return {"fds": descriptors, "threads": threads, "mounts": mounts, "cgroups": cgroups, "scratch": scratch}

    def more() -> dict[str, Any]:
        return {what: found for what, found in traces().items() if not found <= before[what]}

    run(sandbox, "pass")
    before = traces()
    for _ in range(3):
        run(sandbox, "import os\nopen(os.environ['TMPDIR'] + '/x', 'w')")
        with sandbox.spawn(["sleep", "1000"], limits=LIMITS, gpu=False):
            pass
        with contextlib.suppress(SandboxError):
            sandbox.spawn(["/no/such/command"], limits=LIMITS, gpu=False)
    try:
        wait_for(lambda: not more())
    except AssertionError:
        raise AssertionError(f"{more()} where before there were {before}") from None


@case
def a_command_that_cannot_start_is_a_sandbox_error(sandbox: Sandbox) -> None:
    message = ""
    try:
        sandbox.spawn(["/no/such/command"], limits=LIMITS, gpu=False)
    except SandboxError as error:
        message = str(error)
    assert "/no/such/command" in message


@case
def killed_grader_leaves_nothing(sandbox: Sandbox) -> None:
    """Kill the grader at random moments of the start, and once when everything runs. No command is left.

    If bubblewrap ends between the start of its child and the release, the child waits forever without having run any
    code of the command; the start of the next grader ends it through its cgroup. On a loaded machine, those 0.3 ms
    may take longer.
    """
    stuck = []
    for delay_seconds in (*(random.uniform(0.05, 0.4) for _ in range(8)), None):
        marker = new_marker()
        argv = [sys.executable, "-P", __file__, sandbox.name, "--tree", marker]
        folder = tempfile.mkdtemp()
        # The marker in PATH also marks bubblewrap's own processes, including those of the trial run.
        path = f"{os.environ['PATH']}:/{marker}"
        environment = os.environ | {"PYTHONPATH": _repository(), "TMPDIR": folder, "PATH": path}
        Path(folder).chmod(0o755)
        grader = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment)
        assert grader.stdout is not None
        if delay_seconds is None:
            assert grader.stdout.readline() == b"up\n"
        else:
            time.sleep(delay_seconds)
        grader.kill()
        grader.wait()
        grader.stdout.close()
        shutil.rmtree(folder)
        _assert_gone(marker, at_once=False)
        try:
            _assert_gone(marker, at_once=False, where="environ")
        except LeftOver as error:
            stuck.append(error.processes)
    assert all(name == "bwrap" for left in stuck for name in left), stuck
    assert len(stuck) <= 1, stuck


@case
def the_spawning_thread_may_end(sandbox: Sandbox) -> None:
    started = []
    argv = ["sleep", "1000"]
    thread = threading.Thread(target=lambda: started.append(sandbox.spawn(argv, limits=LIMITS, gpu=False)))
    thread.start()
    thread.join()
    with started[0] as process:
        assert process.wait(0.2) is None


@case
def many_run_at_once(sandbox: Sandbox) -> None:
    processes = [sandbox.spawn(python("import os; print(os.getuid())"), limits=LIMITS, gpu=False) for _ in range(8)]
    for process in processes:
        ending = some(process.wait())
        assert ending.returncode == 0
    if "user-id" in sandbox.layers:
        assert len({process.output().text for process in processes}) == 8


@case
def hidden_paths_are_empty(sandbox: Sandbox) -> None:
    with outside_folder() as folder:
        (folder / "inner").mkdir()
        for name in ("secret", "inner/secret", "shown"):
            (folder / name).write_text(name)
        code = f"""
os.chdir({str(folder)!r})
try:
    open("inner/new", "w")
    new = True
except OSError:
    new = False
print(json.dumps([open("secret").read(), os.listdir("inner"), open("shown").read(), new]))"""
        result = seen(
            sandbox,
            code,
            readonly=[folder],
            hidden=[folder / name for name in ("secret", "inner", "inner/secret", "none")],
        )
        assert result == ["", [], "shown", False]


@case
def compilers_work(sandbox: Sandbox) -> None:
    code = """
import os, subprocess
open("x.cpp", "w").write('#include <cstdio>\\nint main() { puts("compiled"); }')
subprocess.run(["g++", "x.cpp", "-o", "x"], check=True)
subprocess.run(["./x"], check=True)"""
    ending, text = run(sandbox, code)
    assert ending.returncode == 0, text
    assert "compiled" in text


def wait_for(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


class LeftOver(AssertionError):
    """Processes that should have ended, by name."""

    def __init__(self, processes: list[str]) -> None:
        super().__init__(f"left over: {processes}")
        self.processes = processes


def _assert_gone(marker: str, *, at_once: bool, where: str = "cmdline") -> None:
    deadline = time.monotonic() + (0.05 if at_once else 3)
    try:
        while left := _names(with_marker(marker, where)):
            if time.monotonic() > deadline:
                raise LeftOver(left)
            time.sleep(0.01)
    finally:
        _end_all(marker, where)


def _names(pids: set[int]) -> list[str]:
    names = []
    for pid in pids:
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return names


def _end_all(marker: str, where: str = "cmdline") -> None:
    while left := with_marker(marker, where):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        time.sleep(0.2)


def _repository() -> str:
    import grader

    assert grader.__file__ is not None
    return str(Path(grader.__file__).parent.parent)


def named(name: str) -> Sandbox:
    if name != "copied":
        return choose("weak" if name == "weak" else "bubblewrap")
    from copied import Copied  # type: ignore[import-not-found]

    sandbox = choose("bubblewrap")
    assert sandbox.copies
    return Copied(sandbox)


def main(name: str, *arguments: str) -> None:
    sandbox = named(name)
    if arguments:
        with sandbox.spawn([*python(SPAWN_TREE), arguments[1]], limits=LIMITS, gpu=False) as process:
            wait_for(lambda: "up" in process.output().text)
            sys.stdout.write("up\n")
            sys.stdout.flush()
            process.wait()
        return
    failures = {}
    for case_name, check in CASES.items():
        if case_name in NOT_OF.get(name, ()):
            continue
        try:
            check(sandbox)
        except Exception:
            failures[case_name] = traceback.format_exc()
    sys.stdout.write(json.dumps({"layers": sandbox.layers, "failures": failures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
