"""All that crosses the trust boundary: jobs go in, evidence comes out.

The referee (trusted) and the worker (its memory belongs to whatever submission it runs) import this module; it is the
only one of ours that both do. A message is one length-prefixed JSON document; tensors travel beside it as raw bytes in
two regions of shared memory that the referee made: the *inbox*, which the worker can only read, and the *outbox*.
Nothing is pickled, in either direction. Where a tensor lies, its shape and its dtype are said by the referee, in a
`Slot`; a worker that has something else to show reports so instead of writing it.

A `Job` is a short program of steps that the worker carries out in order; an `Evidence` says what each step found, up to
the first that raised. Evidence is a claim, never a verdict: it is schema-checked and bounded in size before anybody
reads it.
"""

from __future__ import annotations

from grader.protocol._base import ALIGNMENT_BYTES, ITEM_BYTES, Message, Name, Shape, Slot, TensorInfo, Text
from grader.protocol.answers import ANSWERS, check_answer
from grader.protocol.evidence import (
    MAX_KERNELS,
    Breach,
    BuildEvent,
    Constructed,
    Counted,
    Done,
    Evidence,
    Exported,
    Failure,
    Gauged,
    Gradients,
    Guarded,
    Imported,
    Kernel,
    Outputs,
    Profiled,
    Reach,
    Result,
    Timed,
    Traced,
    Work,
)
from grader.protocol.steps import (
    Argument,
    Attach,
    Backward,
    Construct,
    Cotangent,
    Count,
    Drop,
    Export,
    Flush,
    Forward,
    Gauge,
    Guard,
    Import,
    Job,
    Profile,
    PutInputs,
    SetState,
    Step,
    Time,
    Trace,
)
from grader.protocol.values import decode_value, encode_value
from grader.protocol.wire import (
    CONTROL_FD,
    HEADER,
    MAX_EVIDENCE_BYTES,
    MAX_JOB_BYTES,
    MAX_LISTED_ERRORS,
    MalformedMessage,
    decode_evidence,
    decode_job,
    encode,
)

__all__ = [
    "ALIGNMENT_BYTES",
    "ANSWERS",
    "CONTROL_FD",
    "HEADER",
    "ITEM_BYTES",
    "MAX_EVIDENCE_BYTES",
    "MAX_JOB_BYTES",
    "MAX_KERNELS",
    "MAX_LISTED_ERRORS",
    "Argument",
    "Attach",
    "Backward",
    "Breach",
    "BuildEvent",
    "Construct",
    "Constructed",
    "Cotangent",
    "Count",
    "Counted",
    "Done",
    "Drop",
    "Evidence",
    "Export",
    "Exported",
    "Failure",
    "Flush",
    "Forward",
    "Gauge",
    "Gauged",
    "Gradients",
    "Guard",
    "Guarded",
    "Import",
    "Imported",
    "Job",
    "Kernel",
    "MalformedMessage",
    "Message",
    "Name",
    "Outputs",
    "Profile",
    "Profiled",
    "PutInputs",
    "Reach",
    "Result",
    "SetState",
    "Shape",
    "Slot",
    "Step",
    "TensorInfo",
    "Text",
    "Time",
    "Timed",
    "Trace",
    "Traced",
    "Work",
    "check_answer",
    "decode_evidence",
    "decode_job",
    "decode_value",
    "encode",
    "encode_value",
]
