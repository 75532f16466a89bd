import assert from "node:assert/strict";
import { test } from "node:test";
import { placeText, programName, shortAddress, shortLine, shortSpan } from "../src/names";

test("lines lose their directories and nothing else", () => {
  assert.equal(shortLine("/long/path/train.py:31 f"), "train.py:31 f");
  assert.equal(shortLine("/with space/<b>.py:3 operator/"), "<b>.py:3 operator/");
  assert.equal(shortLine("operator aten::mm"), "operator aten::mm");
  assert.equal(shortLine("train.py:31"), "train.py:31");
});

test("spans say first what they are", () => {
  assert.equal(shortSpan("/data/train.py(44): train"), "train  train.py:44");
  assert.equal(shortSpan("torch._ops.aten.mm.default"), "aten.mm.default");
  assert.equal(shortSpan("nn.Module: Linear"), "nn.Module: Linear");
});

test("places are as complete as they are known", () => {
  assert.equal(placeText("/a.py", 3, "f"), "/a.py:3 f");
  assert.equal(placeText("/a.so", 0, "f"), "/a.so f");
  assert.equal(placeText(null, null, "f"), "f");
  assert.equal(shortAddress("0x000012c041200000"), "0x12c041200000");
  assert.equal(shortAddress("0x0000000000000000"), "0x0");
});

test("programs are called by their script", () => {
  assert.equal(programName("/usr/bin/python3 -u /data/train.py --steps 5"), "train.py");
  assert.equal(programName("/tmp/leaky_training"), "leaky_training");
});
