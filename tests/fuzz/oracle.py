"""An independent reader of model directories and implementation of the equations.

Nothing here uses attnlab: the formats and the arithmetic are implemented from the specifications,
plainly and without regard to speed, so that a mistake isn't made twice.

What a safetensors file holds is what the library of that name reads in it, all of it at once.
Sources: GPT-2's `model.py` (equations) and `encoder.py`
(of all adjacent pairs that may be merged, the one with the lowest rank first). transformers'
`GPT2Config`, `modeling_gpt2.py` and `activations.py` for the names in config.json and of the
tensors, and for variants of GPT-2.

A directory is unsound (no reader may open it), sound (every reader must), or doubtful: it relies on
something that a reader may refuse, such as a byte order mark; if it is opened, the numbers must
still be the ones given here. What attnlab's documentation says that it refuses (numbers that are
not finite, an output matrix that is not the embedding where the config says so) is unsound.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

Array = NDArray[Any]

REALS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

# All models here are tiny. Larger files are sparse and never sound.
LARGEST_FILE = 20_000_000

# Settings that change the equations, with defaults.
FLAGS = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,  # changes only the order of steps
    "add_cross_attention": False,
    "pruned_heads": {},
    "tie_word_embeddings": True,
}
# Required settings for the equations below.
NEEDED = {"add_cross_attention": False, "pruned_heads": False}
DEFAULTS = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}

# A tensor's name, with the prefix of a wrapped model.
WRAPPED = re.compile(r"((?:\w+\.)*?)((?:wte|wpe|ln_f|lm_head|h\.\d+)\..*)", re.DOTALL)

END_OF_TEXT = "<|endoftext|>"
PIECES = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


class UnsoundError(Exception):
    """Why a directory must not be opened."""


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise UnsoundError(reason)


# Files


def content_of(path: Path) -> bytes:
    """A regular file's bytes; doesn't block on pipes."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise UnsoundError(f"{path.name}: {error.strerror}") from None
    require(stat.S_ISREG(status.st_mode), f"{path.name} is not a regular file")
    require(status.st_size <= LARGEST_FILE, f"{path.name} is too large")
    return path.read_bytes()


def parsed(text: str, name: str, doubts: list[str]) -> Any:
    """Parse JSON; a duplicate key is doubtful."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) < len(items):
            doubts.append(f"{name}: a key appears twice")
        return dict(items)

    def number(digits: str) -> int | float:
        whole = re.fullmatch(r"-?\d{1,400}", digits)  # Python's limit of digits
        value = int(digits) if whole else float(digits)
        if not abs(value) < 1e15:  # beyond the range that all JSON readers support
            doubts.append(f"{name}: the number {digits[:40]}")
        return value

    try:
        return json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=number,
            parse_float=number,
            parse_constant=number,
        )
    except (ValueError, RecursionError) as error:
        raise UnsoundError(f"{name} is not JSON: {type(error).__name__}") from None


def json_object(path: Path, doubts: list[str]) -> dict[str, Any]:
    value = parsed(utf8(path, doubts), path.name, doubts)
    require(isinstance(value, dict), f"{path.name} holds no object")
    return dict(value)


def utf8(path: Path, doubts: list[str]) -> str:
    try:
        text = content_of(path).decode("utf-8")
    except UnicodeDecodeError:
        raise UnsoundError(f"{path.name} is not UTF-8") from None
    if text.startswith("\ufeff"):
        doubts.append(f"{path.name} begins with a byte order mark")
    return text.removeprefix("\ufeff")


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# Safetensors


@dataclass(frozen=True)
class Stored:
    """A tensor in a file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def numbers(self) -> Array:
        """Its numbers in float64."""
        raw = np.frombuffer(self.data, REALS[self.dtype])
        if self.dtype == "BF16":
            raw = (raw.astype("<u4") << 16).view("<f4")
        return raw.astype(np.float64).reshape(self.shape)


