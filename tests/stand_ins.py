"""Arguments of other libraries, and arguments that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Contrary:
    """An object that raises on any access."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("no array")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Dtype:
    """A stand-in for a PyTorch dtype, whose str has the module's name."""

    __module__ = "torch"

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """A stand-in for a PyTorch tensor."""

    def __init__(
        self, values: NDArray[Any], dtype: str = "", gradients: bool = False, device: str = "cpu"
    ) -> None:
        self.values, self.gradients, self.device = values, gradients, device
        self.dtype = Dtype(dtype or str(values.dtype))
        self.shape = values.shape

    def detach(self) -> Tensor:
        return Tensor(self.values, self.dtype.name, False, self.device)

    def cpu(self) -> Tensor:
        if self.device == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return Tensor(self.values, self.dtype.name, self.gradients)

    def item(self) -> Any:
        return self.values.item()

    def float(self) -> Tensor:
        return Tensor(self.values.astype(np.float32), "float32", self.gradients, self.device)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self.gradients:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.device != "cpu":
            raise TypeError(f"can't convert {self.device} device type tensor to numpy.")
        if self.dtype.name == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values if dtype is None else self.values.astype(dtype)

    def numpy(self) -> NDArray[Any]:
        return self.__array__()
