"""Record the ids that transformers' own GPT-2 tokenizer gives to awkward texts.

python tests/reference/make_tokens.py VOCABULARY    (a directory with vocab.json and merges.txt)
"""

import json
import sys
from pathlib import Path

from transformers import GPT2Tokenizer

TEXTS = [
    "a   b",
    "  leading and trailing  ",
    "one\n\n two\t\tthree \r\n four",
    "12345 678, 3.14 and ½ or Ⅷ",
    "I'll we've they're it'd don't I'm 'tis 'S 'LL ’s",
    "!!! ... --- (a) [b] {c} #d @e $f %g",
    "naïve café, Ελλάδα, привет, 猫 吃 鱼, こんにちは",
    "🎉 👩‍👩‍👧 e\u0301\u00a0x\u200by",
    "def f(x):\n        return x  # indent",
]


def main() -> None:
    vocabulary = Path(sys.argv[1])
    tokenizer = GPT2Tokenizer(str(vocabulary / "vocab.json"), str(vocabulary / "merges.txt"))
    recorded = {text: tokenizer(text)["input_ids"] for text in TEXTS}
    target = Path(__file__).parent / "tokens.json"
    target.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
