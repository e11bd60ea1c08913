"""The pages of the report, live from the database, with what only a server can do: progress, comparison, submission.

Needs the extra `serve` (FastAPI and uvicorn).
"""
