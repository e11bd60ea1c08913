"""The referee's end of a worker: its sandbox, its control socket, the memory that both see. TRUSTED.

Everything that comes back through here is evidence: checked for form, copied to private memory, believed by nobody.
"""

from grader.executor.client import WorkerClient, WorkerLost, WorkerOptions
from grader.executor.gpu_timeline import TimelineJob
from grader.executor.job import JobBuilder, JobResult, TensorSpec

__all__ = ["JobBuilder", "JobResult", "TensorSpec", "TimelineJob", "WorkerClient", "WorkerLost", "WorkerOptions"]
