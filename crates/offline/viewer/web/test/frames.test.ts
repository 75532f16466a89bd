import assert from "node:assert/strict";
import { test } from "node:test";
import { groupFrames } from "../src/components/frames";

test("frames without lines of one library are folded, others are not", () => {
  const frame = (file: string, line: number) => ({ function: "f", file, line });
  const frames = [
    frame("a.py", 3),
    frame("lib.so", 0),
    frame("lib.so", 0),
    frame("other.so", 0),
    frame("a.py", 4),
    frame("a.py", 5),
    frame("", 0),
    frame("", 0),
  ];
  assert.deepEqual(
    groupFrames(frames).map((group) => group.length),
    [1, 2, 1, 1, 1, 1, 1],
  );
});
