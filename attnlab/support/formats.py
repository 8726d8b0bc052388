"""What directories hold instead of weights that open here, and how to convert it.

Files are known by their names; of them only `adapter_config.json` is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sized
from itertools import islice
from pathlib import Path

from attnlab.errors import CheckpointError, ConfigError, MissingFileError, quoted
from attnlab.support.files import read_json
from attnlab.support.tables import printable

CONFIG = "config.json"
ADAPTER = "adapter_config.json"

# How many names a message lists.
LISTED = 12


def convert(imports: str, model: str, tokenizer: str = "'OLD'") -> str:
    """A command that writes a model and its tokenizer anew, as `from_pretrained` opens them.

    Parameters
    ----------
    imports : besides the tokenizer's
    model, tokenizer : what makes the model, and what the tokenizer is loaded with
    """
    return (
        f'python -c "from transformers import AutoTokenizer as T{imports}; '
        f"{model}.save_pretrained('NEW'); T.from_pretrained({tokenizer}).save_pretrained('NEW')\""
    )


def convert_from(library: str, loaded: str) -> str:
    """The same of another library's file, which from_pretrained in transformers 4.57 loads no more.

    Parameters
    ----------
    library, loaded : parts of the names of the module and the function in transformers that do it
    """
    return convert(
        ", GPT2Config as C, GPT2LMHeadModel as M; "
        f"from transformers.modeling_{library}_pytorch_utils "
        f"import load_{loaded}_checkpoint_in_pytorch_model as load",
        "load(M(C.from_pretrained('OLD')), 'OLD/{file}')",
    )


OF_TRANSFORMERS = ", GPT2LMHeadModel as M"

HOW_TO_CONVERT = (
    "That is a pickle, which can run any code when it is opened, so it is never opened here. "
    "Where transformers and torch are installed, and you trust the file, make a new directory of "
    "the old one, or of its name on the hub: "
    + convert(OF_TRANSFORMERS, "M.from_pretrained('OLD')")
)
HOW_TO_DEQUANTISE = (
    "Their numbers are rounded to few bits, in a form of their own. Open the model that they were "
    "made from; or, where transformers can load and dequantise them, "
    "GPT2.from_hf(model.dequantize(), tokenizer)"
)
HOW_TO_MERGE = (
    "Where peft is installed, add the two up, OLD being the adapter's directory and BASE the other "
    "model's: "
    + convert(
        "; from peft import AutoPeftModelForCausalLM as M",
        "M.from_pretrained('OLD').merge_and_unload()",
        "'BASE'",
    )
)
BEFORE_5 = "Where a transformers before version 5, torch, {} are installed, convert it: "

# What a file's name tells, the surest first, and the way from there. {name} is the file's, {file}
# the same in a command, and {variant} what parentheses in the pattern match.
FORMATS = (
    (
        r"adapter_config\.json|adapter_model\.safetensors|adapter_model\.bin",
        "{name}, a PEFT adapter, such as LoRA's, which changes another model's weights. "
        + HOW_TO_MERGE,
    ),
    (
        r"model\.([\w-]+?)(?:-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.([\w-]+)\.json",
        '{name}, weights of a variant: from_pretrained(..., variant="{variant}") opens it',
    ),
    (
        r"model-\d+-of-\d+\.safetensors",
        "{name}, a part of the weights without the index that names all parts",
    ),
    (r"pytorch_model.*\.bin", "{name}. " + HOW_TO_CONVERT),
    (
        r".+\.gguf",
        "{name}, in llama.cpp's format GGUF, mostly with numbers rounded to few bits. Best open "
        "the model that it was made from. "
        + BEFORE_5.format("gguf and accelerate")
        + convert(
            OF_TRANSFORMERS,
            "M.from_pretrained('OLD', gguf_file='{file}')",
            "'OLD', gguf_file='{file}'",
        ),
    ),
    (
        r"tf_model.*\.h5",
        "{name}, TensorFlow's weights. "
        + BEFORE_5.format("tensorflow and tf-keras")
        + convert_from("tf", "tf2"),
    ),
    (
        r"flax_model.*\.msgpack",
        "{name}, Flax's weights. " + BEFORE_5.format("and flax") + convert_from("flax", "flax"),
    ),
    (
        r"hparams\.json|encoder\.json|vocab\.bpe|model.*\.(data-\d+-of-\d+|index|meta)",
        "{name}, one of the files in which OpenAI published GPT-2, for TensorFlow. The same "
        "numbers open by name: GPT2.from_pretrained('gpt2') is 124M, 'gpt2-medium' 355M, "
        "'gpt2-large' 774M, 'gpt2-xl' 1558M",
    ),
    (
        r".+\.onnx",
        "{name}, in the format ONNX, a computation made to be run and not to be looked into. Open "
        "the model that it was made from",
    ),
    (
        r"(?!optimizer|scheduler|rng_state|training_args).+\.(?:pt|pth|ckpt)",
        "{name}, a pickle of a training script's own, as nanoGPT leaves ckpt.pt. It can run any "
        "code when it is opened, so it is never opened here. Where torch is installed, and you "
        "trust the file, GPT2.from_arrays takes its arrays, which for nanoGPT are "
        "torch.load('{file}', map_location='cpu')['model']",
    ),
    (
        r"(?!model).+\.safetensors",
        "{name}. If these are a GPT-2's weights, call the file model.safetensors",
    ),
)


def instead(names: Iterable[str]) -> str:
    """What files of these names hold instead of weights that open here, and the way from there.

    Returns
    -------
    such as "model.gguf, in llama.cpp's format GGUF, ...", to follow "there is only"; "" where none
    of the names tells
    """
    names = sorted(names)
    for pattern, told in FORMATS:
        for name in names:
            if found := re.fullmatch(pattern, name):
                return told.format(
                    name=listed([name]),
                    # A name that would end a command's quotes has no place in one.
                    file=name if re.fullmatch(r"[\w.+-]{1,200}", name) else "FILE",
                    variant=next(filter(None, found.groups()), ""),
                )
    return ""


# Kinds of PEFT adapters that put vectors before the text, by parts of their names.
PROMPTS = re.compile("PROMPT|PREFIX|P_TUNING")


def check_no_adapter(directory: Path) -> None:
    """Refuse a directory with a PEFT adapter, since the model alone isn't what was trained.

    Raises
    ------
    CheckpointError
        It holds `adapter_config.json`.
    """
    if not os.path.lexists(directory / ADAPTER):
        return
    try:
        kind = str(read_json(directory / ADAPTER, ConfigError).get("peft_type", "unknown"))
    except (ConfigError, MissingFileError):
        kind = "unknown"
    message = f"{directory} holds a PEFT adapter ({ADAPTER}, peft_type {quoted(kind)})"
    if PROMPTS.search(kind):
        message += (
            ". It puts trained vectors before the text, which is no change of GPT-2's weights, so "
            "it can't be merged and doesn't open here"
        )
    else:
        message += f", which changes another model's weights. {HOW_TO_MERGE}"
    if os.path.lexists(directory / CONFIG):
        message += f". To open the model without the adapter, move {ADAPTER} to another directory"
    raise CheckpointError(message)


def model_directory(directory: Path) -> Path:
    """The directory, or the only one in it that holds a model; so with one in the hub's cache."""
    check_no_adapter(directory)
    found = _with_config(directory)
    check_no_adapter(found)
    return found


