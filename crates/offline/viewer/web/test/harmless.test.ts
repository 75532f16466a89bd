import assert from "node:assert/strict";
import { test } from "node:test";
import { harmless, original, parseHarmless } from "../src/source/harmless";

const HOSTILE = "a\u0000b\u001b[31m\u202eevil\u2066x\u200f\u009d\ufeff\u2028";

test("dangerous characters become visible and come back", () => {
  const shown = harmless(HOSTILE);
  assert.equal(shown, "a‹00›b‹1B›[31m‹202E›evil‹2066›x‹200F›‹9D›‹FEFF›‹2028›");
  assert.equal(original(shown), HOSTILE);
  assert.equal(harmless("tab\tand\nnewline <b>é中</b>"), "tab\tand\nnewline <b>é中</b>");
  assert.equal(original("‹ab› ‹41› ‹›"), "‹ab› ‹41› ‹›");
});

test("JSON is read harmlessly, escaped or not", () => {
  const value = { name: HOSTILE, list: [HOSTILE, 5, null] };
  const expected = { name: harmless(HOSTILE), list: [harmless(HOSTILE), 5, null] };
  assert.deepEqual(parseHarmless(JSON.stringify(value)), expected);
  const escaped = JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );
  assert.deepEqual(parseHarmless(escaped), expected);
  for (const code of [1, 8, 12, 0x1f, 0x7f, 0x85, 0x61c, 0x200b, 0x200e, 0x202a, 0x2060, 0x2069]) {
    const character = String.fromCharCode(code);
    for (const json of [JSON.stringify(character), `"\\u${code.toString(16).padStart(4, "0")}"`]) {
      assert.notEqual(parseHarmless(json), character, code.toString(16));
    }
  }
});
