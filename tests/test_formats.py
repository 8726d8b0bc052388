"""Unsupported formats of checkpoints: each is recognized, with advice how to convert it.

The advice is followed, and models saved by transformers are opened, in a Python with torch and
transformers: this one, or the one that `ATTNLAB_TORCH` names, such as
`ATTNLAB_TORCH=bench/bin/python pytest tests/test_formats.py`.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import REFERENCE
from files import WEIGHTS, change_config, copy_model
from pytorch import python_with, walk

from attnlab import GPT2
from attnlab.corpus.result import RESULT
from attnlab.errors import CheckpointError, ConfigError, MissingFileError
from attnlab.support.formats import describe_unsupported, model_directory

# A file of a directory or repository, and the error message.
UNSUPPORTED = [
    ("adapter_model.safetensors", "PEFT adapter", "merge_and_unload"),
    ("model-00001-of-00002.safetensors", "one shard of the weights", "index"),
    ("pytorch_model-00001-of-00002.bin", "pickle", "save_pretrained"),
    ("gpt2-Q4_K_M.gguf", "llama.cpp", "Open the original model"),
    ("tf_model.h5", "TensorFlow", "Open the original model"),
    ("epoch=3.ckpt", "training script", "torch.load('ckpt.pt'"),
    ("model.fp16.safetensors", "model.fp16.safetensors", "rename it to model.safetensors"),
]


@pytest.mark.parametrize(("name", "format", "remedy"), UNSUPPORTED)
def test_formats_are_recognized_by_name(
    tmp_path: Path, name: str, format: str, remedy: str
) -> None:
    """Alone in a directory, beside a config, and as a file."""
    (tmp_path / name).write_bytes(b"\x80")
    for _ in range(2):
        with pytest.raises(MissingFileError, match=re.escape(remedy)) as caught:
            GPT2.from_pretrained(tmp_path)
        assert f"{name}, " in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        copy_model("odd", tmp_path)
        (tmp_path / WEIGHTS).unlink()
    with pytest.raises(MissingFileError, match=format):
        GPT2.from_pretrained(tmp_path / name)


@pytest.mark.parametrize(
    "names",
    [
        "config.json vocab.json merges.txt README.md",
        "optimizer.pt scheduler.pt rng_state.pth training_args.bin trainer_state.json",
        "model.safetensors model.safetensors.index.json tokenizer.json",
    ],
)
def test_ignored_files(names: str) -> None:
    assert describe_unsupported(names.split()) == ""


def test_most_specific_format_is_reported() -> None:
    names = ["flax_model.msgpack", "onnx/model.safetensors", "pytorch_model.bin", "tf_model.h5"]
    assert describe_unsupported(names).startswith("pytorch_model.bin, weights that aren't")
    names.append("adapter_config.json")
    assert describe_unsupported(names).startswith("adapter_config.json, a PEFT")
    assert describe_unsupported(["atlas.html", RESULT]).endswith("with attnlab.open_atlas")


@pytest.mark.parametrize(
    ("settings", "kind", "remedy"),
    [
        ('{"peft_type": "LORA"}', "'LORA'", "merge_and_unload"),
        ('{"peft_type": "P_TUNING"}', "'P_TUNING'", "can't be merged"),
        ("\x80", "'unknown'", "merge_and_unload"),
    ],
)
def test_adapters_are_always_reported(
    tmp_path: Path, settings: str, kind: str, remedy: str
) -> None:
    """Alone, and beside a base model, which would open."""
    (tmp_path / "adapter_config.json").write_text(settings, encoding="latin-1")
    for advice in ("", f"{remedy}.* move adapter_config.json"):
        expected = f"adapter_config.json, peft_type {kind}.*{advice or remedy}"
        with pytest.raises(CheckpointError, match=expected):
            GPT2.from_pretrained(tmp_path)
        copy_model("odd", tmp_path)


def test_models_with_custom_code(tmp_path: Path) -> None:
    copy_model("odd", tmp_path)
    change_config(tmp_path, auto_map={"AutoModelForCausalLM": "modeling_odd.OddModel"})
    with pytest.raises(ConfigError, match=r"custom code \(auto_map: 'modeling_odd.OddModel'\)"):
        GPT2.from_pretrained(tmp_path)
    change_config(tmp_path, auto_map={"AutoTokenizer": ["tokenization_odd.OddTokenizer", None]})
    assert GPT2.from_pretrained(tmp_path).config.n_head == 5


# Directories


def test_directory_with_one_model_inside(tmp_path: Path) -> None:
    """A Trainer's output, inside another directory, where a model would take precedence."""
    directory = copy_model("odd", tmp_path / "run" / "checkpoint-500")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        (directory / name).write_bytes(b"\x80\x04.")
    for place in (directory, directory.parent):
        (place / "trainer_state.json").write_text("{}")
    (tmp_path / "run" / "logs").mkdir()
    logits = GPT2.from_pretrained(REFERENCE / "odd").trace([1, 2]).logits
    for place in (directory, directory.parent):
        model = GPT2.from_pretrained(place)
        assert "checkpoint-500" in model.parameters.origin
        assert np.array_equal(model.trace([1, 2]).logits, logits)
    copy_model("one_head", tmp_path / "run")
    assert GPT2.from_pretrained(tmp_path / "run").config.n_head == 1


