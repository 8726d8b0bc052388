"""Exercises: check what a learner's function returns, even if it raises an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attnlab.checking.verdict import Verdict, check
from attnlab.errors import AttnlabError
from attnlab.steps import Result
from attnlab.support.messages import Message


def checked(
    expected: Result, write: Callable[..., Mapping[str, Any]], *arguments: Any
) -> Verdict | str:
    """Check what a learner's function returns, or describe the error that stopped it."""
    try:
        return check(write(*arguments), expected)
    except NotImplementedError:
        return Message("{name} isn't written yet.", name=write.__name__)
    except AttnlabError as error:
        return str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Message("{name} stopped with {error}", name=write.__name__, error=reason)
