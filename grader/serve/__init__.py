"""Serves the report from the database: pages, live progress, comparisons, a JSON API and submissions.

Needs the extra `serve` (FastAPI and uvicorn).
"""
