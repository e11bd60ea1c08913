"""The sandbox and the protocol under attack, through the whole pipeline by one grader.

After each attack the same grader gives an honest submission its verdict, and nothing is left behind: no process, mount,
cgroup, file or shared memory.
"""

import contextlib
import os
import textwrap
from pathlib import Path

import pytest

from grader.models import Problem, Status, Submission, TimeLimits
from grader.pipeline import Grader
from grader.remote.pause import _tree
from grader.stages import plan
from grader.stages.timing.judge import Plan

CASES = Path(__file__).parents[1] / "cases"
PROBLEM = CASES / "problems" / "scale_bias_relu.py"
HONEST = (CASES / "honest_plain" / "scale_bias_relu.py").read_text()
LIMITS = TimeLimits(build=20, construction=8, call=8)

pytestmark = pytest.mark.slow

RUN_LOST = {Status.CRASHED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.RUNTIME_ERROR}

MODEL = """
class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        attack()
        return torch.relu(x * self.scale + self.bias)
"""

IMPORTS = (
    "import ctypes, fcntl, json, mmap, os, signal, socket, struct, sys, threading, time, torch\nfrom torch import nn\n"
)

LOOT = """
def attack():
    loot = []
    for path in PATHS:
        try:
            with open(path, "rb") as file:
                loot.append((path, file.read(16)))
        except OSError:
            pass
    assert not loot, f"read {loot}"
"""
"""Raises, and so shows in the verdict, when it gets hold of anything."""


def reads(*paths):
    return f"PATHS = {[str(path) for path in paths]!r}\n{LOOT}"


ROOT = Path(__file__).parents[2]

