"""`grader init`: files to start from."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from grader.catalog.own_folders import shipped
from grader.errors import UserError, printable


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one without these files.")],
) -> None:
    """Write a problem and submissions for it, to start from.

    The submissions, in C++, CUDA and Triton, have a forward and a backward and are correct: C++ on any machine, the
    others with a GPU. A pytest file grades them. Files that exist are never overwritten.

    \b
    Example:
      grader init mine
    """
    starter = shipped("starter")
    names = sorted(path.relative_to(starter) for path in starter.rglob("*.py"))
    present = [printable(folder / name) for name in names if (folder / name).exists()]
    if present:
        raise UserError(f"{present[0]} exists already; choose another folder")
    try:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(starter / name, folder / name)
            print(printable(folder / name))
    except OSError as error:
        where = printable(error.filename or folder)
        raise UserError(f"{where}: cannot be written ({error.strerror}); choose another folder") from error
    shown = printable(shlex.quote(str(folder)))
    print(
        f"next: grader grade {shown}/submissions/me/scale_silu.py --problems {shown}/problems",
        file=sys.stderr,
    )
