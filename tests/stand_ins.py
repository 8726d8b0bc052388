"""Arguments of other libraries, and arguments that fail."""

from typing import Any


class Contrary:
    """An object that raises on any access."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("no array")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")

    def __repr__(self) -> str:
        raise RuntimeError("no words")