def safetensors(path: Path, doubts: list[str]) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors and metadata of a file, parsed like the safetensors library."""
    content, name = content_of(path), path.name
    try:
        entries = deserialize(content)
    except SafetensorError as error:
        raise UnsoundError(f"{name}: {error}") from None
    text = content[8 : 8 + int.from_bytes(content[:8], "little")].decode("utf-8")
    header = parsed(text, name, doubts)
    if not text.startswith("{"):  # the format forbids it, the library allows white space
        doubts.append(f"{name}: white space before the header")
    if text.rstrip(" ") != text.rstrip():
        doubts.append(f"{name}: white space other than spaces ends the header")
    if re.search(r"\\u[dD][89a-fA-F]", text):
        doubts.append(f"{name}: escaped surrogates")
    metadata = header.pop("__metadata__", {})
    if metadata is None:
        doubts.append(f"{name}: metadata is null")
    if any(len(info) > 3 for info in header.values()):
        doubts.append(f"{name}: fields that the format does not know")
    tensors = {
        key: Stored(name, info["dtype"], tuple(info["shape"]), bytes(info["data"]))
        for key, info in entries
    }
    return tensors, metadata or {}


def weights(directory: Path, doubts: list[str]) -> dict[str, Stored]:
    """All tensors of a directory, whole or in shards, without `transformer.` before their names."""
    whole, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if os.path.isfile(whole):
        files, file_of_tensor = [whole.name], None
    else:
        if os.path.lexists(whole):
            doubts.append("model.safetensors is not a regular file")
        file_of_tensor = json_object(index, doubts).get("weight_map")
        require(
            isinstance(file_of_tensor, dict)
            and all(isinstance(v, str) for v in file_of_tensor.values()),
            "the index has no weight_map of texts to texts",
        )
        files = sorted(set(file_of_tensor.values()))
        require(bool(files), "the index names no file")
        for file in files:
            require(
                not file.startswith("/") and ".." not in file.split("/"),
                f"the index points outside: {file!r}",
            )
            if re.search(r"[/\\:\0]", file):
                doubts.append(f"an odd file name in the index: {file!r}")
                require("\0" not in file, "a zero in a file name")
    tensors: dict[str, Stored] = {}
    for file in files:
        try:
            results, _ = safetensors(directory / file, doubts)
        except (UnicodeEncodeError, OSError) as error:
            raise UnsoundError(f"{file!r} is not a file name: {error}") from None
        for name, stored in results.items():
            wrapped = WRAPPED.fullmatch(name)
            before, bare = wrapped.groups() if wrapped else ("", name)
            if before not in ("", "transformer."):
                doubts.append(f"{bare!r} has the prefix {before!r}")
            require(bare not in tensors, f"{bare} appears twice")
            tensors[bare] = stored
            if file_of_tensor is not None and file_of_tensor.get(name) != file:
                doubts.append(f"the index does not place {name!r} in {file!r}")
    if file_of_tensor is not None and len(file_of_tensor) != len(tensors):
        doubts.append("the index lists other tensors than the files hold")
    return tensors


# The configuration and the parameters


@dataclass(frozen=True)
class Sizes:
    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    d_mlp: int
    epsilon: float
    activation: str
    flags: dict[str, bool]

    @property
    def tied(self) -> bool:
        """Whether the output matrix is the token embedding."""
        return self.flags["tie_word_embeddings"]

    def scale(self, layer: int) -> float:
        """The divisor of a layer's scores."""
        root = math.sqrt(self.n_embd // self.n_head) if self.flags["scale_attn_weights"] else 1.0
        return root * (layer + 1 if self.flags["scale_attn_by_inverse_layer_idx"] else 1)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        D, F = self.n_embd, self.d_mlp
        block = {
            **dict.fromkeys(("ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"), (D,)),
            "attn.c_attn.weight": (D, 3 * D),
            "attn.c_attn.bias": (3 * D,),
            "attn.c_proj.weight": (D, D),
            "attn.c_proj.bias": (D,),
            "mlp.c_fc.weight": (D, F),
            "mlp.c_fc.bias": (F,),
            "mlp.c_proj.weight": (F, D),
            "mlp.c_proj.bias": (D,),
        }
        return {
            "wte.weight": (self.vocab_size, D),
            "wpe.weight": (self.n_positions, D),
            "ln_f.weight": (D,),
            "ln_f.bias": (D,),
            **{f"h.{i}.{k}": s for i in range(self.n_layer) for k, s in block.items()},
            **({} if self.tied else {"lm_head.weight": (self.vocab_size, D)}),
        }


def sizes(path: Path, doubts: list[str]) -> Sizes:
    settings = json_object(path, doubts)
    require(settings.get("model_type", "gpt2") == "gpt2", "another model_type")
    activation = settings.get("activation_function", "gelu_new")
    require(
        isinstance(activation, str) and activation in ACTIVATIONS,
        f"activation_function is {activation!r}",
    )
    flags = {}
    for key, usual in FLAGS.items():
        value = settings.get(key, usual)
        flags[key] = bool(value)
        require(flags[key] == NEEDED.get(key, flags[key]), f"{key} is {value!r}")
        if type(value) is not type(usual):
            doubts.append(f"{key} is {value!r}")
    doubts += [f"{key} is set" for key in settings if "quant" in key.lower() or "tokenizer" in key]

    def count(key: str, default: int | None) -> int | None:
        if key not in settings and default is not None:
            doubts.append(f"{key} is missing")
        value = settings.get(key, default)
        if isinstance(value, float) and value.is_integer():
            doubts.append(f"{key} is {value!r}")
            value = int(value)
        if value is None and default is None:
            return None
        require(is_count(value) and value >= 1, f"{key} is {value!r}")
        return int(value)

    counts: dict[str, Any] = {key: count(key, default) for key, default in DEFAULTS.items()}
    require(counts["n_embd"] % counts["n_head"] == 0, "n_head does not divide n_embd")
    epsilon = settings.get("layer_norm_epsilon", 1e-5)
    require(
        isinstance(epsilon, int | float) and not isinstance(epsilon, bool) and epsilon >= 0,
        f"layer_norm_epsilon is {epsilon!r}",
    )
    if not 0 < epsilon < 1:
        doubts.append(f"layer_norm_epsilon is {epsilon!r}")
    require(epsilon < 1e300, "layer_norm_epsilon is not finite")
    inner = count("n_inner", None)
    d_mlp = 4 * counts["n_embd"] if inner is None else inner
    return Sizes(**counts, d_mlp=d_mlp, epsilon=float(epsilon), activation=activation, flags=flags)


def parameters(
    tensors: dict[str, Stored], sizes: Sizes, dtype: str, positions: int, doubts: list[str]
) -> dict[str, Array]:
    """The parameters in float64, rounded to the dtype of the computation.

    Position embeddings beyond the first `positions`, and untied token embeddings, need not all be
    read, so wrong numbers in them make a directory doubtful at most.
    """
    require(4 + 12 * sizes.n_layer <= len(tensors), "tensors are missing")  # before a long list
    if sizes.tied and "lm_head.weight" in tensors:  # a shared tensor may have either name
        tensors = {"wte.weight": tensors["lm_head.weight"], **tensors}
    shapes = sizes.shapes()
    missing = [name for name in shapes if name not in tensors]
    require(not missing, f"missing: {missing[:1]}")
    tied = {}
    if sizes.tied and "lm_head.weight" in tensors:
        tied = {"lm_head.weight": shapes["wte.weight"]}
    results: dict[str, Array] = {}
    for name, shape in (shapes | tied).items():
        stored = tensors[name]
        require(stored.shape == shape, f"{name} is {stored.shape} and not {shape}")
        require(stored.dtype in REALS, f"{name} is {stored.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = stored.numbers().astype(dtype).astype(np.float64)
        used = numbers
        if name == "wpe.weight" or (name == "wte.weight" and not sizes.tied):
            used = numbers[:positions]
        require(bool(np.isfinite(used).all()), f"{name} is not finite")
        if not np.isfinite(numbers).all():
            doubts.append(f"{name} is not finite")
        results[name] = numbers
        if np.abs(used).max(initial=0) > (1e15 if dtype == "float32" else 1e150):
            doubts.append(f"squares of {name}'s numbers, in LayerNorm, may be too large")
    if tied:
        equal = np.array_equal(results["lm_head.weight"], results["wte.weight"])
        require(equal, "lm_head.weight is not wte.weight")
    for name in tensors.keys() - shapes.keys() - tied.keys():
        buffer = re.fullmatch(r"h\.(\d+)\.attn\.(bias|masked_bias)", name, re.ASCII)
        if not buffer or int(buffer[1]) >= sizes.n_layer:
            doubts.append(f"{name!r} is not a tensor of GPT-2")
    return results


# The vocabulary


def byte_symbols() -> list[str]:
    """The character that represents each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + moved.index(b)) for b in range(256)]


SYMBOLS = byte_symbols()


@dataclass
class Vocabulary:
    """Symbols with ids, and the possible lists of merges that a reader may get from the file."""

    ids: dict[str, int]
    merges: list[list[tuple[str, ...]]]

    def encoded(self, text: str, special: bool = False) -> list[list[int] | None]:
        """The ids of a text under each of `merges`; None where a token has no id."""
        return [self._encoded(text, ranks(merges), special) for merges in self.merges]

    def _encoded(
        self, text: str, rank: dict[tuple[str, ...], int], special: bool
    ) -> list[int] | None:
        results: list[int] = []
        parts = text.split(END_OF_TEXT) if special and END_OF_TEXT in self.ids else [text]
        for i, part in enumerate(parts):
            results += [self.ids[END_OF_TEXT]] if i else []
            for piece in PIECES.findall(part):
                word = tuple(SYMBOLS[byte] for byte in piece.encode("utf-8"))
                for token in merged(word, rank):
                    if token not in self.ids:
                        return None
                    results.append(self.ids[token])
        return results


def ranks(merges: list[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    return {pair: rank for rank, pair in enumerate(merges)}


def merged(word: tuple[str, ...], rank: dict[tuple[str, ...], int]) -> tuple[str, ...]:
    """A word's symbols, merged while any pair has a rank, the lowest rank first."""
    while True:
        pairs = [pair for pair in itertools.pairwise(word) if pair in rank]
        if not pairs:
            return word
        first, second = best = min(pairs, key=rank.__getitem__)
        joined: list[str] = []
        i = 0
        while i < len(word):
            if word[i : i + 2] == best:
                joined.append(first + second)
                i += 2
            else:
                joined.append(word[i])
                i += 1
        word = tuple(joined)


# Files that may select a tokenizer other than GPT-2's; these aren't implemented here.
# The directory is then doubtful.
OTHER_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "vocab.txt")
OTHER_TOKENIZERS += ("special_tokens_map.json",)


def vocabulary(directory: Path, vocab_size: int, doubts: list[str]) -> Vocabulary | None:
    """GPT-2's own tokenizer; None if a directory has files of another one."""
    others = [name for name in OTHER_TOKENIZERS if os.path.lexists(directory / name)]
    if others:
        doubts.append(f"a tokenizer of its own, {others[0]}")
        return None
    ids = json_object(directory / "vocab.json", doubts)
    require(all(map(is_count, ids.values())), "an id is not a non-negative integer")
    require(len(set(ids.values())) == len(ids), "two tokens have the same id")
    require(max(ids.values(), default=0) < vocab_size, "a token has no row of the embedding")
    if sorted(ids.values()) != list(range(vocab_size)):
        doubts.append("a row of the embedding has no token")
    if not set(SYMBOLS) <= ids.keys():
        doubts.append("a byte has no token")

    # encoder.py splits lines at any white space, and drops the first and the last line.
    # Other readers take every line that is not empty and does not begin with "#version".
    raw = utf8(directory / "merges.txt", doubts).replace("\r\n", "\n").replace("\r", "\n")
    lines = raw.split("\n")
    by_encoder = [tuple(line.split()) for line in lines[1:-1]]
    by_line = [tuple(line.split()) for line in lines if not line.startswith("#version")]
    by_line = [pair for pair in by_line if pair]
    framed = lines[0].startswith("#version") and lines[-1] == ""
    if not framed or [pair for pair in by_encoder if pair] != by_line:
        doubts.append("merges.txt has no first line with a version, or its last line is cut off")
    if any(line.split(" ") != line.split() for line in lines[1:-1]):
        doubts.append("merges.txt has other white space than one space between two symbols")
    newest, merged_symbols = -1, set()
    for pair in by_line:
        union = "".join(pair)
        if len(pair) != 2 or not {*pair, union} <= ids.keys() or ids[union] <= newest:
            doubts.append("the merges' ids do not grow from merge to merge")
            break
        newest = ids[union]
        merged_symbols.add(union)
    if ids.keys() - merged_symbols - {*SYMBOLS, END_OF_TEXT}:
        doubts.append("a token is neither a byte nor made by a merge")
    return Vocabulary(ids, [by_encoder, by_line])


# The equations


def layer_norm(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return gain * (x - mean) / np.sqrt(variance + epsilon) + bias


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def exact_gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)).astype(x.dtype)
    return 0.5 * x * (1 + erf)


