"""Grades on a server, from a program or from its event loop."""

from grader.client.blocking import Client
from grader.client.event_loop import AsyncClient

__all__ = ["AsyncClient", "Client"]
