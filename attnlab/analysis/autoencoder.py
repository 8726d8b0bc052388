"""Sparse autoencoders and their files: a vector as a sum of a few features and an error."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlab import equations
from attnlab.analysis.base import Trace, TraceSequence, fingerprint
from attnlab.analysis.features import FeatureEvaluation
from attnlab.checkpoints.checkpoint import read_tensors
from attnlab.equations import Array, mean
from attnlab.errors import (
    CheckpointError,
    ConfigError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    quoted,
)
from attnlab.steps import at, read_only
from attnlab.support.checks import is_integer
from attnlab.support.files import FilePath, as_path, make_directory, read_json, write_atomically
from attnlab.support.tables import Document, Heading

# The directory of the pocket model's autoencoder, which is part of the package.
POCKET_AUTOENCODER = Path(__file__).parent.parent / "pocket" / "sparse_autoencoder"

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"

# The version of SAELens's format that `save` writes: the first with `metadata`.
SAELENS_VERSION = "6.0.0"

# TransformerLens's names of a block's steps, which SAELens uses, and their paths in a block.
HOOKS = {
    "hook_resid_pre": "input",
    "hook_resid_mid": "mid",
    "hook_resid_post": "output",
    "hook_attn_out": "attention.output",
    "hook_mlp_out": "mlp.output",
    "attn.hook_z": "attention.concat",
    "mlp.hook_pre": "mlp.hidden",
    "mlp.hook_post": "mlp.activated",
}

# How SAELens records that the model it was trained on had a centred residual stream.
CENTRED = {"center_writing_weights": True}

# Settings that SAELens 6 renamed, by their old names.
RENAMED = {
    "hook_point": "hook_name",
    "hook_point_head_index": "hook_head_index",
    "activation_fn_str": "activation_fn",
}

# Settings with their supported values, the default first.
SETTINGS = {
    "architecture": ("standard", "topk", "jumprelu"),
    "activation_fn": ("relu", "topk"),
    "normalize_activations": ("none", None, False, "layer_norm", "constant_norm_rescale"),
    "hook_head_index": (None,),
    "apply_b_dec_to_input": (True, False),
}


@dataclass(frozen=True, eq=False, repr=False)
class SparseAutoencoder(Document):
    """A sparse autoencoder, as `attnlab.open_sparse_autoencoder` opens it.

    activations = f((x - b_dec) W_enc + b_enc),  x = activations W_dec + b_dec + error

    f(z) is ReLU(z) for "standard". For "topk" it is ReLU(z) for the k largest z and 0 for the
    others; for "jumprelu", ReLU(z) where z > threshold and 0 elsewhere. A feature is a column of
    W_enc, which reads, with a row of W_dec, which it writes.

    Attributes
    ----------
    W_enc, b_enc : (D, n) and (n,)
    W_dec, b_dec : (n, D) and (D,)
    architecture : "standard", "topk" or "jumprelu"
    path : the path of x, the step that it was trained on, such as "blocks.0.output"; "" if unknown
    k : the number of active features of "topk"
    threshold : (n,), of "jumprelu"
    subtracts_bias : whether b_dec is subtracted from x, as above
    norm : "layer_norm" if x is first normalised to mean 0 and standard deviation 1,
        "constant_norm_rescale" if rescaled to norm √D, or "none"; the reconstruction is scaled back
    centres : whether the mean of each x is subtracted first and added back at the end, since the
        model it was trained on had a centred residual stream (`center_writing_weights` of
        TransformerLens)
    model : a digest of the model that it was trained on; "" if unknown

    Notes
    -----
    Source: Bricken et al., "Towards Monosemanticity" (2023); Cunningham et al., "Sparse
    Autoencoders Find Highly Interpretable Features in Language Models" (2023). For "topk", Gao et
    al., "Scaling and evaluating sparse autoencoders" (2024); for "jumprelu", Rajamanoharan et al.,
    "Jumping Ahead" (2024). The order of steps is SAELens's.
    """

    W_enc: Array
    b_enc: Array
    W_dec: Array
    b_dec: Array
    architecture: str
    path: str = ""
    k: int | None = None
    threshold: Array | None = None
    subtracts_bias: bool = True
    norm: str = "none"
    centres: bool = False
    model: str = ""

    def encode(self, x: Array) -> Array:
        """The features' activations, (..., D) -> (..., n)."""
        # SAELens adds the epsilon of layer_norm here, and not in `decode`.
        epsilon = 1e-5 if self.norm == "layer_norm" else 0.0
        normal = (x - self.shift(x)) / (self.scale(x) + epsilon)
        W_enc, b_enc, b_dec = (
            array.astype(x.dtype) for array in (self.W_enc, self.b_enc, self.b_dec)
        )
        z = equations.affine(normal - b_dec if self.subtracts_bias else normal, W_enc, b_enc)
        if self.k is not None:
            return top_k(z, self.k)
        active = equations.relu(z)
        return active if self.threshold is None else active * (z > self.threshold)

    def decode(self, activations: Array, x: Array) -> Array:
        """The reconstruction of x from activations, (..., n) -> (..., D)."""
        W_dec, b_dec = self.W_dec.astype(x.dtype), self.b_dec.astype(x.dtype)
        return equations.affine(activations, W_dec, b_dec) * self.scale(x) + self.shift(x)

    def shift(self, x: Array) -> Array:
        """The number subtracted from x and added back to its reconstruction, (..., 1)."""
        is_centred = self.centres or self.norm == "layer_norm"
        return mean(x) if is_centred else np.zeros_like(x[..., :1])

    def scale(self, x: Array) -> Array:
        """The number that divides x and multiplies its reconstruction, (..., 1)."""
        if self.norm == "none":
            return np.ones_like(x[..., :1])
        if self.norm == "layer_norm":  # PyTorch's default divides by D - 1
            return np.asarray(x.std(axis=-1, ddof=1, keepdims=True))
        scale = np.sqrt(mean(np.square(x)))
        return np.where(scale == 0, np.ones_like(scale), scale)

    def read(self, trace: Trace, path: str | None) -> tuple[str, Array]:
        """Return the path and the value x of the step to encode, (..., D).

        Parameters
        ----------
        path : None for the step that it was trained on
        """
        path, D = self.path if path is None else path, len(self.b_dec)
        if path == "":
            raise InvalidValueError(
                "the autoencoder's file doesn't say what it reads. Give path=, such as "
                "'blocks.0.output'"
            )
        try:
            x = at(trace, path)
        except InvalidValueError as error:
            if path != self.path:
                raise
            raise InvalidValueError(
                "the autoencoder's hook_name in {config} isn't a step here: {error}. Give path= "
                "if the step has another name",
                config=CONFIG,
                error=error,
            ) from None
        if np.shape(x)[-1:] != (D,):
            raise InvalidValueError(
                "the autoencoder reads vectors of {D} numbers; {path} has shape {shape}",
                D=D,
                path=path,
                shape=np.shape(x),
            )
        if self.model not in ("", fingerprint(trace)):
            raise InvalidValueError("the autoencoder was trained for another model")
        return path, x

    def evaluate(self, traces: TraceSequence, path: str | None = None) -> FeatureEvaluation:
        """Measure how much of the model the features explain, and how sparse they are.

        Parameters
        ----------
        traces : `model.trace(texts)`, of texts that it wasn't trained on
        path : the path of x; None for the step that it was trained on
        """
        if not isinstance(traces, TraceSequence):
            raise InvalidTypeError(
                "traces must be model.trace([text, ...]), of several texts; got {kind}",
                kind=type(traces).__name__,
            )
        return FeatureEvaluation(self, traces, path)

    def save(self, directory: FilePath) -> None:
        """Write `cfg.json` and `sae_weights.safetensors`, which SAELens opens too."""
        from safetensors.numpy import save  # here, so that `import attnlab` is quick

        folder = as_path(directory, "directory")
        make_directory(folder)
        names = ("W_enc", "b_enc", "W_dec", "b_dec")
        tensors = {name: np.array(getattr(self, name), "f4", order="C") for name in names}
        if self.threshold is not None:
            tensors["threshold"] = self.threshold
        hook = rename_step(self.path, {path: hook for hook, path in HOOKS.items()})
        config = {
            "architecture": self.architecture,
            "d_in": len(self.b_dec),
            "d_sae": len(self.b_enc),
            **({} if self.k is None else {"k": self.k}),
            "dtype": "float32",
            "device": "cpu",
            "apply_b_dec_to_input": self.subtracts_bias,
            "normalize_activations": self.norm,
            "reshape_activations": "hook_z" if hook.endswith("hook_z") else "none",
            "metadata": {
                "sae_lens_version": SAELENS_VERSION,
                "hook_name": hook,
                "model_from_pretrained_kwargs": CENTRED if self.centres else {},
                "attnlab_model": self.model,
            },
        }
        # The config is removed first and written last, so that it never describes other weights.
        with suppress(OSError):  # reported by `write_atomically`
            (folder / CONFIG).unlink()
        write_atomically(folder / WEIGHTS, save(tensors))
        write_atomically(folder / CONFIG, f"{json.dumps(config, indent=2)}\n".encode())

    def pieces(self) -> Iterator[str]:
        n, D = self.W_dec.shape
        step = f" of {self.path}" if self.path else ""
        k = "" if self.k is None else f", k = {self.k}"
        yield Heading(f"Sparse autoencoder{step}: {n} features, width {D}, {self.architecture}{k}")


