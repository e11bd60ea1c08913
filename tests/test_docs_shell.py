"""README's and the docs' shell blocks, run as printed: a page's blocks in order in one fresh shell.

A block that no test can run has the reason above it: `<!-- not run: needs a GPU -->`. Commands run in this process,
which has imported torch and shares one worker template; what asks for the shell is a process that the shell started.
"""

import contextlib
import json
import logging
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import pytest

import grader.cli
from db import Store
from grader.grading import plan
from grader.grading.timing.stopping import RoundLimits
from grader.verdict.models import Status
from tests import samples

ROOT = Path(__file__).resolve().parents[1]
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
SHIPPED = "conv2d_mul_leaky_relu_gelu"
FAILS_AT_ONCE = "# No ModelNew: what is graded does not matter here, and this takes the least time.\n"
RECORDED = "docs/tutorial/first-ten-minutes.md"
"""Its commands are run by the script that makes it."""

TOOLS = (
    "grader|make|source|cd|pip|python|python3.12|uv|docker|apt-get|tar|generate|datasette|GRADER_TOKEN=.*|grader-env/.*"
)
INDENTED = re.compile(rf"^( {{4,}})(?=(?:{TOOLS}) )[^\n]*\n(?:\1[^\n]*\n)*", re.MULTILINE)
FENCED = re.compile(r"^```(?:bash|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REASON = re.compile(r"<!-- not run: (.{8,}) -->\s*\Z")


def blocks(text):
    """(block, why it is not run or None) of a page, in order."""
    quoted = [(found.start(), found.end()) for found in re.finditer(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)]
    found = [(one.start(), one[1]) for one in FENCED.finditer(text)]
    for one in INDENTED.finditer(text):
        if not any(start < one.start() < end for start, end in quoted):
            found.append((one.start(), textwrap.dedent(one[0])))
    for start, block in sorted(found):
        reason = REASON.search(text[:start])
        yield block, reason and reason[1]


TUTORIAL = "docs/tutorial/first-verdict.md"
SHOWN = {
    "README.md": (
        "correct #1 me/scale_silu on cpu",
        "#2 me/scale_silu__cuda on cuda",
        "#3 me/scale_silu__triton on cuda",
        "verdict 1: correct me/scale_silu",
        "my_run/1_Tiny",
        "passed",
    ),
    TUTORIAL: [
        " ".join(shown.removesuffix("...\n").split())
        for shown in re.findall(r"^```\n(\w+ +#.*?)^```$", PAGES[TUTORIAL].read_text(), re.MULTILINE | re.DOTALL)
    ],
}
"""What the commands of a page print, each run of spaces as one."""

BLOCKS = {name: list(blocks(path.read_text())) for name, path in PAGES.items() if name != RECORDED}


COMMAND = """\
#!{python} -ISX utf8
import array, json, os, socket, sys
if "--install-completion" in sys.argv:
    os.execv("{python}", ["{python}", "-m", "grader", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect("{socket}")
    request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    server.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    sys.exit(int(server.recv(10) or b"1"))
"""
"""Hands a command, with its files, to the process of the tests."""


class Shell:
    """A shell whose `grader` runs here."""

    def __init__(self, folder):
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(folder / "socket"))
        self._listener.listen()

    def run(self, script, environment):
        """(exit status, stdout, stderr) of a script."""
        with self._listener, (self._folder / "out").open("w") as out, (self._folder / "err").open("w") as err:
            command = ["bash", "-exc", f"{script}\n:"]  # a shell gives its process to the last command
            with subprocess.Popen(command, cwd=self._folder, env=environment, stdout=out, stderr=err) as process:
                while process.poll() is None:
                    if select.select([self._listener], [], [], 0.05)[0]:
                        self._answer()
        return process.returncode, *((self._folder / name).read_text() for name in ("out", "err"))

    def _answer(self):
        with self._listener.accept()[0] as client:
            request, fds, _, _ = socket.recv_fds(client, 1 << 20, 3)
            client.send(str(run_here(*json.loads(request), fds)).encode())


def run_here(arguments, folder, environment, fds):
    """The exit status of a command with these files, in this process."""
    logger, handler = logging.getLogger("grader"), signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        for name, fd in zip(("stdin", "stdout", "stderr"), fds, strict=True):
            file = stack.enter_context(os.fdopen(fd, "r" if name == "stdin" else "w", encoding="utf-8"))
            stack.enter_context(mock.patch.object(sys, name, file))
        stack.enter_context(mock.patch.object(sys, "argv", arguments))
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        stack.enter_context(mock.patch.object(logger, "handlers", []))
        stack.enter_context(contextlib.chdir(folder))
        stack.callback(logger.setLevel, logger.level)
        stack.callback(signal.signal, signal.SIGTERM, handler)
        try:
            grader.cli.main()
        except SystemExit as ended:
            return ended.code or 0
        finally:
            for one in logger.handlers:
                one.close()


