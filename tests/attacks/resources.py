"""Attacks on resources: memory, processes, disk, output, and what they leave behind."""

from grader.verdict.models import Status

RUN_LOST = {Status.CRASHED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.RUNTIME_ERROR}

# name: (source with `attack`, which runs in every forward; permitted statuses)
ATTACKS = {
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
}