def _with_config(directory: Path) -> Path:
    if os.path.lexists(directory / CONFIG):
        return directory
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise MissingFileError(f"{directory} can't be read: {error.strerror}") from None
    inside = [
        file.parent
        for level in ("*", "snapshots/*")
        for file in directory.glob(f"{level}/{CONFIG}")
    ]
    if len(inside) == 1:
        return inside[0]
    if inside:
        models = listed(sorted((str(path.relative_to(directory)) for path in inside), key=_natural))
        raise MissingFileError(f"{directory} holds several models, give one of them: {models}")
    if told := instead(names):
        raise MissingFileError(f"there is no {CONFIG} in {directory}, but {told}")
    there = f"which holds {listed(sorted(names))}" if names else "which is empty"
    raise MissingFileError(
        f"there is no {CONFIG} in {directory}, {there}; give the directory with the model's files"
    )


def listed(names: Iterable[str], count: int | None = None) -> str:
    """Names one after the other, of many the first ones; `count` where there is no len(names)."""
    first = [printable(name)[:200] for name in islice(names, LISTED)]
    rest = (len(names) if isinstance(names, Sized) else count or 0) - len(first)
    return ", ".join(first) + (f" and {rest:,} more" if rest > 0 else "")


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts checkpoint-500 before checkpoint-1000."""
    return [(len(part) * part.isdigit(), part) for part in re.split(r"(\d+)", name)]
