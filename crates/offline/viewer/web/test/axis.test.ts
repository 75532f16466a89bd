import assert from "node:assert/strict";
import { test } from "node:test";
import { byteTicks, timeTicks } from "../src/canvas/axis";

const MIB = 1024 * 1024;

test("memory axes have round binary numbers", () => {
  assert.deepEqual(
    byteTicks(61 * MIB, 4).map((tick) => tick.label),
    ["0", "20 MiB", "40 MiB", "60 MiB"],
  );
  assert.deepEqual(
    byteTicks(0, 4).map((tick) => tick.label),
    ["0"],
  );
  assert.deepEqual(
    byteTicks(900, 3).map((tick) => tick.label),
    ["0", "500 B"],
  );
  for (const most of [1, 1023, 5 * 1024, 700 * MIB, 3.9 * 1024 * MIB, 61 * 1024 * MIB]) {
    const ticks = byteTicks(most, 5);
    assert.ok(ticks.length >= 2 && ticks.length <= 11, `${most}: ${ticks.length}`);
    assert.equal(new Set(ticks.map((tick) => tick.label)).size, ticks.length, `${most}`);
  }
});

test("time axes have round numbers that differ", () => {
  assert.deepEqual(
    timeTicks(0, 2_230_000, 5).map((tick) => tick.label),
    ["0", "500 µs", "1.0 ms", "1.5 ms", "2.0 ms"],
  );
  const near = timeTicks(1_000_000_000, 1_000_000_100, 4);
  assert.equal(new Set(near.map((tick) => tick.label)).size, near.length);
  assert.deepEqual(
    timeTicks(100, 2_100_000_100, 3, 100).map((tick) => tick.label),
    ["0", "1 s", "2 s"],
  );
});
