"""`grader serve` as tests run it: a process of its own on a free port, and who asks it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """`grader serve` on a free port. A context manager that asks it to end, and waits for it."""

    def __init__(self, database, *arguments, prefix=(), **environment):
        command = [
            *prefix,
            sys.executable,
            "-m",
            "grader",
            "serve",
            "--db",
            str(database),
            "--port",
            "0",
            *arguments,
        ]
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            start_new_session=True,
        )
        self.said = []
        first = self.process.stderr.readline()
        assert "http://" in first, first + self.process.stderr.read()
        self.said.append(first)
        self.address = re.search(r"http://\S+/", first)[0]
        self._reader = Thread(target=lambda: self.said.extend(self.process.stderr))
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)

    def end(self, number):
        """Send the signal; returns the exit status and how long it took."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(30)
        self._reader.join()
        self.process.stderr.close()
        return status, time.monotonic() - started

    def ask(self, path, *, data=None, **headers):
        """Status, headers and text."""
        request = urllib.request.Request(self.address + path.lstrip("/"), data=data, headers=headers)
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def json(self, path):
        """An answer of the API that has to succeed."""
        status, _, text = self.ask(path)
        assert status == 200, text
        return json.loads(text)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Events:
    """Reads server-sent events one by one."""

    def __init__(self, server, query="", **headers):
        self._answer = urllib.request.urlopen(
            urllib.request.Request(f"{server.address}events{query}", headers=headers), timeout=20
        )

    def next(self, kind):
        """The next event of a kind: its id and its data."""
        found = {}
        for line in self._answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                found[name] = value
            elif found.get("event") == kind:
                return found.get("id"), json.loads(found["data"])
            else:
                found = {}
        raise AssertionError("the server closed the connection")

    def close(self):
        self._answer.close()


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "grader", "serve", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