# name: (what runs in every forward, statuses that it may end in)
ATTACKS = {
    "reads_the_graders_files": (
        reads(
            ROOT / "grader" / "pipeline.py",
            ROOT / "grader" / "stages" / "numerics.py",
            ROOT / "reference_solutions" / "cpu" / "conv2d_mul_leaky_relu_gelu.py",
            ROOT / "submissions" / "magpie" / "conv2d_mul_leaky_relu_gelu__cpu_erf.py",
            ROOT / "problems" / "conv2d_mul_leaky_relu_gelu.py",
            ROOT / "grader.db",
            Path(__file__),
            PROBLEM,
            Path.home() / ".ssh" / "id_rsa",
            "/etc/shadow",
            "/proc/1/environ",
            f"/proc/{os.getpid()}/environ",
            f"/proc/{os.getpid()}/maps",
        ).replace('"/proc/1/environ"', '"/proc/1/root/etc/shadow"'),
        {Status.CORRECT},
    ),
    "reads_through_symlinks_and_descriptors": (
        f"""
        def attack():
            os.symlink({str(PROBLEM)!r}, "/tmp/link") if not os.path.lexists("/tmp/link") else None
            found = []
            for path in ("/tmp/link", "/proc/self/root{PROBLEM}", "/proc/self/cwd/../../../../..{PROBLEM}"):
                try:
                    found.append(open(path).read(10))
                except OSError:
                    pass
            for descriptor in os.listdir("/proc/self/fd"):
                try:
                    target = os.readlink(f"/proc/self/fd/{{descriptor}}")
                except OSError:
                    continue
                if {str(ROOT)!r} in target or target.endswith(".db"):
                    found.append(target)
            assert not found, found
        """,
        {Status.CORRECT},
    ),
    "environment": (
        """
        def attack():
            kept = {name: value for name, value in os.environ.items() if "SECRET" in name or "TOKEN" in name}
            assert not kept, kept
        """,
        {Status.CORRECT},
    ),
    "network": (
        """
        def attack():
            for family, address in (
                (socket.AF_INET, ("127.0.0.1", 22)), (socket.AF_INET, ("1.1.1.1", 53)),
                (socket.AF_INET6, ("::1", 22)), (40, (2, 1024)),
            ):
                try:
                    with socket.socket(family, socket.SOCK_STREAM) as sock:
                        sock.settimeout(1)
                        sock.connect(address)
                except OSError:
                    continue
                raise AssertionError(f"reached {address}")
        """,
        {Status.CORRECT},
    ),
    "ptrace_and_namespaces": (
        """
        libc = ctypes.CDLL(None, use_errno=True)

        def attack():
            done = [name for name, call in {
                "ptrace": lambda: libc.ptrace(16, os.getppid(), 0, 0),
                "unshare": lambda: libc.unshare(0x10000000),
                "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
                "keyctl": lambda: libc.syscall(250, 0, -3, 0),
                "bpf": lambda: libc.syscall(321, 0, 0, 0),
                "io_uring": lambda: libc.syscall(425, 1, 0),
                "userfaultfd": lambda: libc.syscall(323, 0),
                "setuid": lambda: libc.setuid(0),
            }.items() if call() >= 0]
            assert not done, done
        """,
        {Status.CORRECT},
    ),
    "signals_everybody": ("def attack():\n    os.kill(-1, signal.SIGKILL)", RUN_LOST),
    "signals_the_referee": (
        f"""
        def attack():
            for pid in ({os.getpid()}, {os.getppid()}):
                try:
                    os.kill(pid, signal.SIGTERM)
                except OSError:
                    pass
        """,
        {Status.CORRECT},
    ),
    "stops_itself": ("def attack():\n    os.kill(os.getpid(), signal.SIGSTOP)", {Status.TIMEOUT}),
    "endless_loop": ("def attack():\n    while True:\n        pass", {Status.TIMEOUT}),
    "fork_bomb": (
        """
        def attack():
            while True:
                try:
                    os.fork()
                except OSError:
                    time.sleep(0.01)
        """,
        RUN_LOST | {Status.INTEGRITY_VIOLATION},
    ),
    "memory": (
        """
        def attack():
            hoard = []
            while True:
                hoard.append(bytearray(os.urandom(1 << 10)) * (1 << 18))
        """,
        RUN_LOST,
    ),
    "disk": (
        """
        def attack():
            number = 0
            while True:
                number += 1
                with open(f"/tmp/{number}", "wb") as file:
                    for _ in range(64):
                        file.write(bytes(1 << 22))
        """,
        RUN_LOST,
    ),
    "inodes": (
        """
        def attack():
            for number in range(20_000_000):
                open(f"/tmp/{number}", "w").close()
        """,
        RUN_LOST,
    ),
    "stdout": (
        """
        def attack():
            if not getattr(attack, "done", False):
                attack.done = True
                for _ in range(1 << 8):
                    os.write(1, b"x" * (1 << 22))
        """,
        {Status.CORRECT, Status.TIMEOUT},
    ),
    "daemon": (
        """
        def attack():
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    time.sleep(3600)
                os._exit(0)
            os.wait()
        """,
        {Status.CORRECT},
    ),
    "leaves_files": (
        """
        def attack():
            for path in ("/tmp/torch_extensions/left", "/tmp/bundle/left", "/dev/shm/left", "/var/tmp/left"):
                try:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    open(path, "w").write("x")
                except OSError:
                    pass
        """,
        {Status.CORRECT},
    ),
    "closes_descriptor_3": ("def attack():\n    os.close(3)", {Status.CRASHED, Status.INTEGRITY_VIOLATION}),
    "huge_evidence": (
        "def attack():\n    os.write(3, struct.pack('<I', 0xFFFFFFFF) + b'{')",
        {Status.INTEGRITY_VIOLATION},
    ),
    "malformed_evidence": (
        "def attack():\n    os.write(3, struct.pack('<I', 9) + b'{\"id\": [}')",
        {Status.INTEGRITY_VIOLATION},
    ),
    "answers_twice": (
        """
        channel = sys.modules["grader.worker.channel"].Channel
        send = channel.send

        def attack():
            channel.send = lambda self, evidence: (send(self, evidence), send(self, evidence))
        """,
        {Status.INTEGRITY_VIOLATION},
    ),
    "answers_ahead": (
        """
        def attack():
            body = json.dumps({"id": 5, "results": []}).encode()
            os.write(3, struct.pack("<I", len(body)) + body)
        """,
        {Status.INTEGRITY_VIOLATION},
    ),
    "wrong_job": (
        """
        channel = sys.modules["grader.worker.channel"].Channel
        send = channel.send

        def attack():
            channel.send = lambda self, evidence: send(self, evidence.model_copy(update={"id": evidence.id + 1}))
        """,
        {Status.INTEGRITY_VIOLATION},
    ),
    "lies_about_refusals": (
        """
        from grader import protocol as p
        from grader.worker.bench import Bench

        def attack():
            refuse = lambda step: [p.TensorInfo(name=name) for name in step.items]
            Bench.export = lambda self, step: p.Exported(refused=tuple(refuse(step)))
        """,
        {Status.WRONG_OUTPUT},
    ),
    "claims_terabytes": (
        """
        channel = sys.modules["grader.worker.channel"].Channel

        def send(self, evidence):
            document = json.loads(evidence.model_dump_json())
            for result in document["results"]:
                if result["did"] == "constructed":
                    huge = [{**info, "shape": [1 << 44, 8]} for info in result["parameters"]]
                    result["parameters"] = [*huge, *result["parameters"]]
            body = json.dumps(document).encode()
            self._socket.sendall(struct.pack("<I", len(body)) + body)

        channel.send = send

        def attack():
            pass
        """,
        {Status.INTEGRITY_VIOLATION},
    ),
    "resizes_shared_memory": (
        """
        from grader.worker import memory

        real = memory._map_host

        def map_host(step, descriptor):
            for size in (0, 1 << 40):
                try:
                    os.ftruncate(descriptor, size)
                    raise SystemExit("resized")
                except OSError:
                    pass
            if step.region == "inbox":
                try:
                    mmap.mmap(descriptor, step.nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
                    raise SystemExit("mapped the inbox for writing")
                except OSError:
                    pass
            return real(step, descriptor)

        memory._map_host = map_host

        def attack():
            pass
        """,
        {Status.CORRECT},
    ),
    "scribbles_forever": (
        """
        from grader.worker.bench import Bench

        def scribble(region):
            while True:
                region._bytes.fill_(0)

        def attack():
            bench = next(f for f in frames() if "self" in f and isinstance(f["self"], Bench))["self"]
            if not getattr(attack, "done", False) and "outbox" in bench.regions:
                attack.done = True
                threading.Thread(target=scribble, args=(bench.regions["outbox"],), daemon=True).start()

        def frames():
            frame = sys._getframe()
            while frame is not None:
                yield frame.f_locals
                frame = frame.f_back
        """,
        # It writes over its own results: those that it misses before they are sealed are right.
        {Status.WRONG_OUTPUT, Status.WRONG_BACKWARD, Status.CORRECT},
    ),
}


