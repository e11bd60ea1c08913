"""The form of a diagnosis, and the words that those of several stages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grader.protocol import Failure
from grader.verdict.codes import CODES, Severity
from grader.verdict.models import Diagnosis, StageName

MAX_QUOTED = 400
"""Characters of a submission's or compiler's text that a message quotes: two lines of a wide terminal. It also bounds
the text that patterns are searched in."""

MAX_LISTED = 8
"""Names or places that a message lists: more do not fit on a line. A choice."""

VARIES = (
    "look for a race between threads, on a GPU a missing __syncthreads(), for memory that is read before it is "
    "written, state that one call leaves to the next, or random numbers that the reference does not draw"
)
"""The remedy for what differs between equal calls."""


def diagnose(
    code: str,
    what: str,
    *,
    where: str | None = None,
    amount: str | None = None,
    remedy: str | None = None,
    stage: StageName | None = None,
    severity: Severity | None = None,
    detail: Mapping[str, object] | None = None,
) -> Diagnosis:
    """A diagnosis under a code of `grader.verdict.codes`, with the message `what (where), amount: remedy`.

    `what` is wrong, `where` (variant, mode, layout), by what `amount` (numbers with units), and the `remedy` that mends
    it. Stage and severity are the code's own unless given.
    """
    message = what + (f" ({where})" if where else "") + (f", {amount}" if amount else "")
    return Diagnosis(
        code=code,
        stage=stage or CODES[code].stage,
        message=f"{message}: {remedy}" if remedy else message,
        severity=severity or CODES[code].severity,
        detail=dict(detail or {}),
    )


def fold(cause: Diagnosis, consequences: Sequence[Diagnosis]) -> list[Diagnosis]:
    """The cause with the errors that follow from it in its `detail`, then consequences that are no errors.

    One cause is one diagnosis: what follows from it mends itself with it.
    """
    errors = [f"{one.code}: {one.message}" for one in consequences if one.severity == "error"]
    if errors:
        before = cause.detail.get("consequences", [])
        assert isinstance(before, list)
        cause = cause.model_copy(update={"detail": {**cause.detail, "consequences": [*before, *errors]}})
    return [cause, *(one for one in consequences if one.severity != "error")]


def fault_text(diagnosis: Diagnosis, where: str) -> str:
    """The text of a diagnosis on what is wrong, without its place and what follows that."""
    return diagnosis.message.partition(f" ({where})")[0]


def wrong_in_one_mode(what: str, training: bool) -> str:
    """The beginning of a message on something, such as "the output is", that is wrong in one mode alone."""
    right, wrong = ("eval()", "train()") if training else ("train()", "eval()")
    return f"{what} right in {right} and wrong in {wrong}"


def said_of_eval(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis, for a fault that only eval() shows."""
    return diagnosis.model_copy(update={"message": f"in eval(), {diagnosis.message}"})


def on_another_draw(diagnosis: Diagnosis, other: str = "another draw of inputs and parameters") -> Diagnosis:
    """The same diagnosis, for a fault that the first draw does not show."""
    return diagnosis.model_copy(update={"message": f"on {other}, {diagnosis.message}"})


def usual_remedy(code: str) -> str:
    """The code's general remedy, in the form that ends a message."""
    remedy = CODES[code].remedy.rstrip(".")
    return remedy[:1].lower() + remedy[1:]


def first_line(failure: Failure) -> str:
    """The exception's type and the first line of its text, at most MAX_QUOTED characters of it."""
    first = (failure.text.strip().splitlines() or [""])[0][:MAX_QUOTED]
    return f"{failure.type_name}: {first}" if first else failure.type_name


def fresh_tensor(call: str, graphs: bool) -> str:
    """The remedy for a result that the next call, `forward` or `backward`, overwrites."""
    if not graphs:
        return f"return a fresh tensor from each {call}, not a buffer that is kept"
    return (
        f"return a clone() of each result of the {call}: a CUDA graph writes to the same memory in every call, "
        "and torch.compiler.cudagraph_mark_step_begin() alone keeps nothing"
    )


def in_backticks(items: Sequence[str]) -> str:
    """`a`, `b` and `c` in backticks; at most MAX_LISTED names and the number of others."""
    quoted = [f"`{item}`" for item in items[:MAX_LISTED]]
    if len(items) > MAX_LISTED:
        return f"{', '.join(quoted)} and {len(items) - MAX_LISTED} more"
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


def shape_text(shape: Sequence[int] | None) -> str:
    """A shape as `(2, 3)`; an unknown one as `()`."""
    return "(" + ", ".join(str(extent) for extent in shape or ()) + ")"
