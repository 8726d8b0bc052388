"""The equations of `attnlab.equations` in TeX, translated from their code, and a page of both."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re

from attnlab import equations

TITLES = {
    "en": (
        "# The equations\n\nGPT-2 on one page: `attnlab.equations`, the code that computes every "
        "number of this book, and beside each function the same equation, translated from that "
        "code. A product without a sign is a matrix product, ⊙ multiplies number by number, and "
        "sums and maxima run over a row. `gpt2`, and functions that only cut or join arrays, are "
        "shown as code."
    ),
    "zh": (
        "# 方程\n\nGPT-2 的全部方程都在一页上：`attnlab.equations`，书里的每个数都由这些代码算出。"
        "每个函数旁边是同一个方程，由代码翻译而来。没有符号的乘积是矩阵乘法，⊙ 是逐个数相乘，"
        "求和与取最大都沿着一行。`gpt2` 和只切开或拼接数组的函数，只列代码。"
    ),
}
SYMBOLS = {
    "epsilon": r"\varepsilon",
    "math.pi": r"\pi",
    "math.inf": r"\infty",
    "np.tanh": r"\tanh",
    "np.maximum": r"\max",
    "normal_cdf": r"\Phi",
    "sigmoid": r"\sigma",
}
# Functions of one argument, as TeX with a placeholder for it; {{{}}} has braces of its own.
AROUND = {
    **dict.fromkeys(("math.sqrt", "np.sqrt"), r"\sqrt{{{}}}"),
    "np.square": "{}^2",
    "np.exp": "e^{{{}}}",
    "transpose": r"{}^\top",
}
SIGNS = {ast.Add: " + ", ast.Sub: " - ", ast.Mult: r" \odot ", ast.MatMult: r" \, "}
SECTION = re.compile("# ---- (.+?) -+$")
SECTIONS = {
    "From ids to the residual stream": "从 id 到残差流",
    "A block's attention": "一层的注意力",
    "The residual stream, and the MLP": "残差流和 MLP",
    "From the residual stream to the next token": "从残差流到下一个词元",
    "GPT-2, composed": "合起来的 GPT-2",
    "One head of a multi-head step": "多头步骤里的一个头",
    "Building blocks": "基本函数",
}
OVER_A_ROW = {"sum": r"\sum", "max": r"\max"}


class Untranslatable(Exception):
    """A node of Python's syntax tree that has no notation."""


def tex(function: ast.FunctionDef) -> list[str]:
    """A function as equations, one for each statement."""
    parameters = [argument.arg for argument in function.args.args]
    left = name(function.name) + (
        f"({', '.join(map(name, parameters))})" if "x" in parameters else ""
    )
    equations = []
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=of)], value=value):
                equations.append(f"{name(of)} = {expression(value)}")
            case ast.Return(value=ast.expr() as value):
                equations.append(f"{left} = {expression(value)}")
            case _:
                raise Untranslatable(node)
    return equations


def name(text: str) -> str:
    """A name as TeX: words upright, a letter italic, with what follows its `_` as a subscript."""
    if text in SYMBOLS:
        return SYMBOLS[text]
    first, _, rest = text.partition("_")
    if len(first) == 1:
        subscript = rf"\text{{{rest}}}" if rest[1:].islower() else rest
        return f"{first}_{{{subscript}}}" if rest else first
    return rf"\text{{{text.replace('_', ' ')}}}"


def expression(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=int(value) | float(value)):
            return f"{value:g}" if value < 1e-3 else repr(value).removesuffix(".0")
        case ast.Name(id=text):
            return name(text)
        case ast.Attribute(value=ast.Name(id=module), attr=attribute) if module in ("np", "math"):
            return SYMBOLS[f"{module}.{attribute}"]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{expression(operand)}"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return rf"\frac{{{expression(left)}}}{{{expression(right)}}}"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS:
            sign = r" \cdot " if isinstance(op, ast.Mult) and is_number(left) else SIGNS[type(op)]
            return f"{factor(left, op)}{sign}{factor(right, op)}"
        case ast.IfExp(test=ast.Compare(ops=[ast.Is()]), orelse=other):
            return expression(other)  # what is None is left out
        case ast.Call(func=ast.Attribute(attr="type"), args=[number]):
            return expression(number)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=attribute)) if (
            attribute in OVER_A_ROW
        ):
            return rf"{OVER_A_ROW[attribute]}_j {name(of)}_j"
        case ast.Call(func=function, args=[condition, then, other]) if (
            ast.unparse(function) == "np.where"
        ):
            cases = (
                rf"{expression(then)} & \text{{if }} {expression(condition)}",
                expression(other),
            )
            return rf"\begin{{cases}} {cases[0]} \\ {cases[1]} & \text{{else}} \end{{cases}}"
        case ast.Call(func=function, args=[x]) if ast.unparse(function) in AROUND:
            of = expression(x) if "{{{}}}" in AROUND[ast.unparse(function)] else factor(x, None)
            return AROUND[ast.unparse(function)].format(of)
        case ast.Call(func=ast.Name() | ast.Attribute() as function, args=args, keywords=[]):
            return f"{expression(function)}({', '.join(map(expression, args))})"
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=of), attr="shape")):
            return rf"\text{{width of }} {name(of)}"
        case ast.Subscript(value=ast.Name(id=of), slice=ast.Name(id=rows)):
            return rf"{name(of)}[{name(rows)}]"
        case ast.Subscript(value=ast.Name(id=of), slice=ast.Tuple(elts=[_, ast.UnaryOp(), _])):
            return rf"{name(of)}_{{T-1}}"  # x[..., -1, :] is the last row
    raise Untranslatable(node)


def factor(node: ast.expr, op: ast.operator | None) -> str:
    """An operand of `op`, or of a function if `op` is None, in brackets if it needs them."""
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    needs_brackets = isinstance(node, ast.BinOp) if op is None else is_sum
    if needs_brackets and not isinstance(op, ast.Add):
        return rf"\left({expression(node)}\right)"
    return expression(node)


def is_number(node: ast.expr) -> bool:
    return all(part.id == "math" for part in ast.walk(node) if isinstance(part, ast.Name))


def page(language: str) -> str:
    """A page with every equation, typeset and as code."""
    source = inspect.getsource(equations)
    unread_lines = dict(enumerate(source.splitlines(), 1))
    lines = [TITLES[language]]
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for number in sorted(unread_lines):  # a heading may stand before the function
            if number < node.lineno and (heading := SECTION.match(unread_lines.pop(number))):
                english = heading[1][0].upper() + heading[1][1:]
                lines.append(f"## {SECTIONS[english] if language == 'zh' else english}")
        lines.append(f'```{{raw}} html\n<span id="{node.name}"></span>\n```')
        with contextlib.suppress(Untranslatable):
            lines += [f"```{{math}}\n{equation}\n```" for equation in tex(node)]
        code = "\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])
        lines.append(f"```python\n{code}\n```")
    return "\n\n".join(lines) + "\n"