@pytest.fixture(scope="module")
def grader():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", Plan(min_rounds=1, max_rounds=1, seconds=0.0))
        patch.setenv("GRADER_SECRET", "do not tell")
        with Grader(device="cpu", quick=True, limits=LIMITS) as grader:
            assert grade(grader, HONEST).status is Status.CORRECT
            yield grader


def grade(grader, source):
    problem = Problem(id=PROBLEM.stem, path=PROBLEM, source=PROBLEM.read_text())
    submission = Submission(author="attacker", problem_id=PROBLEM.stem, path="attack.py", source=source)
    return grader.grade(problem, submission)


def traces():
    """What an attack could leave behind: processes below us, mounts, cgroups, files, shared memory, descriptors."""
    ours = f"-{os.getpid()}-"
    return {
        "processes": set(_tree(os.getpid())),
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
        "cgroups": {path for path in Path("/sys/fs/cgroup").glob("**/grader-*") if ours in path.name},
        "files": {path for folder in ("/tmp", "/var/tmp", "/dev/shm") for path in sandboxed_files(Path(folder))},
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def sandboxed_files(folder):
    """Files of a sandbox's user, or of a name that an attack gives; weak sandboxes belong to tests beside these."""
    for path in folder.iterdir():
        if path.name.startswith("grader-weak-"):
            continue
        with contextlib.suppress(OSError):
            if path.name in ("left", "link", "torch_extensions", "bundle") or path.lstat().st_uid >= 2_000_000:
                yield path


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(grader, name):
    attack, statuses = ATTACKS[name]
    before = traces()
    verdict = grade(grader, IMPORTS + textwrap.dedent(attack) + "\n" + MODEL)
    told = [(diagnosis.code, diagnosis.message) for diagnosis in verdict.diagnoses]
    assert verdict.status in statuses, told
    assert traces() == before
    assert grade(grader, HONEST).status is Status.CORRECT
    assert traces() == before
