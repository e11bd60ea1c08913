"""Fixtures of tests of served pages: those of the pages."""

from tests.report.conftest import browser, site

__all__ = ["browser", "site"]
