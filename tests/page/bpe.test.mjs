import assert from "node:assert/strict";
import test from "node:test";

import { Tokenizer } from "../scripts/numbers/bytepairs.js";

test("names of special tokens may have any signs", () => {
  const names = ["<|start-of-text|>", "[a/b]{2}", "\\d+", "(^.*?$)"];
  const tokenizer = new Tokenizer({
    ...{ pattern: "[^]", vocab: { a: 0, "-": 1 }, merges: [], names: [], literalIds: [], special: names },
    ...{ addedTokens: [names.map((name, n) => [name, n + 2])], addPrefixSpace: false, prefix: [], rows: 6 },
  });
  for (const [n, name] of names.entries()) assert.deepEqual(tokenizer.encode(`a-${name}-a`, names), [0, 1, n + 2, 1, 0]);
});
