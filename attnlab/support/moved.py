"""Import paths of earlier versions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

FOLDERS = {
    "support": "checks console files names tables",
    "text": "tokenizer tokens",
    "forward": "config edits fast functional gradients parameters products",
    "checkpoints": "checkpoint hub",
    "model": "explorer generation sampling trace",
    "views": "pictures",
    "checking": "figures",
}
MOVED = {
    f"attnlab.{name}": f"attnlab.{folder}.{name}"
    for folder, names in FOLDERS.items()
    for name in names.split()
} | {
    "attnlab.chain": "attnlab.forward.attention",
    "attnlab.comparison": "attnlab.checking.comparison",
}


class MovedModules:
    """Import a moved module under its old name, as the same module object.

    The finder and loader has no base class: those in `importlib.abc` are slow to import.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(MOVED[spec.name])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it
