import assert from "node:assert/strict";
import test from "node:test";

import { csvOf } from "../scripts/numbers/csv.js";

test("numbers keep all digits, and texts their commas, quotes and line breaks", () => {
  const x = Math.fround(0.1);
  const csv = csvOf([["key", "weights"], ["Ġa,b", x], ['say "hi"', -Infinity], ["two\nlines", 1e-300], ["", 0]]);
  assert.equal(csv, 'key,weights\r\n"Ġa,b",0.10000000149011612\r\n"say ""hi""",-Infinity\r\n"two\nlines",1e-300\r\n,0\r\n');
});
