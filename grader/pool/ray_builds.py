"""Builds as tasks on any CPU of a Ray cluster, whose result the object store brings to the GPU."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from grader.catalog.requests import Request
from grader.errors import GraderError
from grader.machine.backends import backend
from grader.machine.toolchain import find_toolchain
from grader.options import GraderOptions
from grader.verdict.models import Submission

if TYPE_CHECKING:
    from grader.grading.resources import Resources

COMPILED = {"cuda", "cpp"}
"""Languages with something to build before the first call."""
BUILD_CPUS = 2
"""One build keeps two cores busy."""
MARGIN_SECONDS = 60.0
"""Time for a task to start a sandbox, beyond the limit of a build. A choice."""

log = logging.getLogger(__name__)


class Bundle(NamedTuple):
    """The extensions of a submission as a node built them."""

    toolchain_hash: str
    content: bytes | None
    """None if nothing was built, or nothing that could be kept."""


class BuildTasks:
    """Starts a task for each request whose device builds apart."""

    def __init__(self, ray: Any, options: GraderOptions) -> None:
        self._options = options.model_dump_json()
        self._task = ray.remote(build).options(num_cpus=BUILD_CPUS, max_retries=1)

    def start(self, request: Request) -> list[Any]:
        """A reference to the bundle; an empty list if there is nothing to build."""
        if not backend(request.device).builds_apart or not COMPILED & set(request.languages):
            return []
        return [self._task.remote(self._options, TypeAdapter(Request).dump_json(request))]


def build(options: str, request: bytes) -> Bundle:
    """Build in a sandbox of this node. A failed build fails again where the submission is graded."""
    from grader.grading.stopped import Stopped

    given = TypeAdapter(Request).validate_json(request)
    resources = _resources(options)
    with suppress(Stopped, GraderError):
        resources.build_apart(given.submission, given.device)
    path = resources.cache.get(given.submission)
    return Bundle(find_toolchain().hash, path.read_bytes() if path else None)


def keep_bundle(reference: Any, submission: Submission, options: GraderOptions) -> bool:
    """Put a bundle into this node's build cache, if the same toolchain made it; whether it is there."""
    import ray

    from grader.grading.build import BuildCache

    try:
        bundle: Bundle = ray.get(reference, timeout=options.limits.build + MARGIN_SECONDS)
    except ray.exceptions.RayError as error:
        log.info("the build of %s was lost: %s", submission.name, type(error).__name__)
        return False
    toolchain_hash = find_toolchain().hash
    if bundle.content is None or bundle.toolchain_hash != toolchain_hash:
        return False
    cache = BuildCache(options.build_cache, toolchain_hash)
    if cache.get(submission) is None:
        cache.put(submission, bundle.content)
    return cache.get(submission) is not None


@cache
def _resources(options: str) -> Resources:
    """A sandbox and a worker template, kept for the next task of this process."""
    from grader.grading.resources import Resources

    given = GraderOptions.model_validate_json(options)
    return Resources(given.sandbox, given.build_cache, given.limits)