def quick_gelu(x: Array) -> Array:
    return x / (1 + np.exp(-1.702 * x))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


# By transformers' names; its `activations.py` has five for the tanh form.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_accurate"), gelu),
    **dict.fromkeys(("gelu_python_tanh",), gelu),
    **dict.fromkeys(("gelu", "gelu_python"), exact_gelu),
    **dict.fromkeys(("silu", "swish"), silu),
    "quick_gelu": quick_gelu,
    "relu": relu,
}


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(
    Q: Array, K: Array, V: Array, mask: Array | None, scale: float | None = None
) -> tuple[Array, Array]:
    """Weights and context."""
    scores = Q @ np.swapaxes(K, -1, -2) / (math.sqrt(Q.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = softmax(scores)
    return weights, weights @ V


def heads_of(x: Array, n_head: int) -> Array:
    return np.stack(np.split(x, n_head, axis=-1), axis=-3)


def joined(x: Array) -> Array:
    return np.concatenate([x[..., h, :, :] for h in range(x.shape[-3])], axis=-1)


def gpt2_logits(p: dict[str, Array], sizes: Sizes, ids: list[int], dtype: str) -> Array:
    """The logits after each of the ids, computed in `dtype`."""
    p = {name: numbers.astype(dtype) for name, numbers in p.items()}
    x = p["wte.weight"][ids] + p["wpe.weight"][: len(ids)]
    causal = np.arange(len(ids))[:, None] >= np.arange(len(ids))
    for layer in range(sizes.n_layer):
        h = {n.split(".", 2)[2]: t for n, t in p.items() if n.startswith(f"h.{layer}.")}
        a = layer_norm(x, h["ln_1.weight"], h["ln_1.bias"], sizes.epsilon)
        Q, K, V = np.split(a @ h["attn.c_attn.weight"] + h["attn.c_attn.bias"], 3, axis=-1)
        heads = (heads_of(y, sizes.n_head) for y in (Q, K, V))
        _, context = attended(*heads, causal, sizes.scale(layer))
        x = x + joined(context) @ h["attn.c_proj.weight"] + h["attn.c_proj.bias"]
        m = layer_norm(x, h["ln_2.weight"], h["ln_2.bias"], sizes.epsilon)
        m = ACTIVATIONS[sizes.activation](m @ h["mlp.c_fc.weight"] + h["mlp.c_fc.bias"])
        x = x + m @ h["mlp.c_proj.weight"] + h["mlp.c_proj.bias"]
    x = layer_norm(x, p["ln_f.weight"], p["ln_f.bias"], sizes.epsilon)
    return x @ p["wte.weight" if sizes.tied else "lm_head.weight"].T


@dataclass(frozen=True)
class Range:
    """Numbers with tolerances."""

    numbers: Array
    tolerance: float

    def contains(self, others: Any) -> bool:
        others = np.asarray(others)
        if others.shape != self.numbers.shape or others.dtype.kind not in "biuf":
            return False
        return bool(np.all(np.abs(others - self.numbers) <= self.tolerance))


def in_range(compute: Any, dtype: str) -> Range | None:
    """The result of `compute` in a finer dtype, with a tolerance for rounding in `dtype`.

    The tolerance comes from the same equations in that dtype: badly conditioned numbers have wide
    ranges. None if a number or an intermediate result overflows one of the two, so that the result
    is arbitrary.
    """
    finer = {"float32": "float64", "float64": "longdouble"}[dtype]
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise", under="ignore"):
            exact, rounded = compute(finer).astype(np.float64), compute(dtype)
    except FloatingPointError:
        return None
    if not (np.isfinite(exact).all() and np.isfinite(rounded).all()):
        return None
    with np.errstate(all="ignore"):
        largest = float(np.abs(exact).max(initial=1.0))
        distance = float(np.abs(exact - rounded).max(initial=0.0))
    return Range(exact, 100 * distance + largest * (1e-4 if dtype == "float32" else 1e-10))


# A directory as a whole


@dataclass
class Model:
    """A directory that may be opened; `doubts` are reasons why a reader may refuse it."""

    sizes: Sizes
    vocabulary: Vocabulary | None
    parameters: dict[str, Array]
    doubts: list[str] = field(default_factory=list)

    def logits(self, ids: list[int], dtype: str) -> Range | None:
        return in_range(lambda d: gpt2_logits(self.parameters, self.sizes, ids, d), dtype)


def read(directory: Path, dtype: str, positions: int) -> Model:
    """A directory's model; only its first positions will be used.

    Raises
    ------
    UnsoundError
        If the directory must not be opened.
    """
    doubts: list[str] = []
    config = sizes(directory / "config.json", doubts)
    stored = parameters(weights(directory, doubts), config, dtype, positions, doubts)
    words = vocabulary(directory, config.vocab_size, doubts)
    return Model(config, words, stored, doubts)
