"""Tests with transformers and BertViz, in a Python that has them."""

import re
from pathlib import Path

from conftest import MODELS, REFERENCE, RELATIVES
from pytorch import ROOT, python_with, walk

TESTS = ROOT / "tests"

TRAINED = f"""
import copy
import numpy as np, torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel
import attnlab

reference = {str(REFERENCE)!r}
tokenizer = AutoTokenizer.from_pretrained(f"{{reference}}/odd")
torch.manual_seed(0)
config = GPT2Config(
    n_embd=24, n_layer=2, n_head=3, n_positions=32, vocab_size=len(tokenizer),
    bos_token_id=None, eos_token_id=None, attn_implementation="eager",
)
theirs = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
answer = tokenizer("the hen in a thin inn and a thin hen", return_tensors="pt")
batch = answer["input_ids"][:, :32]
for step in range(6):
    loss = theirs(batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
theirs.eval()

def of_theirs(model):
    with torch.no_grad():
        return model(batch, output_attentions=True, output_hidden_states=True)

def check(ours, theirs, tolerance=1e-4):
    trace, expected = ours.trace(batch), of_theirs(theirs)
    weights, states = trace["blocks.*.attention.weights"], trace["blocks.*.input"]
    pairs = [
        *zip(weights[:, None], expected.attentions, strict=True),
        *zip([*states[:, None], trace.final[None]], expected.hidden_states, strict=True),
    ]
    if "logits" in expected:
        pairs.append((trace.logits[None], expected.logits))
    for mine, wanted in pairs:
        np.testing.assert_allclose(mine, wanted, rtol=tolerance, atol=tolerance, strict=True)
"""

NEWCOMER = """
theirs.save_pretrained("model")
tokenizer.save_pretrained("model")
opened = attnlab.GPT2.from_pretrained("model")
check(opened, theirs)
text = "the hen <|endoftext|> in Ünn"
made = attnlab.GPT2.from_hf(theirs, tokenizer)
check(made, theirs)
for model in (opened, made):
    assert model.tokenizer.encode(text, special=True) == tokenizer(text)["input_ids"]
"""

IN_MEMORY = """
made = attnlab.GPT2.from_hf(theirs, tokenizer)
before = copy.deepcopy(theirs)
loss = theirs(batch, labels=batch).loss
loss.backward()
optimizer.step()
check(made, before)  # what happens to it later changes nothing here

check(attnlab.GPT2.from_hf(before.transformer), before.transformer)
check(attnlab.GPT2.from_hf(torch.nn.DataParallel(before)), before)
rounded = copy.deepcopy(before).to(torch.bfloat16)
check(attnlab.GPT2.from_hf(rounded), rounded.float())
exact = copy.deepcopy(before).double()
check(attnlab.GPT2.from_hf(exact, dtype=torch.float64), exact, 1e-10)
untied = GPT2LMHeadModel(GPT2Config(**config.to_dict() | {"tie_word_embeddings": False}))
untied.set_attn_implementation("eager")
check(attnlab.GPT2.from_hf(untied.eval()), untied)

with torch.no_grad():
    logits, rounded_loss = exact(batch).logits, exact(batch, labels=batch).loss  # from float32
wanted = torch.nn.functional.cross_entropy(logits[0, :-1], batch[0, 1:], reduction="none")
trace = attnlab.GPT2.from_hf(exact, dtype="float64").trace(batch)
np.testing.assert_allclose(trace.losses, wanted, rtol=0, atol=1e-10, strict=True)
assert abs(trace.loss - wanted.mean()) < 1e-10 and abs(trace.loss - rounded_loss) < 1e-5

asked = attnlab.GPT2.from_hf(before, tokenizer)
texts = [asked.trace(form).tokens for form in (answer, [batch[0]], batch, batch[0], batch.tolist())]
assert texts == [texts[0]] * 5
number = torch.tensor
assert asked.trace(answer).head(number(1), number(-1)).path == "blocks.1.attention.heads.2"
written = [
    asked.generate(answer, make(4), temperature=make(0.5), top_k=make(9), seed=make(3)).new
    for make in (number, lambda value: value)
]
assert written[0] == written[1]

parameters = [torch.nn.Parameter(torch.randn(4, 2)) for _ in range(3)]
X = torch.randn(3, 4).to(torch.bfloat16)
assert attnlab.self_attention(X, *parameters).context.dtype == np.float32
with torch.device("meta"):
    nowhere = GPT2LMHeadModel(config)
try:
    attnlab.GPT2.from_hf(nowhere)
except attnlab.AttnlabError as error:
    assert "wte.weight can't be read" in str(error)
else:
    raise AssertionError("numbers from nowhere")
"""

