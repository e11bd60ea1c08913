"""Runs code in copies of one process that has imported torch and nothing else, which takes seconds.

As a program it reads one code per line, as JSON, and answers with the exit status of the copy that ran it and with what
that printed.
"""

import json
import os
import subprocess
import sys
import traceback

HEAVY = ("torch._dynamo", "sympy", "triton")
"""Modules that take seconds to import, and that importing torch leaves out."""


class BesideTorch:
    """`run` returns what a code prints. It fails if the code raises."""

    def __enter__(self):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.beside_torch"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def __exit__(self, *_):
        self._process.communicate()

    def run(self, code):
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        status, printed = json.loads(self._process.stdout.readline())
        assert status == 0, printed
        return printed


def _run(code):
    try:
        exec(code, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        return 1
    return 0


def _in_a_copy(code):
    reading, writing = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.dup2(writing, 1)
        os.close(writing)
        status = _run(code)
        sys.stdout.flush()
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as file:
        printed = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), printed


def main():
    import torch  # noqa: F401

    assert not [name for name in HEAVY if name in sys.modules]
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_in_a_copy(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