def test_directory_with_several_models_inside(tmp_path: Path) -> None:
    for step in (500, 1000, 20):
        copy_model("odd", tmp_path / f"checkpoint-{step}")
    with pytest.raises(MissingFileError) as caught:
        GPT2.from_pretrained(tmp_path)
    message = (
        "contains several models. Give one of them: checkpoint-1000, checkpoint-20, checkpoint-500"
    )
    assert str(caught.value) == f"{tmp_path} {message}"


def test_hub_cache_directory(tmp_path: Path) -> None:
    cached = tmp_path / "models--owner--name"
    copy_model("odd", cached / "snapshots" / "607a30d783dfa663")
    (cached / "blobs").mkdir()
    (cached / "refs").mkdir()
    assert model_directory(cached) == cached / "snapshots" / "607a30d783dfa663"
    assert GPT2.from_pretrained(cached).config.n_layer == 3
    copy_model("odd", cached / "snapshots" / "other")
    with pytest.raises(MissingFileError, match=r"several models.*607a30d783dfa663, .*other"):
        GPT2.from_pretrained(cached)


def test_a_wrong_directory(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no config\.json in .*, which is empty. Give"):
        GPT2.from_pretrained(tmp_path)
    for number in range(20):
        (tmp_path / f"photo {number:02}\x1b[2J.jpg").touch()
    with pytest.raises(MissingFileError) as caught:
        GPT2.from_pretrained(tmp_path)
    assert r"which contains photo 00\x1b[2J.jpg, photo 01" in str(caught.value)
    assert "and 8 more. Give the directory with the model's files" in str(caught.value)


# The advice


def suggested_code(directory: Path) -> str:
    """The code in the command at the end of a message."""
    with pytest.raises((MissingFileError, CheckpointError)) as caught:
        GPT2.from_pretrained(directory)
    command = re.search(r'python -c "([^"]+)"$', str(caught.value))
    assert command, str(caught.value)
    return command[1]


def check_same(new: Path) -> None:
    """Check that a new directory has the reference model's tokenizer and numbers."""
    model, original = GPT2.from_pretrained(new), GPT2.from_pretrained(REFERENCE / "odd")
    for text in ("the hen in a thin inn", " naïve ☃"):
        assert model.tokenizer.encode(text) == original.tokenizer.encode(text)
        assert np.array_equal(model.trace(text).logits, original.trace(text).logits)


def test_advice_for_pickles_works(tmp_path: Path) -> None:
    python = python_with("torch", "transformers")
    old = copy_model("odd", tmp_path / "OLD")
    walk(
        python,
        "import torch; from safetensors.torch import load_file; "
        f"torch.save(load_file('OLD/{WEIGHTS}'), 'OLD/pytorch_model.bin')",
        tmp_path,
    )
    (old / WEIGHTS).unlink()
    walk(python, suggested_code(old), tmp_path)
    check_same(tmp_path / "NEW")


ADAPT = """
import numpy, torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2LMHeadModel
torch.manual_seed(0)
config = LoraConfig(
    r=2, task_type="CAUSAL_LM", init_lora_weights=False, fan_in_fan_out=True,
    target_modules=["c_attn", "c_proj"],
)
model = get_peft_model(GPT2LMHeadModel.from_pretrained("BASE"), config).eval()
model.save_pretrained("OLD")
numpy.save("logits.npy", model(torch.tensor([[1, 2, 3]])).logits[0].detach().numpy())
model.merge_adapter()
"""


def test_advice_for_adapters_works(tmp_path: Path) -> None:
    python = python_with("torch", "transformers", "peft")
    copy_model("odd", tmp_path / "BASE")
    walk(python, ADAPT, tmp_path)
    walk(python, suggested_code(tmp_path / "OLD"), tmp_path)
    logits = GPT2.from_pretrained(tmp_path / "NEW").trace([1, 2, 3]).logits
    np.testing.assert_allclose(logits, np.load(tmp_path / "logits.npy"), rtol=1e-4, atol=1e-4)
    original = GPT2.from_pretrained(REFERENCE / "odd").trace([1, 2, 3]).logits
    assert not np.allclose(logits, original, atol=0.1)


QUANTIZE = """
from transformers import BitsAndBytesConfig, GPT2LMHeadModel
eight_bits = BitsAndBytesConfig(load_in_8bit=True)
model = GPT2LMHeadModel.from_pretrained("BASE", quantization_config=eight_bits, device_map="cpu")
model.save_pretrained("OLD")
"""
DEQUANTIZE = """
import numpy, torch
from transformers import GPT2LMHeadModel
from attnlab import GPT2
model, tokenizer = GPT2LMHeadModel.from_pretrained("OLD", device_map="cpu").eval(), None
opened = CALL
with torch.no_grad():
    logits = model(torch.tensor([[1, 2, 3]])).logits[0].numpy()
numpy.testing.assert_allclose(opened.trace([1, 2, 3]).logits, logits, rtol=1e-4, atol=1e-4)
original = GPT2.from_pretrained("BASE").trace([1, 2, 3]).logits
assert 1e-3 < abs(logits - original).max() < 1, "rounded to eight bits, and not to none"
"""


def test_advice_for_quantized_weights_works(tmp_path: Path) -> None:
    python = python_with("torch", "transformers", "bitsandbytes")
    copy_model("odd", tmp_path / "BASE")
    walk(python, QUANTIZE, tmp_path)
    with pytest.raises(ConfigError, match="quantized") as caught:
        GPT2.from_pretrained(tmp_path / "OLD")
    call = re.search(r"GPT2\.from_hf\(.+\)$", str(caught.value))
    assert call, str(caught.value)
    walk(python, DEQUANTIZE.replace("CALL", call[0]), tmp_path)


WRITE_NANOGPT = f"""
import numpy, torch
recorded = numpy.load({str(REFERENCE / "nanogpt.npz")!r})
state = {{
    name.replace("biases.state.", "_orig_mod."): torch.tensor(array)
    for name, array in recorded.items() if name.startswith("biases.state.")
}}
sizes = dict(n_layer=2, n_head=2, n_embd=6, block_size=17, bias=True, vocab_size=263, dropout=0.1)
torch.save(
    dict(
        model=state,
        optimizer={{"state": {{}}, "param_groups": []}},
        model_args=sizes,
        iter_num=5000,
        best_val_loss=torch.tensor(1.5),
        config={{"out_dir": "out", "compile": True}},
    ),
    "ckpt.pt",
)
"""
OPEN_NANOGPT = f"""
import doctest
import numpy, torch
from attnlab import GPT2, GPT2Config

# The example that the message leads to, as it stands in the docstring.
steps = doctest.DocTestParser().get_examples(GPT2.from_arrays.__doc__)
tokenizer = None
exec("".join(step.source for step in steps))
loaded = CALL
assert loaded.keys() == checkpoint["model"].keys()
recorded = numpy.load({str(REFERENCE / "nanogpt.npz")!r})
logits = model.trace(recorded["ids"]).logits[:, ::3]
numpy.testing.assert_allclose(logits, recorded["biases.logits"], rtol=1e-4, atol=1e-4)
"""


def test_advice_for_nanogpt_works(tmp_path: Path) -> None:
    python = python_with("torch")
    walk(python, WRITE_NANOGPT, tmp_path)
    with pytest.raises(MissingFileError) as caught:
        GPT2.from_pretrained(tmp_path)
    message = re.search(r"GPT2\.from_arrays.* (torch\.load.+)$", str(caught.value))
    assert message, str(caught.value)
    walk(python, OPEN_NANOGPT.replace("CALL", message[1]), tmp_path)


# Models saved by transformers itself

TUNE = """
import os
import numpy, torch, transformers
from safetensors.torch import save_model
from transformers import AutoTokenizer, GPT2LMHeadModel

tokenizer = AutoTokenizer.from_pretrained("BASE")
ids = torch.randint(263, (4, 12), generator=torch.Generator().manual_seed(1))


def leave(name, model, **options):
    model.save_pretrained(name, **options)
    tokenizer.save_pretrained(name)


for kind in (
    "GPT2Model", "GPT2ForSequenceClassification", "GPT2ForTokenClassification",
    "GPT2ForQuestionAnswering", "GPT2DoubleHeadsModel",
):
    leave(kind, getattr(transformers, kind).from_pretrained("BASE"))
model = GPT2LMHeadModel.from_pretrained("BASE")
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for _ in range(5):
    optimizer.zero_grad()
    model(ids, labels=ids).loss.backward()
    optimizer.step()
leave("tuned", model)
leave("tuned, written once", model)
save_model(model, "tuned, written once/model.safetensors")
numpy.save("ids.npy", ids[0].numpy())
with torch.no_grad():
    numpy.save("tuned.npy", model.eval()(ids[:1]).logits[0].numpy())
"""


def test_what_transformers_saves_opens(tmp_path: Path) -> None:
    """A model as published, with each kind of head, and after a little training."""
    python = python_with("torch", "transformers")
    copy_model("odd", tmp_path / "BASE")
    walk(python, TUNE, tmp_path)
    ids, tuned = np.load(tmp_path / "ids.npy"), np.load(tmp_path / "tuned.npy")
    original = GPT2.from_pretrained(REFERENCE / "odd").trace(ids).logits
    assert not np.allclose(tuned, original, atol=0.1)
    opened = [directory for directory in tmp_path.iterdir() if directory.is_dir()]
    assert len(opened) == 8
    for directory in opened:
        model = GPT2.from_pretrained(directory)
        expected = tuned if "tuned" in directory.name else original
        actual = model.trace(ids).logits
        assert np.allclose(actual, expected, rtol=1e-4, atol=1e-4), directory.name
        assert ("without the head" in model.parameters.origin) == (
            "For" in directory.name or "Heads" in directory.name
        )
        text = "the hen in a thin inn"
        assert len(model.trace(text).head(1, 3).weights) == len(model.tokenizer.encode(text))
