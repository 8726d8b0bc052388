"""Checkpoints as files: what is read and when, and what is refused."""

import contextlib
import json
import math
import os
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE
from files import (
    INDEX,
    WEIGHTS,
    Tensors,
    change_config,
    change_tensors,
    copy_model,
    put_tensors,
)
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from attnlab import GPT2, GPT2Config, Tokenizer, Trace
from attnlab.checkpoints.checkpoint import Checkpoint, tensor_name
from attnlab.errors import (
    AttnlabError,
    CheckpointError,
    InvalidValueError,
    MissingFileError,
    UnknownNameError,
    VocabularyError,
)
from attnlab.forward.config import LARGEST_SIZES
from attnlab.forward.parameters import ParameterVector, parameter_count, stored_shapes
from attnlab.support.formats import CONFIG

PROMPT = "the hen in a thin inn"

# The tensors of a block.
IN_BLOCK = (
    *("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias"),
    *("attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias"),
    *("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"),
)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    return copy_model("odd", tmp_path / "odd")


@pytest.fixture
def one_head(tmp_path: Path) -> Path:
    return copy_model("one_head", tmp_path / "one_head")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return copy_model("sharded", tmp_path / "sharded")


def tensor_shapes(config: GPT2Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor in the files of a model with a tied output matrix."""
    return {tensor_name(path): shape for path, shape in stored_shapes(config).items()}


def trace(directory: Path, **options: Any) -> Trace:
    return GPT2.from_pretrained(directory, **options).trace(PROMPT)


def refusal(
    directory: Path, error: type[Exception] | tuple[type[Exception], ...] = CheckpointError
) -> str:
    """The error message of opening a model."""
    with pytest.raises(error) as caught:
        GPT2.from_pretrained(directory)
    return str(caught.value)


# What is refused


def without_prefix(tensors: Tensors) -> Tensors:
    return {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}


def without(tensors: Tensors, dropped: str) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != dropped}


SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]

Damage = Callable[[Path], object]


def removed(*names: str) -> Damage:
    return lambda directory: [(directory / name).unlink() for name in names]


def content(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change a file's bytes."""
    return lambda directory: (directory / name).write_bytes(change((directory / name).read_bytes()))


def with_header(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    """Change a safetensors file's header, and its length accordingly."""

    def damage(content: bytes) -> bytes:
        end = 8 + int.from_bytes(content[:8], "little")
        header = change(content[8:end].decode()).encode()
        return len(header).to_bytes(8, "little") + header + content[end:]

    return damage


def settings(**changed: object) -> Damage:
    return lambda directory: change_config(directory, **changed)


def added(tensors: Tensors) -> Damage:
    return lambda directory: put_tensors(directory, tensors)


def renamed(change: Callable[[Tensors], Tensors]) -> Damage:
    return lambda directory: change_tensors(directory, change)


def index(name: object) -> Damage:
    """Name another file instead of the first shard, which is moved there if possible."""

    def damage(directory: Path) -> None:
        file = str(name).format(absolute=directory.parent / "x") if isinstance(name, str) else name
        with contextlib.suppress(OSError, ValueError):
            if isinstance(file, str) and re.search(r"[/\\:]", file):
                (directory / "sub").mkdir()
                (directory / SHARDS[0]).rename(directory / file)
        text = (directory / INDEX).read_text().replace(f'"{SHARDS[0]}"', json.dumps(file))
        (directory / INDEX).write_text(text)

    return damage


def shift_one_tensor(header: str) -> str:
    entries = json.loads(header)
    start, end = entries["transformer.wpe.weight"]["data_offsets"]
    entries["transformer.wpe.weight"]["data_offsets"] = [start + 4, end + 4]
    return json.dumps(entries)


def without_weights(directory: Path) -> None:
    """Weights in a pickle are reported before a wrong config, or a tokenizer that is missing."""
    (directory / WEIGHTS).rename(directory / "pytorch_model.bin")
    (directory / CONFIG).write_text('{"model_type": "gpt2"}')
    (directory / "vocab.json").unlink()


def directory_of_weights(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    (directory / WEIGHTS).mkdir()


def two_tokens_more(directory: Path) -> None:
    (directory / "added_tokens.json").write_text('{"<|pad|>": 263, "<|x|>": 264}')


def twice_in_shards(directory: Path) -> None:
    first, _, last = (directory / shard for shard in SHARDS)
    save_file(load_file(last) | {"wte.weight": load_file(first)["transformer.wte.weight"]}, last)


def lora(tensors: Tensors) -> Tensors:
    name = "transformer.h.0.attn.c_attn"
    tensors[f"{name}.base_layer.weight"] = tensors.pop(f"{name}.weight")
    tensors[f"{name}.lora_A.default.weight"] = np.zeros((2, 35), "f4")
    return {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}


def llama(_: Tensors) -> Tensors:
    names = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(20)]
    return {name: np.zeros(3, "f4") for name in ("model.embed_tokens.weight", *names)}


def five_problems(tensors: Tensors) -> None:
    del tensors["transformer.ln_f.bias"]
    del tensors["transformer.h.2.attn.c_attn.bias"]
    tensors["transformer.h.0.mlp.c_fc.weight"] = np.zeros((140, 35), "f4")
    tensors["adapter.weight"] = np.zeros((2, 35), "f4")
    tensors["transformer.h.1.ln_2.weight"] = np.ones(35, "i8")


LFS_POINTER = b"""version https://git-lfs.github.com/spec/v1
oid sha256:248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707
size 548105171
"""
NO_SAFETENSORS = "isn't a safetensors file"

# Damage to `model.safetensors`.
UNSOUND: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda x: b"", "truncated"),
    "web page": (lambda x: b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", NO_SAFETENSORS),
    "Git LFS pointer": (lambda x: LFS_POINTER, "run `git lfs pull`"),
    "7 bytes": (lambda x: x[:7], "truncated"),
    "last byte missing": (lambda x: x[:-1], "truncated"),
    "a byte too many": (lambda x: x + b"\0", NO_SAFETENSORS),
    "a header of 2^63 bytes": (lambda x: b"\0" * 7 + b"\x80" + x[8:], "truncated"),
    "a header that is a list": (with_header(lambda header: "[]"), NO_SAFETENSORS),
    "tensors that overlap": (with_header(shift_one_tensor), NO_SAFETENSORS),
    "a shape that lies": (
        with_header(lambda header: header.replace("[17,35]", "[17,34]")),
        NO_SAFETENSORS,
    ),
    "a header of 2 MB": (with_header(lambda header: header + " " * 2_000_000), "header of 2,00"),
    "an unknown dtype": (
        with_header(lambda header: header.replace('"F32"', '"F31"', 1)),
        NO_SAFETENSORS,
    ),
}

# Names that resemble those of task heads and of mask buffers.
OTHER_PREFIXES = ("encoder.", "decoder.transformer.", "Module.", "transformer_")
OTHER_NAMES = (
    *("scores.weight", "score", "h.0.score.weight", "v_head_2.weight"),
    *("h.0.attn.bias.x", "h.x.attn.bias", "attn.bias", "h.0.attn.masked_biases", "x.h.0.attn.bias"),
)
SHORT_DTYPES = {"int64": "I64", "int32": "I32", "uint16": "U16", "uint8": "U8", "bool": "BOOL"}
OUTSIDE = ("../x", "{absolute}", "sub/x", "C:\\x", "..\\x", "sub/../x", "C:x", "x:stream")
INVALID_INDEX = {
    "can't be read as JSON": (b"", b"shards", b'{"weight_map": ', b"[" * 100_000),
    "can't be read": (b'{"weight_map": "\xff"}',),
    "must be a JSON object": (b"[]", b"null"),
    "must have a weight_map": (
        *(b"{}", b'{"weight_map": null}', b'{"weight_map": ["model-00001-of-00003.safetensors"]}'),
        *(b'{"weight_map": {"a": ["model"]}}', b'{"weight_map": {"a": "x", "b": 3}}'),
    ),
}

Case = tuple[Damage, type[AttnlabError], tuple[str, ...]]


def case(damage: Damage, *words: str, error: type[AttnlabError] = CheckpointError) -> Case:
    """Damage, the error, and words in its message."""
    return damage, error, words


def missing(damage: Damage, *words: str) -> Case:
    return case(damage, *words, error=MissingFileError)


def prefixed(prefix: str) -> Damage:
    return renamed(lambda x: {prefix + name: tensor for name, tensor in without_prefix(x).items()})


def of_dtype(dtype: str) -> Damage:
    return added({"transformer.h.1.mlp.c_fc.bias": np.ones(140, dtype)})


IN_ODD = [
    *(missing(removed(name), name) for name in (CONFIG, "vocab.json", "merges.txt", WEIGHTS)),
    missing(without_weights, "pytorch_model.bin", "save_pretrained"),
    missing(directory_of_weights, WEIGHTS),
    *(case(content(WEIGHTS, change), WEIGHTS, words) for change, words in UNSOUND.values()),
    *(case(of_dtype(x), f"is {y}, expected one of F64,") for x, y in SHORT_DTYPES.items()),
    *(case(added({x: np.zeros((1, 1, 17, 17))}), f"unexpected: {x}") for x in OTHER_NAMES),
    case(added({"lm_head.weight": np.zeros((262, 35))}), "is [262, 35], expected [263, 35]"),
    case(added({"h.1.ln_1.bias": np.zeros(35)}), "h.1.ln_1.bias appears twice"),
    case(settings(n_layer=4), "don't match its config", "missing: h.3.ln_1.weight"),
    case(settings(n_layer=2), "unexpected: h.2."),
    case(settings(n_layer=999), "missing: h.3.ln_1.weight, h.3", f" {12 * 996 - 12:,} more"),
    case(settings(n_positions=18), "wpe.weight is [17, 35], expected [18, 35]"),
    case(settings(n_inner=139), "h.2.mlp.c_fc.weight is [35, 140], expected [35, 139]"),
    case(settings(vocab_size=262), "wte.weight is [263, 35], expected [262, 35]"),
    case(settings(tie_word_embeddings=False), "missing: lm_head.weight"),
    case(two_tokens_more, "ids up to 264 (<|x|>)", "has 263 rows", error=VocabularyError),
    *(case(prefixed(x), f"GPT-2's names, only {x}h.0.attn") for x in OTHER_PREFIXES),
    case(
        lambda directory: change_tensors(directory, five_problems),
        "missing: h.2.attn.c_attn.bias, ln_f.bias; ",
        "unexpected: adapter.weight",
        "wrong shape: h.0.mlp.c_fc.weight is [140, 35], expected [35, 140]",
        "unsupported dtype: h.1.ln_2.weight is I64",
    ),
    case(renamed(lora), "unmerged LoRA layers", "merge_and_unload()"),
    case(renamed(llama), "only embed_tokens.weight, layers.0.self", " and 9 more"),
]
IN_SILU = [case(renamed(lambda x: without(x, "transformer.wte.weight")), "missing: wte.weight")]
# Another shard's tensors would be read all the same.
ONE_LISTED = json.dumps({"weight_map": {"wpe.weight": SHARDS[1]}}).encode()
IN_SHARDED = [
    missing(removed(*SHARDS[1:]), f"{', '.join(SHARDS[1:])}, named in", INDEX),
    case(content(SHARDS[1], lambda x: x[:-1]), SHARDS[1], "truncated"),
    case(twice_in_shards, "wte.weight appears twice", SHARDS[0], SHARDS[2]),
    *(case(index(name), "outside its directory", INDEX) for name in OUTSIDE),
    *(case(index(name), INDEX) for name in ("", ".", "..", None, 3)),
    missing(index("gone.safetensors"), "gone.safetensors, named in"),
    missing(index(f"{SHARDS[1]}."), f"{SHARDS[1]}., named in"),
    missing(index("x" * 300), "x" * 80),
    missing(index("a\0b"), r"a\x00b, named in"),
    case(index("vocab.json"), f"vocab.json {NO_SAFETENSORS}"),
    *(
        case(content(INDEX, lambda _, x=x: x), INDEX, words)
        for words, contents in INVALID_INDEX.items()
        for x in contents
    ),
    case(
        content(INDEX, lambda _: ONE_LISTED), INDEX, "doesn't list h.0.", " more, which its files"
    ),
    case(content(INDEX, lambda _: b'{"weight_map": {}}'), "missing: wte.weight, wpe.weight"),
]


@pytest.mark.parametrize(
    ("model", "damage", "error", "words"),
    [
        (model, *row)
        for model, rows in (("odd", IN_ODD), ("silu", IN_SILU), ("sharded", IN_SHARDED))
        for row in rows
    ],
    ids=lambda value: value[-1][-40:] if isinstance(value, tuple) else "",
)
def test_refusals(
    tmp_path: Path, model: str, damage: Damage, error: type[AttnlabError], words: tuple[str, ...]
) -> None:
    directory = copy_model(model, tmp_path / model)
    damage(directory)
    message = refusal(directory, error)
    assert [word for word in (str(directory), *words) if word not in message] == []
    # Nothing else is said: no list of missing tensors of another architecture, no intact shard.
    assert ("missing:" in message) == any("missing:" in word for word in words)


# Tensors that don't match the config


@pytest.mark.parametrize("name", LARGEST_SIZES)
def test_huge_config_sizes_allocate_nothing(odd: Path, name: str) -> None:
    """Arrays must not be created before they are looked up; the names of 1,000 layers are few."""
    Checkpoint(odd, GPT2Config.from_file(odd / CONFIG))  # lazy imports happen here
    sizes = {"vocab_size": 263, "n_positions": 17, "n_embd": 35, "n_layer": 3, "n_head": 1}
    config = GPT2Config(**sizes | {name: LARGEST_SIZES[name]} | {"n_head": 1})
    tracemalloc.start()
    try:
        if name == "n_head":
            Checkpoint(odd, config)
        else:
            with pytest.raises(CheckpointError, match="don't match its config"):
                Checkpoint(odd, config)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


def test_transposed_matrices_are_reported(odd: Path) -> None:
    """Matrices as in nn.Linear: reported in a file, accepted from memory."""
    turned: Tensors = {}

    def change(tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            if "attn.c_" in name or "mlp.c_" in name:
                tensors[name] = np.ascontiguousarray(tensor.T)
        turned.update(tensors)

    change_tensors(odd, change)
    message = refusal(odd)
    assert "h.0.attn.c_attn.weight is [105, 35], expected [35, 105]" in message
    assert "as in nn.Linear and nanoGPT. GPT2.from_arrays" in message
    opened = GPT2.from_pretrained(REFERENCE / "odd")
    model = GPT2.from_arrays(opened.config, turned, opened.tokenizer)
    assert np.allclose(model.trace(PROMPT).logits, opened.trace(PROMPT).logits, atol=1e-4)


def test_mlp_of_width_3_n_embd() -> None:
    """Its second matrix is (3 D, D), as W_QKV is in nn.Linear."""
    config = GPT2Config(vocab_size=7, n_positions=4, n_embd=6, n_layer=1, n_head=2, n_inner=18)
    rng = np.random.default_rng(0)
    arrays = {path: rng.random(x.shape) for path, x in ParameterVector(config).items()}
    model = GPT2.from_arrays(config, arrays)
    np.testing.assert_allclose(model.parameters["blocks.0.mlp.W_2"], arrays["blocks.0.mlp.W_2"])


def test_embedding_larger_than_the_vocabulary(odd: Path) -> None:
    """A padded embedding: the rows of tokens are unchanged."""
    expected = np.load(REFERENCE / "odd/expected.npz")

    def pad(tensors: Tensors) -> None:
        rows = tensors["transformer.wte.weight"]
        noise = 50 * np.random.default_rng(0).standard_normal((320 - 263, 35), np.float32)
        tensors["transformer.wte.weight"] = np.concatenate([rows, noise])

    change_tensors(odd, pad)
    change_config(odd, vocab_size=320)
    model = GPT2.from_pretrained(odd)
    padded = model.trace(expected["ids"])
    assert padded.logits.shape == (11, 320)
    assert np.allclose(padded.logits[:, :263], expected["logits"], atol=1e-4)
    best = padded.next_tokens(3)
    assert all(token.symbol == f"<row {token.id}>" for token in best)
    assert "<row " in repr(best)
    assert model.trace([300, 5, 319]).tokens.symbols == ("<row 300>", "&", "<row 319>")


def stored_tensors(model: str) -> Tensors:
    """The tensors of a reference model by names without prefix, as the library reads them."""
    files = (REFERENCE / model).glob("*.safetensors")
    return {name: x for file in files for name, x in without_prefix(load_file(file)).items()}


WRAPPED = (
    "_orig_mod.transformer.",
    "module.transformer.",
    "module._orig_mod.transformer.",
    "pretrained_model.transformer.",
    "base_model.model.transformer.",
    "model.transformer.",
    "model.module.",
    "_orig_mod.",
)


@pytest.mark.parametrize("prefix", ["", *WRAPPED])
@pytest.mark.parametrize("model", ["odd", "silu"])
def test_prefixes_of_names_are_stripped(tmp_path: Path, model: str, prefix: str) -> None:
    directory = copy_model(model, tmp_path)
    change_tensors(
        directory, lambda tensors: {prefix + n: x for n, x in without_prefix(tensors).items()}
    )
    assert np.array_equal(trace(directory).logits, trace(REFERENCE / model).logits)


ADDED_HEADS = [
    ["score.weight"],
    ["classifier.weight", "classifier.bias"],
    ["qa_outputs.weight", "qa_outputs.bias"],
    ["multiple_choice_head.summary.weight", "multiple_choice_head.summary.bias"],
    ["v_head.summary.weight", "v_head.summary.bias"],
]


@pytest.mark.parametrize("prefix", ["", "base_model.model."])
@pytest.mark.parametrize("names", ADDED_HEADS)
def test_task_heads_are_reported_and_ignored(odd: Path, names: list[str], prefix: str) -> None:
    put_tensors(odd, {prefix + name: np.full(3, np.nan, "f4") for name in names})
    opened = GPT2.from_pretrained(odd)
    assert np.array_equal(opened.trace(PROMPT).logits, trace(REFERENCE / "odd").logits)
    text = f"without the head for another task ({', '.join(sorted(names))})"
    assert opened.parameters.origin == f"from {odd}, {text}"
    assert text in repr(opened)
    assert text in repr(opened.parameters)
    assert parameter_count(opened.config) == parameter_count(GPT2Config.from_file(odd / CONFIG))
    opened.save(odd.parent / "saved")
    assert not set(names) & set(load_file(odd.parent / "saved" / WEIGHTS))


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_mask_buffers_are_ignored(odd: Path, prefix: str) -> None:
    buffers = {"bias": np.tril(np.ones((1, 1, 17, 17), bool)), "masked_bias": np.float32(np.nan)}
    for layer in range(3):
        put_tensors(odd, {f"{prefix}h.{layer}.attn.{n}": np.array(x) for n, x in buffers.items()})
    assert np.array_equal(trace(odd).logits, trace(REFERENCE / "odd").logits)


# The output matrix


def test_stored_copy_of_the_tied_output_matrix(one_head: Path) -> None:
    assert "lm_head.weight" in load_file(one_head / WEIGHTS)
    other = copy_model("one_head", one_head.parent / "without") / WEIGHTS
    change_tensors(other.parent, lambda tensors: without(tensors, "lm_head.weight"))
    assert "lm_head.weight" not in load_file(other)
    assert np.array_equal(trace(one_head).logits, trace(other.parent).logits)


@pytest.mark.parametrize("alone", [True, False])
def test_embedding_stored_only_as_the_output_matrix(odd: Path, alone: bool) -> None:
    """As saved by safetensors' save_model, which writes shared tensors once."""

    def change(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors.pop("transformer.wte.weight")
        if not alone:
            tensors["transformer.wte.weight"] = tensors["lm_head.weight"].copy()

    change_tensors(odd, change)
    assert np.array_equal(trace(odd).logits, trace(REFERENCE / "odd").logits)
    assert np.array_equal(trace(odd).embedding, trace(REFERENCE / "odd").embedding)


@pytest.mark.parametrize("ask", [lambda trace: trace.logits, lambda trace: trace.next_tokens(3)])
def test_output_matrix_contradicting_tying_is_rejected_on_use(
    one_head: Path, ask: Callable[[Trace], object]
) -> None:
    def change(tensors: Tensors) -> None:
        tensors["lm_head.weight"][200, 12] += np.float32(0.01)

    change_tensors(one_head, change)
    opened = trace(one_head)
    assert np.array_equal(opened.final, trace(REFERENCE / "one_head").final)
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match=r"lm_head\.weight .* differs from wte\.weight"
        ) as caught:
            ask(opened)
        assert str(one_head) in str(caught.value)
    change_config(one_head, tie_word_embeddings=False)  # as the message says
    stored = load_file(one_head / WEIGHTS)["lm_head.weight"]
    opened = trace(one_head)
    assert np.allclose(opened.logits, opened.final @ stored.T, atol=1e-4)


# Shards


def link(shard: Path, target: Path) -> None:
    """Replace a shard by a link to it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shard.rename(target)
    shard.symlink_to(os.path.relpath(target, shard.parent))


def test_shards_that_are_links_in_the_hubs_cache(tmp_path: Path) -> None:
    snapshot = copy_model("sharded", tmp_path / "models--a--b" / "snapshots" / "607a30")
    for number, shard in enumerate(sorted(snapshot.glob("*.safetensors"))):
        link(shard, tmp_path / "models--a--b" / "blobs" / f"{number:064}")
    assert np.array_equal(trace(snapshot).logits, trace(REFERENCE / "sharded").logits)
    (tmp_path / "mine").symlink_to(snapshot)
    assert trace(tmp_path / "mine").logits.shape == (12, 263)
    (snapshot / SHARDS[1]).unlink()
    (snapshot / SHARDS[1]).symlink_to(tmp_path / "models--a--b" / "refs")
    assert f"{SHARDS[1]}, named in" in refusal(snapshot, MissingFileError)


# Numbers that are not finite


def corrupt(name: str, index: int, value: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[f"transformer.{name}"].reshape(-1)[index] = value

    return change


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", IN_BLOCK)
def test_non_finite_tensors_are_reported_on_use(odd: Path, name: str, value: float) -> None:
    file = change_tensors(odd, corrupt(f"h.1.{name}", -1, value))
    opened = trace(odd)
    assert np.array_equal(opened.blocks[0].output, trace(REFERENCE / "odd").blocks[0].output)
    with pytest.raises(CheckpointError) as caught:
        opened.blocks[1].output  # noqa: B018
    assert str(caught.value) == f"h.1.{name} in {file} contains NaN or infinite numbers"


def test_only_the_prompts_rows_of_the_token_embedding_are_read(odd: Path) -> None:
    ids = set(GPT2.from_pretrained(odd).tokenizer.encode(PROMPT))

    def change(tensors: Tensors) -> None:
        unused = [id for id in range(263) if id not in ids]
        tensors["transformer.wte.weight"][unused] = np.nan

    change_tensors(odd, change)
    opened, sound = trace(odd), trace(REFERENCE / "odd")
    assert np.array_equal(opened.head(0, 0).weights, sound.head(0, 0).weights)
    assert np.array_equal(opened.final, sound.final)
    with pytest.raises(CheckpointError, match=r"wte\.weight .*NaN"):
        opened.logits  # noqa: B018
    longer = GPT2.from_pretrained(odd).trace([0] * 13)
    with pytest.raises(CheckpointError, match=r"wte\.weight .*NaN"):
        longer.token_embedding  # noqa: B018


def test_float64_values_that_overflow_float32(tmp_path: Path) -> None:
    directory = copy_model("float64", tmp_path)

    def change(tensors: Tensors) -> None:
        tensors["transformer.h.1.mlp.c_proj.bias"][7] = -1e39

    file = change_tensors(directory, change)
    assert np.isfinite(trace(directory, dtype="float64").logits).all()
    opened = trace(directory, dtype="float32")
    assert np.isfinite(opened.blocks[1].mid).all()
    with pytest.raises(CheckpointError, match=r"h\.1\.mlp\.c_proj\.bias .* infinite") as caught:
        opened.logits  # noqa: B018
    assert str(file) in str(caught.value)


# Files that change after opening


def delete(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    os.truncate(file, 0)


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def replace_by_a_copy(file: Path) -> None:
    """With the same size and modification time."""
    shutil.copy2(file, file.with_name("other"))
    os.replace(file.with_name("other"), file)


def rewrite_the_last_byte(file: Path) -> None:
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns + 1
    with open(file, "r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\x3f")
    os.utime(file, ns=times)


@pytest.mark.parametrize("damage", [delete, empty, halve, replace_by_a_copy, rewrite_the_last_byte])
@pytest.mark.parametrize("model", ["odd", "sharded"])
def test_files_that_change_after_opening_are_reported(
    tmp_path: Path, model: str, damage: Callable[[Path], None]
) -> None:
    directory = copy_model(model, tmp_path)
    opened = trace(directory)
    files = sorted(directory.glob("*.safetensors"))
    for file in files:
        damage(file)
    with pytest.raises(CheckpointError) as caught:
        opened.logits  # noqa: B018
    assert any(str(file) in str(caught.value) for file in files)
    is_there = damage not in (delete, empty, halve)
    assert ("has changed since it was opened" in str(caught.value)) >= is_there


# Arguments


@pytest.mark.parametrize(
    "path",
    [
        *(
            "W",
            "",
            "blocks.0.attention.W_QKV",
            "blocks.3.mlp.W_1",
            "blocks.x.mlp.W_1",
            "W_U",
            "blocks.0",
            "blocks.9.mlp.W_1",
        ),
        *(5, None, ["W_E"], np.array("W_E"), {}, str),
    ],
)
def test_unknown_parameters(path: Any) -> None:
    on_disk = GPT2.from_pretrained(REFERENCE / "odd").parameters
    for parameters in (on_disk, ParameterVector(on_disk.config)):
        for call in (parameters.read, parameters.rows, parameters.__getitem__):
            with pytest.raises(UnknownNameError, match=r"no parameter .*parameters are W_E,"):
                call(path)
        assert path not in parameters
        assert parameters.get(path) is None
        assert len(parameters) == len(list(parameters)) == 4 + 16 * 3


# What is read, and its memory layout


class Counter:
    """Counts the bytes that `np.fromfile` reads."""

    def __init__(self) -> None:
        self.bytes = 0
        self._fromfile = np.fromfile

    def __call__(self, *args: Any, **options: Any) -> NDArray[Any]:
        numbers: NDArray[Any] = self._fromfile(*args, **options)
        self.bytes += numbers.nbytes
        return numbers


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Counter:
    counter = Counter()
    monkeypatch.setattr(np, "fromfile", counter)
    return counter


def test_one_head_reads_few_bytes(reading: Counter) -> None:
    model = GPT2.from_pretrained(REFERENCE / "odd")
    repr(model)
    opened = model.trace(PROMPT)
    assert reading.bytes == 0
    assert opened.head(0, 0).weights.shape == (12, 12)
    shapes = tensor_shapes(model.config)
    block = {name: 4 * math.prod(shapes[f"h.0.{name}"]) for name in IN_BLOCK}
    rows = 4 * 35 * (len(set(opened.tokens.ids.tolist())) + 17)  # of W_E; and all of W_P
    assert rows < 4 * 35 * (12 + 17), "no token is repeated"
    assert reading.bytes == rows + sum(block[name] for name in IN_BLOCK[:4]), "W_O is not needed"
    opened.blocks[0].output  # noqa: B018
    assert reading.bytes == rows + sum(block.values())
    opened.logits  # noqa: B018
    assert reading.bytes == rows + 4 * (parameter_count(model.config) - 17 * 35)


def test_rows_of_a_loaded_embedding_are_not_reread(reading: Counter) -> None:
    model = GPT2.from_pretrained(REFERENCE / "odd")
    rows = model.trace(PROMPT).token_embedding
    assert model.trace(PROMPT).logits.shape == (12, 263)
    before = reading.bytes
    assert np.array_equal(model.trace(PROMPT).token_embedding, rows)
    assert model.trace("thin ice").token_embedding.shape[1] == 35
    assert reading.bytes == before


def test_the_deepest_model_is_saved_and_opened(tmp_path: Path) -> None:
    config = GPT2Config(**TINY | {"vocab_size": 256, "n_layer": LARGEST_SIZES["n_layer"]})
    GPT2(ParameterVector(config), Tokenizer.byte_level()).save(tmp_path)
    assert GPT2.from_pretrained(tmp_path).config == config


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", [model for model in MODELS if model != "bfloat16"])
def test_parameters_equal_the_stored_numbers(model: str, dtype: str) -> None:
    """Equal to the safetensors library's numbers; NumPy has no bfloat16."""
    stored = stored_tensors(model)
    checkpoint = GPT2.from_pretrained(REFERENCE / model, dtype=dtype).parameters
    for path in stored_shapes(checkpoint.config):
        expected = stored[tensor_name(path)].astype(dtype)
        assert np.array_equal(checkpoint.stored(path), expected), path
        if path.endswith("QKV"):  # W_Q, W_K and W_V are its thirds
            for name, third in zip("QKV", np.split(expected, 3, axis=-1), strict=True):
                assert np.array_equal(checkpoint[path.removesuffix("QKV") + name], third), path
        else:
            assert checkpoint[path] is checkpoint.stored(path)


def test_dtypes() -> None:
    for dtype in ("float64", np.float32, np.float64, np.dtype("f8")):
        opened = trace(REFERENCE / "odd", dtype=dtype)
        assert opened.logits.dtype == opened.embedding.dtype == opened.head(1, 1).W_Q.dtype == dtype
    other_order = [x for x in (">f4", ">f8") if not np.dtype(x).isnative]
    for wrong in (
        *("float16", "bfloat16", np.float16, "int32", int, bool, object, "complex64"),
        *("", "single precision", 32, ["f4"], "f4,f4", ",", {"names": ["f4"]}, *other_order),
    ):
        with pytest.raises(InvalidValueError, match="float32 or float64") as caught:
            GPT2.from_pretrained(REFERENCE / "odd", dtype=wrong)
        assert repr(wrong) in str(caught.value)


# Sizes


TINY: dict[str, int] = {"vocab_size": 3, "n_positions": 3, "n_embd": 2, "n_layer": 2, "n_head": 1}


PUBLISHED: dict[str, dict[str, int]] = json.loads((REFERENCE / "sizes.json").read_text())


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_sizes(name: str) -> None:
    config = GPT2Config.from_dict(PUBLISHED[name])
    assert parameter_count(config) == PUBLISHED[name]["parameters"]
    shapes = tensor_shapes(config)
    assert len(shapes) == 4 + 12 * config.n_layer
    assert len(ParameterVector(GPT2Config(**TINY | {"n_layer": config.n_layer}))) == (
        4 + 16 * config.n_layer
    )
    assert sum(math.prod(shape) for shape in shapes.values()) == PUBLISHED[name]["parameters"]
    assert shapes["wte.weight"] == (50257, config.n_embd)
    assert shapes["wpe.weight"] == (1024, config.n_embd)
    last = f"h.{config.n_layer - 1}"
    assert shapes[f"{last}.attn.c_attn.weight"] == (config.n_embd, 3 * config.n_embd)
    assert shapes[f"{last}.mlp.c_fc.weight"] == (config.n_embd, 4 * config.n_embd)
    assert f"h.{config.n_layer}.ln_1.weight" not in shapes


def test_untied_model_saved_over_itself(tmp_path: Path) -> None:
    for file in (REFERENCE / "one_head").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model = GPT2.from_pretrained(tmp_path)
    expected = GPT2.from_pretrained(REFERENCE / "one_head").trace([1, 2, 3]).logits
    model.save(tmp_path)
    for either in (model, GPT2.from_pretrained(tmp_path)):
        assert np.array_equal(either.trace([1, 2, 3]).logits, expected)


def test_rows_are_read_at_any_distance() -> None:
    W_E = load_file(REFERENCE / "odd" / WEIGHTS)["transformer.wte.weight"]
    for ids in ([0, 2], [6, 3, 5, 1], [9, 4, 9, 8]):
        trace = GPT2.from_pretrained(REFERENCE / "odd").trace(ids)
        np.testing.assert_array_equal(trace.token_embedding, W_E[ids])


def test_a_whole_file_is_read_though_there_are_shards(tmp_path: Path) -> None:
    """As in transformers, which looks for model.safetensors first."""
    directory = copy_model("sharded", tmp_path / "sharded")
    tensors: dict[str, Any] = {}
    for shard in directory.glob("model-*.safetensors"):
        tensors |= load_file(shard)
    name = next(name for name in tensors if name.endswith("wpe.weight"))
    tensors[name] = tensors[name] + 1
    save_file(tensors, directory / WEIGHTS)
    parameters = GPT2.from_pretrained(directory).parameters
    np.testing.assert_array_equal(parameters["W_P"], tensors[name])