def top_k(z: Array, k: int) -> Array:
    """ReLU of the k largest numbers of each row, 0 for the others, (..., n)."""
    top = np.argpartition(z, -k, axis=-1)[..., -k:]
    activations = np.zeros_like(z)
    np.put_along_axis(activations, top, equations.relu(np.take_along_axis(z, top, -1)), -1)
    return activations


def open_sparse_autoencoder(path: FilePath) -> SparseAutoencoder:
    """Open a sparse autoencoder that SAELens or `SparseAutoencoder.save` wrote.

    Supported architectures are "standard", "topk" and "jumprelu". SAELens saves a trained BatchTopK
    as "jumprelu".

    Most of SAELens's autoencoders were trained on texts that start with `<|endoftext|>`, which
    `model.trace` doesn't add, and some on weights that TransformerLens had changed. If the error is
    large, check these first. Centring (`center_writing_weights`) is accounted for if `cfg.json`
    mentions it.

    Parameters
    ----------
    path : a directory with `cfg.json` and `sae_weights.safetensors`, or "pocket" for the pocket
        model's

    Examples
    --------
    >>> sae = attnlab.open_sparse_autoencoder("pocket")
    >>> trace.features(sae)
    """
    is_pocket = isinstance(path, str) and path == "pocket"
    folder = POCKET_AUTOENCODER if is_pocket else as_path(path, "path")
    config_file, weights_file = folder / CONFIG, folder / WEIGHTS
    for file in (config_file, weights_file):
        if not os.path.isfile(file):
            raise MissingFileError(
                "{file} not found. Give the directory with {config} and {weights}",
                file=file,
                config=CONFIG,
                weights=WEIGHTS,
            )
    settings, tensors = read_settings(config_file), read_tensors(weights_file)
    if "scaling_factor" in tensors and np.all(tensors["scaling_factor"] == 1):
        del tensors["scaling_factor"]  # written by old versions; 1 has no effect
    is_topk, k = settings["architecture"] == "topk", settings["k"]
    n = check_shapes(weights_file, tensors, settings["architecture"])
    if is_topk and not (is_integer(k) and 1 <= k <= n):
        raise ConfigError(
            "{file}: k must be from 1 to {n}; got {k}", file=config_file, n=n, k=quoted(k)
        )
    if is_topk and settings.get("rescale_acts_by_decoder_norm"):
        # SAELens ranks z times the norm of the feature's row of W_dec: fold the norms into W_enc.
        norms = np.sqrt(np.square(tensors["W_dec"]).sum(axis=-1))
        norms[norms == 0] = 1  # a feature that writes nothing
        tensors["W_enc"], tensors["b_enc"] = tensors["W_enc"] * norms, tensors["b_enc"] * norms
        tensors["W_dec"] = tensors["W_dec"] / norms[:, np.newaxis]
    training_model = object_in(settings, "model_from_pretrained_kwargs", config_file)
    return SparseAutoencoder(
        **{name: read_only(tensor) for name, tensor in tensors.items()},
        architecture=settings["architecture"],
        path=rename_step(str(settings.get("hook_name") or ""), HOOKS),
        k=k if is_topk else None,
        subtracts_bias=settings["apply_b_dec_to_input"],
        norm=settings["normalize_activations"] or "none",
        centres=CENTRED.items() <= training_model.items(),
        model=str(settings.get("attnlab_model") or ""),
    )


