"""A checkpoint of the shape of published Chinese GPT-2s, with random weights.

They have BERT's tokenizer: characters, English in lower-case pieces, and 21,128 tokens.
"""

import json
import string
from pathlib import Path

import numpy as np

from attnlab import GPT2Config
from attnlab.checkpoints.checkpoint import save_parameters
from attnlab.support.language import using_language
from attnlab.support.messages import say
from attnlab.training.parameters import initial_parameters

ROWS = 21_128


def in_chinese(text: str, **values: object) -> str:
    with using_language("zh"):
        return say(text, **values)


# Settings as published models have them.
CONFIG = {
    "model_type": "gpt2",
    "n_ctx": 64,
    "output_past": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 320}},
    "tokenizer_class": "BertTokenizer",
}


# Texts with what BERT's tokenizer treats specially.
TEXTS = (
    "今天天气很好，我们一起去",
    "GPT-2 was trained in 2019年，it isn't new!",
    "“你好”，他说：“3.14……”",
    "caf\u00e9 CAFÉ Ελλ 한국 の 😀 \u3000\t龥",
    "playing (attention) ﹏ the\u200bcat",
    "今天12月21日",
)


def vocabulary() -> list[str]:
    """A vocabulary in the order of BERT's Chinese one."""
    unused = (f"[unused{n}]" for n in range(1, 100))
    special = ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    signs = [*string.punctuation, *"，。！？：；、（）《》“”‘’…—·"]
    letters = [*string.digits, *string.ascii_lowercase, *string.ascii_uppercase]
    words = ["the", "it", "in", "was", "cat", "play", "12", "2021", "α"]
    ends = ["##ed", "##ing", "##ion", "##σ"]
    pieces = [f"##{letter}" for letter in letters]
    start = [*special, *signs, *letters, *words, *ends, *pieces]
    return [*start, *(chr(0x4E00 + n) for n in range(ROWS - len(start)))]


def write_checkpoint(directory: Path, do_lower_case: bool = False) -> Path:
    """Write the files of a model with BERT's tokenizer, as they are downloaded."""
    config = GPT2Config(vocab_size=ROWS, n_positions=64, n_embd=24, n_layer=2, n_head=3)
    save_parameters(initial_parameters(config, np.random.default_rng(0)), directory)
    config.save(directory)
    file = directory / "config.json"
    file.write_text(json.dumps(CONFIG | json.loads(file.read_text())))
    (directory / "vocab.txt").write_text("\n".join(vocabulary()) + "\n", encoding="utf-8")
    settings = {"do_lower_case": do_lower_case, "model_max_length": 1024}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory
