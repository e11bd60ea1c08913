"""The report live from the database, with progress, comparison of submissions, and submission.

Needs the extra `serve` (FastAPI and uvicorn).
"""