def read_settings(file: Path) -> dict[str, Any]:
    """Read and check a `cfg.json` of any version of SAELens; the names are version 6's."""
    content = read_json(file, ConfigError)
    settings = {RENAMED.get(name, name): value for name, value in content.items()}
    settings = object_in(settings, "metadata", file) | settings
    for name, supported in SETTINGS.items():
        if settings.setdefault(name, supported[0]) not in supported:
            raise ConfigError(
                "{file}: {name} {value} isn't supported; supported are {supported}",
                file=file,
                name=name,
                value=quoted(settings[name]),
                supported=", ".join(map(repr, supported)),
            )
    settings.setdefault("k", None)
    if settings["activation_fn"] == "topk":  # before version 6
        k = object_in(settings, "activation_fn_kwargs", file).get("k")
        settings |= {"architecture": "topk", "k": k}
    return settings


def object_in(settings: dict[str, Any], name: str, file: Path) -> dict[str, Any]:
    """A setting that is a JSON object; empty if it is missing."""
    value = settings.get(name) or {}
    if not isinstance(value, dict):
        raise ConfigError("{file}: {name} must be a JSON object", file=file, name=name)
    return value


def check_shapes(file: Path, tensors: dict[str, Array], architecture: str) -> int:
    """Raise unless names and shapes are an autoencoder's; return the number of features."""
    shape = np.shape(tensors.get("W_dec", ()))
    n, D = shape if len(shape) == 2 else (0, 0)
    shapes = {"W_dec": (n, D), "W_enc": (D, n), "b_dec": (D,), "b_enc": (n,)}
    if architecture == "jumprelu":
        shapes["threshold"] = (n,)
    actual = {name: tensors[name].shape for name in sorted(tensors)}
    if actual != shapes or not n or not D:
        raise CheckpointError(
            "{file} must have tensors {shapes} that fit together; got shapes {actual}",
            file=file,
            shapes=", ".join(sorted(shapes)),
            actual=quoted(actual, 300),
        )
    return n


def rename_step(path: str, names: dict[str, str]) -> str:
    """Rename the step of a block in a path; other paths are returned unchanged."""
    match = re.fullmatch(r"(blocks\.\d+\.)(.+)", path)
    return f"{match[1]}{names[match[2]]}" if match and match[2] in names else path