@pytest.fixture
def gradings_are_short(monkeypatch):
    """One round of timing, as nobody looks at it."""
    monkeypatch.setattr(plan, "thorough", lambda device: RoundLimits(min_rounds=1, max_rounds=1, seconds=0.0))


@pytest.fixture
def folder(tmp_path, request):
    """What the pages speak of: submissions, a checkout of KernelBench with a run, problems, databases."""
    right = "from torch import nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
    tiny = right.replace("ModelNew", "Model").replace("from", "import torch\nfrom", 1)
    tiny += "\ndef get_inputs():\n    return [torch.randn(4, 8)]\n\ndef get_init_inputs():\n    return []\n"
    profiled = request.node.callspec.params["page"] == "docs/how-to/results.md"
    reference = (ROOT / "problems" / f"{SHIPPED}.py").read_text()
    kernel = reference.replace("class Model(", "class ModelNew(") if profiled else FAILS_AT_ONCE
    files = {
        "KernelBench/KernelBench/level1/1_Tiny.py": tiny,
        "KernelBench/level1/1_Tiny.py": tiny,
        "KernelBench/runs/my_run/level_1_problem_1_sample_0_kernel.py": right,
        "runs/my_run/level_1_problem_1_sample_0_kernel.py": right,
        "my_problems/tiny.py": tiny,
        "my_kernel.py": kernel,
        f"submissions/ann/{SHIPPED}__v2.py": FAILS_AT_ONCE,
        "batch.jsonl": json.dumps({"problem": SHIPPED, "source": FAILS_AT_ONCE, "author": "ann"}) + "\n",
        "urgent.jsonl": json.dumps({"problem": SHIPPED, "source": FAILS_AT_ONCE, "author": "bob"}) + "\n",
        "bin/generate": "#!/bin/sh\ncat batch.jsonl\n",
        "bin/grader": COMMAND.format(python=sys.executable, socket=tmp_path / "socket"),
        "intro.txt": "Kernels.\n",
        "README.md": "Kernels.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for tool in (tmp_path / "bin").iterdir():
        tool.chmod(0o755)
    shutil.copytree(ROOT / "docs" / "tutorial", tmp_path / "docs" / "tutorial")
    databases = ["demo.db", "board.db", "before.db", "after.db", "runs/grader.db"]
    if request.node.callspec.params["page"] != "README.md":
        databases.append("grader.db")
    fill(tmp_path / "filled.db")
    for name in databases:
        shutil.copy(tmp_path / "filled.db", tmp_path / name)
    return tmp_path


def fill(database):
    """Keep twelve verdicts of two authors and two runs, and one of KernelBench's."""
    with Store.open(database) as store:
        for label, status in (("v1", Status.CORRECT), ("v2", Status.MISSING_BACKWARD)):
            with store.run(["grade"]) as run:
                for author in ("ann", "bob", "eve", "joe", "kim", "lee"):
                    submission = samples.submission(author, SHIPPED, label)
                    store.save(samples.verdict(submission, status), submission, samples.problem(SHIPPED), run)
        submission = samples.submission("my_run", "1_Tiny", sample=0)
        path = Path("KernelBench/KernelBench/level1/1_Tiny.py")
        with store.run(["grade"]) as run:
            store.save(samples.verdict(submission), submission, samples.problem("1_Tiny", path=path), run)


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name, found in BLOCKS.items() if any(not reason for _, reason in found)])
def test_the_shell_blocks_of_a_page_run_as_printed(page, folder, gradings_are_short):
    script = "\n".join(block for block, reason in BLOCKS[page] if not reason)
    if page == "README.md":
        script += f"{sys.executable} -m pytest -q mine\n"  # the test that `grader init` writes
    environment = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        # Other pages and tests build the same sources.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
    }
    status, shown, errors = Shell(folder).run(script, environment)
    assert status == 0, errors[-3000:]
    assert [line for line in SHOWN.get(page, ()) if line not in " ".join(shown.split())] == []


def test_most_blocks_are_run():
    found = [reason for each in BLOCKS.values() for _, reason in each]
    assert len(found) > 40
    assert sum(reason is None for reason in found) > len(found) / 2
