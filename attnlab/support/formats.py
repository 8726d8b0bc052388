"""Recognise unsupported checkpoint formats by file name, and say how to convert them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path

from attnlab.errors import CheckpointError, ConfigError, MissingFileError, quoted
from attnlab.support.files import read_json, reason_of
from attnlab.support.tables import printable

CONFIG = "config.json"
ADAPTER = "adapter_config.json"

# The maximum number of names that a message lists.
MAX_LISTED = 12


def conversion_command(imports: str, model: str, tokenizer: str) -> str:
    """A command that saves a model and its tokenizer in a supported format.

    Parameters
    ----------
    imports : the end of an import statement, with more imports
    model : the expression that loads the model
    tokenizer : the name or directory of the tokenizer
    """
    return (
        f'python -c "from transformers import AutoTokenizer as T{imports}; '
        f"{model}.save_pretrained('NEW'); T.from_pretrained('{tokenizer}').save_pretrained('NEW')\""
    )


HOW_TO_CONVERT = (
    "It is a pickle, which can run any code when loaded, so it isn't loaded. If you trust the "
    "file, convert it where transformers and torch are installed (OLD is its directory, or its "
    "name on the hub): "
    + conversion_command(", GPT2LMHeadModel as M", "M.from_pretrained('OLD')", "OLD")
)
HOW_TO_DEQUANTIZE = (
    "Open the original model, or, if transformers can load and dequantize this one, use "
    "GPT2.from_hf(model.dequantize(), tokenizer)"
)
HOW_TO_MERGE = (
    "Merge them where peft is installed (OLD is the adapter's directory, BASE the base model's): "
    + conversion_command(
        "; from peft import AutoPeftModelForCausalLM as M",
        "M.from_pretrained('OLD').merge_and_unload()",
        "BASE",
    )
)

# Patterns of file names and descriptions of such files; the most specific pattern comes first.
FORMATS = (
    (
        r"adapter_config\.json|adapter_model\.safetensors|adapter_model\.bin",
        f"a PEFT adapter (such as LoRA), which changes another model's weights. {HOW_TO_MERGE}",
    ),
    (
        r"model-\d+-of-\d+\.safetensors",
        "one shard of the weights; model.safetensors.index.json, which lists all, is missing",
    ),
    (r"pytorch_model.*\.bin", f"weights that aren't safetensors. {HOW_TO_CONVERT}"),
    (
        r"atlas\.safetensors",
        "measures of a corpus. Open them with attnlab.open_atlas",
    ),
    (
        r"(?!model\.safetensors).+\.safetensors",
        "which may have the weights of a GPT-2. If it does, rename it to model.safetensors",
    ),
    (
        r"(?!optimizer|scheduler|rng_state|training_args).+\.(?:pt|pth|ckpt)",
        "a training script's pickle, such as nanoGPT's ckpt.pt. It can run any code when loaded, "
        "so it isn't loaded. If you trust the file, load it with torch and pass its arrays to "
        "GPT2.from_arrays; nanoGPT's are torch.load('ckpt.pt', map_location='cpu')['model']",
    ),
    (
        r".+\.(?:gguf|h5|msgpack|onnx)",
        "weights for llama.cpp, TensorFlow, Flax or ONNX, which aren't supported. Open the "
        "original model's safetensors",
    ),
)


def describe_unsupported(names: Iterable[str]) -> str:
    """Describe the first file in an unsupported format and how to convert it; "" if none exists."""
    names = sorted(names)
    for pattern, description in FORMATS:
        for name in names:
            if re.fullmatch(pattern, name):
                return f"{list_names([name])}, {description}"
    return ""


# A pattern of PEFT types that prepend trained vectors to the text.
PROMPT_TYPES = "PROMPT|PREFIX|P_TUNING"


def check_no_adapter(directory: Path) -> None:
    """Raise CheckpointError for a PEFT adapter, since the base model alone would be misleading."""
    if not os.path.lexists(directory / ADAPTER):
        return
    try:
        kind = str(read_json(directory / ADAPTER, ConfigError).get("peft_type", "unknown"))
    except (ConfigError, MissingFileError):
        kind = "unknown"
    reason = f", which changes another model's weights. {HOW_TO_MERGE}"
    if re.search(PROMPT_TYPES, kind):
        reason = (
            ". It prepends trained vectors to the text, so it can't be merged into GPT-2's "
            "weights and isn't supported"
        )
    if os.path.lexists(directory / CONFIG):
        reason += f". To open the model without the adapter, move {ADAPTER} to another directory"
    raise CheckpointError(
        f"{directory} contains a PEFT adapter ({ADAPTER}, peft_type {quoted(kind)}){reason}"
    )


def model_directory(directory: Path) -> Path:
    """The directory with a model's files: `directory`, or the only such directory below it."""
    check_no_adapter(directory)  # checked first, since an adapter may have no config
    inner = _directory_with_config(directory)
    check_no_adapter(inner)
    return inner


def _directory_with_config(directory: Path) -> Path:
    if os.path.lexists(directory / CONFIG):
        return directory
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise MissingFileError(f"{directory} can't be read: {reason_of(error)}") from None
    # In the hub's cache, a model is in a directory of snapshots.
    levels = ("*", "snapshots/*")
    inside = [file.parent for level in levels for file in directory.glob(f"{level}/{CONFIG}")]
    if len(inside) == 1:
        return inside[0]
    if inside:
        models = list_names(sorted(str(path.relative_to(directory)) for path in inside))
        raise MissingFileError(f"{directory} contains several models. Give one of them: {models}")
    if format := describe_unsupported(names):
        raise MissingFileError(f"there is no {CONFIG} in {directory}, but {format}")
    content = f"which contains {list_names(sorted(names))}" if names else "which is empty"
    raise MissingFileError(
        f"there is no {CONFIG} in {directory}, {content}. Give the directory with the model's files"
    )


def list_names(names: Collection[str]) -> str:
    """List the first names, and the number of other names."""
    first = [printable(name)[:200] for name in islice(names, MAX_LISTED)]
    rest = len(names) - len(first)
    return ", ".join(first) + (f" and {rest:,} more" if rest > 0 else "")