TOKENIZERS = f"""
import json, shutil
from pathlib import Path
from transformers import AutoTokenizer
from attnlab.checkpoints.arrays import tokenizer_in_memory

reference = Path({str(REFERENCE)!r})
texts = json.loads((reference / "tokenizers.json").read_text(encoding="utf-8"))["texts"]
for name in ("saved_by_5", "added", "bos", "prefix_space", "template", "bert", "unigram"):
    shutil.copytree(reference / "tokenizers" / name, name)
    (Path(name) / "config.json").write_text('{{"model_type": "gpt2"}}')
    theirs = AutoTokenizer.from_pretrained(name)
    for tokenizer in (theirs, theirs.backend_tokenizer):
        ours = tokenizer_in_memory(tokenizer, 0)
        for text in texts:
            assert ours.encode(text, special=True) == theirs(text)["input_ids"], (name, text)
            plain = theirs(text, split_special_tokens=True)["input_ids"]
            assert ours.encode(text) == plain, (name, text)

import attnlab
from transformers import GPT2LMHeadModel
config = attnlab.GPT2Config(vocab_size=256, n_positions=8, n_embd=4, n_layer=1, n_head=1)
run = attnlab.train(config, "the hen " * 9, steps=1, batch_size=1, progress=False)
for model in (attnlab.GPT2.from_pretrained("pocket"), run.model):  # without <|endoftext|>
    model.save("saved")
    theirs = AutoTokenizer.from_pretrained("saved")
    again = attnlab.GPT2.from_hf(GPT2LMHeadModel.from_pretrained("saved"), theirs)
    assert again.trace("The dog").tokens == model.trace("The dog").tokens
    shutil.rmtree("saved")
"""

VIEWS = f"""
import json, re
import numpy as np, torch
from bertviz import head_view, model_view
import attnlab

trace = attnlab.GPT2.from_pretrained({str(REFERENCE / "odd")!r}).trace("the hen in a thin inn")
weights = trace["blocks.*.attention.weights"]
attention = list(torch.tensor(weights)[:, None])
for view in (head_view, model_view):
    html = view(attention, trace.tokens.symbols, prettify_tokens=False, html_action="return").data
    drawn = json.loads(re.search(r'"attn": (\\[.*?\\]\\]\\]\\])', html)[1])
    np.testing.assert_array_equal(np.float32(drawn), weights)
    names = json.loads(re.search(r'"left_text": (\\[.*?\\])', html)[1])
    assert names == list(trace.tokens.symbols)
"""


