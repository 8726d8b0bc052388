"""How a number is computed, from its equation to a text: one module for each stage.

1. `formulas` are trees of operations, which it evaluates and writes.
2. `derivations` has the formulas of each equation, one for each line, made by running the equation
   on symbols.
3. `step_number` is one number of a step: it evaluates and verifies the lines, and writes them with
   numbers.
4. `explanation` holds the lines of a number, or of a row of weights, and prints them.
5. `explain` finds the number that was asked for, and makes its explanation.

The page evaluates the same formulas in JavaScript.
"""
