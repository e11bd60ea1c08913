"""Coverage-guided fuzzing of the code that reads a worker's answer. Needs atheris:

    pip install atheris
    python fuzz/fuzz_evidence.py $(mktemp -d) fuzz/corpus -max_total_time=600 -rss_limit_mb=2048

Without the corpus it finds no message that decodes. A crash is any exception except MalformedMessage, or a run that
takes too long or too much memory.
"""

import sys

import atheris

with atheris.instrument_imports(include=["grader.protocol"]):
    from grader import protocol as p

JOB = p.Job(
    id=7,
    steps=(
        p.Construct(model="m", init_inputs=[], device="cpu", seed=0),
        p.Forward(model="m", inputs="a", tape="a", grad=True),
        p.Backward(tape="a", grads="a", cotangents={}, wrt=("input[0]", "w")),
        p.Time(part="inference", model="m", inputs="a", tape="a", grads="a"),
        p.Guard(forward=p.Forward(model="m", inputs="a", tape="a"), seconds=1.0),
        p.Profile(forward=p.Forward(model="m", inputs="a", tape="a")),
        p.Export(items={"output:a:output": p.Slot(offset=0, dtype="float32", shape=(4,))}),
    ),
)


def test_one_input(data: bytes) -> None:
    """Decode the bytes and check them against a job."""
    try:
        evidence = p.decode_evidence(data)
        p.check_answer(JOB, evidence)
    except p.MalformedMessage:
        return
    assert evidence.id == JOB.id
    assert evidence.failure is not None or len(evidence.results) == len(JOB.steps)
    p.encode(evidence)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