OWN = """
import math
import numpy as np, torch
from torch.nn.functional import scaled_dot_product_attention
import attnlab
from attnlab import attention, multi_head_attention

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
B, H, G, T, Tk, Dk, Dv = 3, 4, 2, 5, 7, 6, 3
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10, strict=True)
numbers = lambda x: x.detach().numpy()

# scale, additive masks and their gradients
Q, K, V = torch.randn(B, H, T, Dk), torch.randn(B, H, Tk, Dk), torch.randn(B, H, Tk, Dv)
hidden = torch.zeros(B, 1, 1, Tk)
hidden[..., 5:] = -math.inf
bias = torch.randn(H, T, Tk)
d = torch.randn(B, H, T, Dv)
for scale in (None, 1.0, 2.5, -3.0):
    inputs = [x.clone().requires_grad_() for x in (Q, K, V, bias)]
    factor = None if scale is None else 1 / scale
    theirs = scaled_dot_product_attention(*inputs[:3], attn_mask=inputs[3] + hidden, scale=factor)
    theirs.backward(d)
    ours = attention(*inputs[:3], scale=scale, bias=inputs[3] + hidden)
    close(ours.context, numbers(theirs))
    gradients = attnlab.gradients(ours, d=d)
    for name, x in zip("QKV", inputs):
        close(getattr(gradients, name), numbers(x.grad))
    close(gradients.score_bias.sum(0), numbers(inputs[3].grad))

# the guide's recipes; T queries at the positions of the first T keys
K, V = K[:, :, :T], V[:, :, :T]
distance = np.subtract.outer(np.arange(T), np.arange(T))
text, is_token = np.array([0, 0, 1, 1, 1]), np.arange(T) < np.array([[5], [3], [4]])
own = np.random.default_rng(0).random((B, T, T)) < 0.5
own[..., 0] = True
slopes = 2.0 ** -np.arange(1, H + 1)
for mask in (
    (distance >= 0) & (distance < 4),
    (text[:, None] == text) & (distance >= 0),
    is_token[:, None, None] & (distance >= 0),
    own[:, None],
):
    theirs = scaled_dot_product_attention(Q, K, V, attn_mask=torch.tensor(mask))
    close(attention(Q, K, V, mask).context, numbers(theirs))
    added = torch.where(torch.tensor(mask), 0.0, -math.inf)
    close(attention(Q, K, V, bias=added).context, numbers(theirs))
theirs = scaled_dot_product_attention(Q, K, V, is_causal=True)
close(attention(Q, K, V, distance >= 0).context, numbers(theirs))
alibi = -slopes[:, None, None] * distance
theirs = scaled_dot_product_attention(Q, K, V, attn_mask=torch.tensor(alibi))
close(attention(Q, K, V, bias=alibi).context, numbers(theirs))
grouped = attention(Q.reshape(B, G, H // G, T, Dk), K[:, :G, None], V[:, :G, None])
theirs = scaled_dot_product_attention(Q, K[:, :G], V[:, :G], enable_gqa=True)
close(grouped.context.reshape(B, H, T, Dv), numbers(theirs))

# all gradients of cross-attention
D = 8
module = torch.nn.MultiheadAttention(D, H, batch_first=True)
torch.nn.init.normal_(module.in_proj_bias)
X, memory, of_heads = (torch.randn(*s) for s in ((B, T, D), (B, Tk, D), (B, H, T, Tk)))
for x in (X, memory, of_heads):
    x.requires_grad_()
theirs, _ = module(X, memory, memory, attn_mask=of_heads.flatten(0, 1))
d = torch.randn(B, T, D)
theirs.backward(d)
W, b = module.in_proj_weight.T.chunk(3, 1), module.in_proj_bias.chunk(3)
ours = multi_head_attention(
    X, *W, module.out_proj.weight.T, n_head=H, memory=memory, bias=of_heads,
    b_Q=b[0], b_K=b[1], b_V=b[2], b_O=module.out_proj.bias,
)
close(ours.output, numbers(theirs))
gradients = attnlab.gradients(ours, d=d)
for name, x in (("X", X), ("memory", memory), ("score_bias", of_heads)):
    close(getattr(gradients, name), numbers(x.grad))
of_W, of_b = module.in_proj_weight.grad.chunk(3), module.in_proj_bias.grad.chunk(3)
for name, W, b in zip("QKV", of_W, of_b):
    close(getattr(gradients, f"W_{name}"), numbers(W.T))
    close(getattr(gradients, f"b_{name}"), numbers(b))
close(gradients.W_O, numbers(module.out_proj.weight.grad.T))
"""


VERIFIED = f"""
import contextlib, io, re, shutil
from pathlib import Path
import torch
from safetensors.numpy import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel
from attnlab.cli.command import main

reference = Path({str(REFERENCE)!r})

def verified(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(["verify", "--lang", "en", *map(str, arguments)])
    return status, out.getvalue()

def copied(name, like="odd"):
    shutil.copytree(reference / like, name)
    return Path(name)
"""

SAME_NUMBERS = f"""
for name in {(*MODELS, *RELATIVES)}:
    status, out = verified(reference / name)
    assert status == 0, out
    assert re.search(r"3 texts: (\\d+) of \\1 steps agree\\n", out), out
    assert "embedding" in out and ".attention.weights" in out and "logits" in out

for n, settings in enumerate((
    dict(n_embd=48, n_head=12, n_layer=3),
    dict(n_embd=21, n_head=3, n_layer=2, scale_attn_by_inverse_layer_idx=True, n_inner=10),
    dict(n_embd=16, n_head=1, n_layer=1, scale_attn_weights=False, activation_function="gelu"),
)):
    torch.manual_seed(n)
    directory = copied(f"random{{n}}")
    settings |= dict(n_positions=64, vocab_size=263, bos_token_id=None, eos_token_id=None)
    config = GPT2Config(initializer_range=0.3, **settings)
    GPT2LMHeadModel(config).save_pretrained(directory)
    status, out = verified(directory)
    assert status == 0, out
"""

