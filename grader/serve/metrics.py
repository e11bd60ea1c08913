"""The page /metrics, in the format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from db import Store
from db.runs import at_work
from grader.errors import printable
from grader.serve.service import GradingService
from grader.serve.snapshot import Snapshots

PATH = "/metrics"


class _Figures(Collector):
    """Reads everything when it is asked, so that nothing is counted twice after a restart."""

    def __init__(self, store: Store, snapshots: Snapshots, service: GradingService | None) -> None:
        self._store, self._snapshots, self._service = store, snapshots, service

    def collect(self) -> Iterator[Metric]:
        verdicts = CounterMetricFamily("grader_verdicts", "Verdicts in the database.", labels=("status", "device_name"))
        counts = Counter((str(row.status), row.device_name) for row in self._snapshots.current().rows)
        for names, count in sorted(counts.items()):
            verdicts.add_metric([printable(name) for name in names], count)
        yield verdicts
        yield from self._graders()
        if self._service is not None:
            waiting, under_way = self._service.waiting, self._service.under_way
            yield GaugeMetricFamily("grader_lines_waiting", "Lines of batches that wait.", value=waiting)
            yield GaugeMetricFamily("grader_lines_under_way", "Lines that are being graded.", value=under_way)
            fault = float(self._service.fault is not None)
            yield GaugeMetricFamily("grader_fault", "1 if this server cannot grade any more.", value=fault)

    def _graders(self) -> Iterator[Metric]:
        """Metrics of every run that grades with this database."""
        graded = GaugeMetricFamily("grader_run_graded", "Verdicts of a run that grades.", labels=("run",))
        failed = GaugeMetricFamily("grader_run_failed", "Its gradings that failed or ended early.", labels=("run",))
        rate = GaugeMetricFamily("grader_run_rate", "Its verdicts per second of late.", labels=("run",))
        left = GaugeMetricFamily("grader_run_left", "What it has still to grade.", labels=("run",))
        workers = GaugeMetricFamily("grader_workers", "Its GPUs or processes.", labels=("run", "state"))
        of_worker = GaugeMetricFamily("grader_worker_graded", "Verdicts of one of them.", labels=("run", "worker"))
        for one in at_work(self._store):
            if one.work is None:
                continue
            run, work = str(one.run), one.work
            graded.add_metric([run], work.graded)
            failed.add_metric([run], work.failed)
            if work.rate is not None:
                rate.add_metric([run], work.rate)
            if work.left is not None:
                left.add_metric([run], work.left)
            for state, count in Counter(worker.state for worker in work.workers).items():
                workers.add_metric([run, state], count)
            for worker in work.workers:
                of_worker.add_metric([run, printable(worker.name)], worker.graded)
        yield from (graded, failed, rate, left, workers, of_worker)


def metrics(store: Store, snapshots: Snapshots, service: GradingService | None) -> APIRouter:
    """The route; without a `service`, the server does not grade itself."""
    router = APIRouter(include_in_schema=False)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(store, snapshots, service))

    @router.get(PATH)
    def page() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
