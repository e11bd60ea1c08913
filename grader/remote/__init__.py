"""The referee's end of a worker: its sandbox, its control socket, the memory that both see. TRUSTED.

Everything that comes back through here is evidence: checked for form, copied to private memory, believed by nobody.
"""

from grader.remote.script import Finding, Script, TensorSpec
from grader.remote.timeline import TimelineScript
from grader.remote.worker import RemoteWorker, WorkerLost, WorkerOptions

__all__ = ["Finding", "RemoteWorker", "Script", "TensorSpec", "TimelineScript", "WorkerLost", "WorkerOptions"]