DAMAGED = """
for n, (tensor, place, path) in enumerate((
    ("wpe.weight", (1, 2), "position_embedding"),
    ("h.1.attn.c_attn.weight", (3, 100), "blocks.1.attention.V"),
    ("h.1.attn.c_proj.bias", (4,), "blocks.1.attention.output"),
    ("h.2.ln_2.weight", (0,), "blocks.2.mlp.X"),
    ("h.0.mlp.c_fc.weight", (5, 6), "blocks.0.mlp.hidden"),
    ("ln_f.bias", (7,), "final"),
)):
    directory = copied(f"damaged{n}")
    arrays = load_file(directory / "model.safetensors")
    arrays[f"transformer.{tensor}"][place] += 0.01
    save_file(arrays, directory / "model.safetensors")
    status, out = verified(directory, "--model", reference / "odd")
    assert status == 1, out
    assert f"; the first that differs is {path}\\n" in out, out
    assert verified(directory)[0] == 0

directory = copied("other_tokens")
text = (directory / "vocab.json").read_text(encoding="utf-8")
swapped = text.replace('"e":', '"?":').replace('"d":', '"e":').replace('"?":', '"d":')
(directory / "vocab.json").write_text(swapped, encoding="utf-8")
status, out = verified(directory, "--model", reference / "odd")
assert status == 1
assert out.endswith("3 of these texts have other tokens in transformers.\\n"), out
status, out = verified(directory / "nothing", "--model", reference / "odd")
assert status == 2

directory = copied("without_a_tokenizer")
for file in ("vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"):
    (directory / file).unlink(missing_ok=True)
status, out = verified(directory)
assert status == 0 and ", 3 texts of random ids: " in out

directory = copied("names_that_transformers_lacks")
arrays = load_file(directory / "model.safetensors")
save_file({f"module.{name}": x for name, x in arrays.items()}, directory / "model.safetensors")
with contextlib.redirect_stderr(io.StringIO()) as err:
    assert verified(directory) == (2, "")
assert "transformers doesn't find lm_head.weight and 40 more in " in err.getvalue()
del arrays["transformer.ln_f.bias"]
save_file(arrays, directory / "model.safetensors")
with contextlib.redirect_stderr(io.StringIO()) as err:
    assert verified(directory, "--model", reference / "odd") == (2, "")
assert "transformers doesn't find transformer.ln_f.bias in " in err.getvalue()
"""


def test_verified_with_transformers(tmp_path: Path) -> None:
    """Odd heads, other scales and activations, half precision; large random weights."""
    walk(python_with("torch", "transformers"), VERIFIED + SAME_NUMBERS, tmp_path)


def test_where_a_damaged_model_begins_to_differ(tmp_path: Path) -> None:
    walk(python_with("torch", "transformers"), VERIFIED + DAMAGED, tmp_path)


def test_checking_a_gpt2_written_in_pytorch(tmp_path: Path) -> None:
    """Train, save, open and view: each head's weights equal those of transformers."""
    walk(python_with("torch", "transformers"), TRAINED + NEWCOMER, tmp_path)


def test_models_in_memory(tmp_path: Path) -> None:
    walk(python_with("torch", "transformers"), TRAINED + IN_MEMORY, tmp_path)


def test_tokenizers_in_memory(tmp_path: Path) -> None:
    walk(python_with("torch", "transformers", "tokenizers"), TOKENIZERS, tmp_path)


def test_attentions_work_with_bertviz(tmp_path: Path) -> None:
    walk(python_with("torch", "bertviz", "IPython"), VIEWS, tmp_path)


ARTICLES = (ROOT / "examples/book/pages/en/articles.md").read_text("utf-8")
STAGES, CLASS, CAT = re.findall("```python\n(.+?)```", ARTICLES, re.DOTALL)
ON_ARTICLES = """
import numpy as np, torch, attnlab
from attnlab import figures

def agree(name, decimals=6, **computed):
    published = figures.load(name)
    for path, array in computed.items():
        stage, _, step = path.rpartition("__")
        expected = (published[stage] if stage else published)[step]
        assert figures.compare(path, array.detach().numpy(), expected, decimals).agrees, path

X = figures.load("journey")["inputs"]
"""


