"""All that crosses the trust boundary: jobs go in, evidence comes out.

The referee (trusted) and the worker (its memory belongs to the submission that it runs) both import this package, and
it is the only one that both import. A message is one length-prefixed JSON document. Tensors travel beside it as raw
bytes in two regions of shared memory that the referee creates: the *inbox*, which the referee never reads and whose
host memory the worker cannot write, and the *outbox*. Nothing is pickled in either direction. The referee alone decides
where a tensor lies and which shape and dtype it has, in a `Slot`; a worker that has something else reports that instead
of writing it.

A `Job` is a short program of steps that the worker runs in order; an `Evidence` holds one result for each step, up to
the first that raised. Evidence is a claim, never a verdict: it is schema-checked and bounded in size before it is used.

To add a step, declare its result and the step beside each other in one of the modules below, and register a handler
in the worker's module of the same task (`grader.worker.registry`).
"""

# ruff: noqa: F403  # each module lists what it declares
from grader.protocol.base import *
from grader.protocol.changes import *
from grader.protocol.checks import *
from grader.protocol.kernels import *
from grader.protocol.messages import *
from grader.protocol.passes import *
from grader.protocol.setup import *
from grader.protocol.timing import *
