"""How a number is computed, from its equation to a text: one module for each stage.

1. `formulas` evaluates and writes formulas, which are trees of operations.
2. `derivations` runs each equation on symbols to get its formulas, one formula for each line.
3. `step_number` evaluates and verifies the formulas of one number of a step, and writes them as
   lines with numbers.
4. `explanation` holds the lines of a number, or of a row of weights, and prints them.
5. `explain` finds the number that was asked for, and makes its explanation.

The page evaluates the same formulas in JavaScript.
"""
