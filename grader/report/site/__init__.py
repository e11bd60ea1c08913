"""A static site of the verdicts: no network, no server, opens from a folder."""

from grader.report.site.write import Written, write_site

__all__ = ["Written", "write_site"]
