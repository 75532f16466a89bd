import assert from "node:assert/strict";
import { test } from "node:test";
import { frameTotals, layoutFlame, sameNode, searchFlame } from "../src/canvas/flame-layout";
import { limited, zoomed } from "../src/canvas/time";
import { squarify } from "../src/canvas/treemap";
import type { Flame } from "../src/source/answers";

function flame(): Flame {
  const frame = (name: string) => ({ function: name, file: name === "all" ? "" : `/data/${name}.py`, line: 3 });
  return {
    complete: true,
    kind: "peak",
    t: 0,
    total_bytes: 100,
    pruned_bytes: 0,
    parent: [-1, 0, 1, 1, 2],
    name: [0, 1, 2, 3, 1],
    bytes: [100, 100, 60, 30, 60],
    blocks: [4, 4, 2, 1, 2],
    self_bytes: [0, 10, 0, 30, 60],
    names: ["all", "main", "train", "load"].map(frame),
  };
}

test("frames are as wide as their share", () => {
  const boxes = layoutFlame(flame(), 0);
  assert.deepEqual(
    boxes.map((box) => [box.node, box.depth, box.left, box.width]),
    [
      [0, 0, 0, 1],
      [1, 1, 0, 1],
      [2, 2, 0, 0.6],
      [4, 3, 0, 0.6],
      [3, 2, 0.6, 0.3],
    ],
  );
});

test("a focused frame takes the whole width, below its callers", () => {
  const boxes = layoutFlame(flame(), 3);
  assert.deepEqual(
    boxes.map((box) => [box.node, box.depth, box.width]),
    [
      [0, 0, 1],
      [1, 1, 1],
      [3, 2, 1],
    ],
  );
});

test("what a search finds is counted once", () => {
  assert.deepEqual(searchFlame(flame(), "MAIN").bytes, 100);
  assert.deepEqual([...searchFlame(flame(), "main").nodes], [1, 4]);
  assert.deepEqual(searchFlame(flame(), "train.py:3").bytes, 60);
  assert.equal(searchFlame(flame(), " ").nodes.size, 0);
});

test("recursive frames are summed once", () => {
  const totals = frameTotals(flame());
  assert.deepEqual(
    totals.map((total) => [total.name, total.own, total.total]),
    [
      [1, 70, 100],
      [3, 30, 30],
      [2, 0, 60],
    ],
  );
});

test("areas of a treemap are in proportion and inside", () => {
  const area = { x: 10, y: 20, width: 300, height: 200 };
  const values = [500, 300, 100, 50, 50, 1];
  const boxes = squarify(values, area);
  const total = values.reduce((sum, value) => sum + value, 0);
  boxes.forEach((box, index) => {
    assert.ok(Math.abs(box.width * box.height - (values[index]! / total) * 60_000) < 1e-6);
    assert.ok(
      box.x >= 10 - 1e-9 && box.y >= 20 - 1e-9 && box.x + box.width <= 310 + 1e-9 && box.y + box.height <= 220 + 1e-9,
    );
  });
  assert.deepEqual(squarify([], area), []);
});

test("windows stay within the recording", () => {
  assert.deepEqual(limited(-50, 50, [0, 1000]), [0, 100]);
  assert.deepEqual(limited(950, 1150, [0, 1000]), [800, 1000]);
  assert.deepEqual(limited(-10, 5000, [0, 1000]), [0, 1000]);
  assert.deepEqual(limited(500, 501, [0, 1000]), [491, 511]);
  assert.deepEqual(zoomed([0, 100], 25, 0.5), [12.5, 62.5]);
});

test("a frame is found again in a newer graph", () => {
  const newer = flame();
  // "load" has overtaken "train".
  newer.name = [0, 1, 3, 2, 1];
  newer.parent = [-1, 0, 1, 1, 3];
  assert.equal(sameNode(flame(), newer, 3), 2);
  assert.equal(sameNode(flame(), newer, 4), 4);
  assert.equal(sameNode(flame(), newer, 0), 0);
  newer.name = [0, 1, 2, 2, 1];
  assert.equal(sameNode(flame(), newer, 3), 0, "what is gone is not replaced by something else");
});
