"""Exercises: check what a learner's function returns, even if it raises an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attnlab.checking.verdict import Verdict, check
from attnlab.errors import AttnlabError
from attnlab.steps import Result


def checked(
    right: Result, write: Callable[..., Mapping[str, Any]], *given: Any
) -> Verdict | AttnlabError | str:
    """Check what a learner's function returns, or describe the error that stopped it.

    Parameters
    ----------
    right : what to compare with, as `check` takes it
    write : the function, which returns a dict from names of steps to arrays
    given : its arguments
    """
    try:
        return check(write(*given), right)
    except NotImplementedError:
        return f"{write.__name__} isn't written yet."
    except AttnlabError as error:
        return error
    except Exception as error:
        return f"{write.__name__} stopped with {type(error).__name__}: {error}"
