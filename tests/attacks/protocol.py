"""Attacks on the protocol: forged evidence, and writes to shared memory outside of a job."""

from grader.verdict.models import Status

# name: (source with `attack`, which runs in every forward; permitted statuses)
ATTACKS = {
    "closes_descriptor_3": ("def attack():\n    os.close(3)", {Status.CRASHED, Status.INTEGRITY_VIOLATION}),
    "huge_evidence": (
        "def attack():\n    os.write(3, struct.pack('<I', 0xFFFFFFFF) + b'{')",
        {Status.INTEGRITY_VIOLATION},
    ),
    "malformed_evidence": (
        "def attack():\n    os.write(3, struct.pack('<I', 9) + b'{\"id\": [}')",
        {Status.INTEGRITY_VIOLATION},
    ),
    "nested_evidence": (
        "def attack():\n    os.write(3, struct.pack('<I', 1 << 16) + b'[' * (1 << 16))",
        {Status.INTEGRITY_VIOLATION},
    ),
    "long_number": (
        """
        def attack():
            body = b'{"id": ' + b"9" * (1 << 16) + b"}"
            os.write(3, struct.pack("<I", len(body)) + body)
        """,
        {Status.INTEGRITY_VIOLATION},
    ),
    "forges_a_second_line": (
        """
        channel = sys.modules["grader.worker.channel"].Channel

        def send(self, evidence):
            failure = {"step": 0, "kind": "exception", "type_name": "E\\ncorrect", "text": "CUDA " * 9999}
            body = json.dumps({"id": evidence.id, "results": [], "failure": failure}).encode()
            self._socket.sendall(struct.pack("<I", len(body)) + body)

        def attack():
            channel.send = send
        """,
        {Status.RUNTIME_ERROR},
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
        from grader.worker.registry import HANDLERS

        def attack():
            refuse = lambda step: [p.TensorInfo(name=name) for name in step.items]
            HANDLERS[p.Export] = lambda session, step: p.Exported(refused=tuple(refuse(step)))
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
        def scribble(region):
            while True:
                region._bytes.fill_(0)

        def attack():
            session = next(f["session"] for f in frames() if "session" in f)
            if not getattr(attack, "done", False) and "outbox" in session.regions:
                attack.done = True
                threading.Thread(target=scribble, args=(session.regions["outbox"],), daemon=True).start()

        def frames():
            frame = sys._getframe()
            while frame is not None:
                yield frame.f_locals
                frame = frame.f_back
        """,
        # It overwrites its own results; those that are sealed before it does are right.
        {Status.WRONG_OUTPUT, Status.WRONG_BACKWARD, Status.CORRECT},
    ),
}
