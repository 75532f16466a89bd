import assert from "node:assert/strict";
import { test } from "node:test";
import { ALL_TEXTS, setLanguage, text, textOr } from "../src/texts";

test("every text exists in both languages, with the same places for numbers", () => {
  for (const [key, [english, chinese]] of Object.entries(ALL_TEXTS)) {
    assert.ok(english.length > 0 && chinese.length > 0, key);
    const places = (pattern: string) => [...new Set(pattern.match(/\{\d\}/g) ?? [])].sort().join();
    if (!key.startsWith("finding_")) assert.equal(places(english), places(chinese), key);
  }
});

test("numbers go into their places", () => {
  setLanguage("en");
  assert.equal(text("table_of", 1, 100, "2,000"), "1–100 of 2,000");
  setLanguage("zh");
  assert.equal(text("table_of", 1, 100, "2,000"), "第 1–100 条，共 2,000 条");
  setLanguage("en");
  assert.equal(textOr("col_bytes", "bytes"), "Size");
  assert.equal(textOr("constructor", "as it is"), "as it is");
});