def test_the_listings_of_the_articles_page(tmp_path: Path) -> None:
    """The stages of chapter 4 and the head of chapter 3 in PyTorch; the class that is kept."""
    stages = f"""{ON_ARTICLES}{STAGES}
agree("journey", no_weights__weights=weights, no_weights__context=context)
agree("journey", self_attention__W_V=W_V, self_attention__raw_scores=raw_scores)
agree("journey", self_attention__weights=alpha, self_attention__context=z)
agree("journey", self_attention_linear__W_Q=query.weight.T, self_attention_linear__V=V)
agree("journey", causal__zeroed_weights=zeroed, causal__renormalised_weights=renormalised)
agree("journey", causal__weights=causal_weights, causal__context=causal_context)
agree("journey", dropout__weights=dropped, multi_head__concatenated=concat)
{CLASS}
X, W = np.random.default_rng(0).normal(size=(7, 6)), np.random.default_rng(1).normal(size=(4, 6, 6))
expected = attnlab.multi_head_attention(X, *W, n_head=3, mask=attnlab.causal_mask(7)).output
given = CausalAttention(*W, 3)(torch.tensor(X)).detach().numpy()
np.testing.assert_allclose(given, expected, atol=1e-12)
cat = figures.load("cat_eats_fish")
X, W_Q, W_K, W_V = (np.array(cat[name]) for name in ("X", "W_Q", "W_K", "W_V"))
{CAT}
agree("cat_eats_fish", 4, Q=Q, K=K, V=V, scores=scores, weights=weights, context=context)
"""
    walk(python_with("torch"), stages, tmp_path)


CHAPTER = (ROOT / "examples" / "15_write_your_own.py").read_text(encoding="utf-8")
IN_CHAPTER = CHAPTER[CHAPTER.index("#     layer = torch.nn.MultiheadAttention") :].split("\n\n")[0]
MULTIHEAD = f"""
from functools import partial
import numpy as np, torch, attnlab
ours = attnlab.GPT2.from_pretrained("pocket").trace("The dog chased the ball").blocks[0].attention
X, W_O, b_O, mask = (np.array(getattr(ours, name)) for name in ("X", "W_O", "b_O", "mask"))
W_QKV = np.concatenate([ours.W_Q, ours.W_K, ours.W_V], axis=1)
b_QKV = np.concatenate([ours.b_Q, ours.b_K, ours.b_V])
H, D = len(ours.weights), X.shape[1]
{IN_CHAPTER.replace("#     ", "")}
mean = layer(x, x, x, attn_mask=hidden)[1]
close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
close(output[0].detach(), ours.output)
close(weights[0].detach(), ours.weights)
close(mean[0].detach(), ours.weights.mean(axis=0))
"""


def test_attention_of_ones_own_arrays_equals_pytorchs(tmp_path: Path) -> None:
    """Scale, bias, masks, gradients and the guide's recipes."""
    walk(python_with("torch"), OWN, tmp_path)


def test_multihead_attention_equals_pytorchs(tmp_path: Path) -> None:
    """The code of chapter 15, and what it says about the weights that are returned."""
    walk(python_with("torch"), MULTIHEAD, tmp_path)


HALVES = f"""
import sys
sys.path[:0] = [{str(TESTS)!r}, {str(REFERENCE)!r}]
import torch
from hooked import steps_of
from transformers import GPT2LMHeadModel
from attnlab import GPT2, check
from attnlab.checkpoints.hub import BUILT_IN

trace = GPT2.from_pretrained("pocket").trace("The dog chased the ball, but it")
NAMES = "X Q K V scores weights context concat output mid hidden activated embedding final logits"

def in_half(kind):
    directory = BUILT_IN["pocket"].directory
    model = GPT2LMHeadModel.from_pretrained(directory, attn_implementation="eager").eval()
    dtype = getattr(torch, kind.removeprefix("autocast "))
    is_autocast = kind.startswith("autocast")
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=is_autocast):
        steps = steps_of(model if is_autocast else model.to(dtype), torch.tensor(trace.ids))
    kept = {{path: x for path, x in steps.items() if ".heads." not in path}}
    return {{path: x for path, x in kept.items() if path.split(".")[-1] in NAMES.split()}}

for kind in ("float16", "bfloat16", "autocast float16", "autocast bfloat16"):
    correct = in_half(kind)
    as_float32 = {{path: x.float().numpy() for path, x in correct.items()}}
    for steps in (correct, as_float32):
        for submitted in (steps, {{"logits": steps["logits"]}}):
            verdict = check(submitted, trace)
            assert verdict.agrees, kind
            assert max(stage.rounding for stage in verdict.stages) < 0.75
    assert not check(correct | {{"logits": correct["logits"] * 1.2}}, trace).agrees
"""


def test_checking_steps_in_half_precision(tmp_path: Path) -> None:
    walk(python_with("torch", "transformers"), HALVES, tmp_path)
