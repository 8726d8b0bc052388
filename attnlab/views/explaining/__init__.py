"""How a number is computed, from its equation to a text: one module for each stage.

1. `formulas` evaluates formulas, which are trees of operations, and writes them as text.
2. `derivations` runs an equation on symbols to find its formulas, one for each line of text.
3. `step_number` is one number of a step. It evaluates the lines, verifies the result, and writes
   the lines with numbers.
4. `explanation` has the lines that explain a number or a row of weights, and prints them.
5. `explain` finds the number that a user asks for, and makes its explanation.

The page evaluates the same formulas in JavaScript.
"""
