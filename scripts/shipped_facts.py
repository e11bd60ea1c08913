#!/usr/bin/env python3
"""Write problems/facts.json: the facts about the shipped problems, so that listing them needs no torch.

python -m scripts.shipped_facts
"""

from __future__ import annotations

import json
from pathlib import Path

from grader.catalog.facts import facts
from grader.catalog.known_facts import FACTS_FILE
from grader.catalog.problems import find_problems

PROBLEMS = Path(__file__).parents[1] / "problems"


def written() -> str:
    """The file's content: facts by the hash of a problem's source, without its path."""
    about = {problem.source_hash: facts(problem) for problem in find_problems().problems.values()}
    lines = {key: one.model_copy(update={"path": ""}).model_dump(mode="json") for key, one in about.items()}
    return json.dumps(lines, indent=1) + "\n"


if __name__ == "__main__":
    (PROBLEMS / FACTS_FILE).write_text(written())
