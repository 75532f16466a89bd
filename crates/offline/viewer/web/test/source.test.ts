import assert from "node:assert/strict";
import { test } from "node:test";
import { EmbeddedSource } from "../src/source/embedded";
import { queryText } from "../src/source/source";

test("equal questions have equal addresses", () => {
  assert.equal(queryText({ t: 5, device: "0", owner: "", site: null, invert: true }), "device=0&invert=1&t=5");
  assert.equal(queryText({ text: "a&b=<c> é" }), "text=a%26b%3D%3Cc%3E%20%C3%A9");
});

test("embedded answers are found whatever the window", async () => {
  const source = new EmbeddedSource({
    version: 1,
    answers: { session: { recordings: [] }, "curve?device=0&r=0": { peak_bytes: 7 }, "owners?r=0": { total_bytes: 3 } },
  });
  assert.equal((await source.ask("curve", { r: 0, device: "0", t0: 5, t1: 9, width: 100 })).peak_bytes, 7);
  assert.equal((await source.ask("owners", { r: 0, t: 12 })).total_bytes, 3);
  assert.ok(source.answers("curve") && source.answers("session") && !source.answers("pool"));
  await assert.rejects(source.ask("curve", { r: 1, device: "0" }), /does not contain/);
});

test("a report has no filters, and only the rows that it has", async () => {
  const rows = [1, 2, 3].map((step) => ({ step }));
  const source = new EmbeddedSource({ version: 1, answers: { "steps?r=0": { total: 9, rows } } });
  const steps = await source.ask("steps", { r: 0, site: "3", text: "x", brief: true, offset: 1, limit: 1 });
  assert.deepEqual([steps.rows.map((row) => row.step), steps.total, steps.left_out], [[2], 3, 6]);
  assert.ok(source.answers("steps", { r: 0 }) && !source.answers("steps", { r: 1 }));
});

test("rows around a moment are found in a report", async () => {
  const rows = [10, 20, 30, 40, 50].map((end, index) => ({ step: index + 1, end }));
  const source = new EmbeddedSource({ version: 1, answers: { "steps?r=0": { total: 5, rows } } });
  const around = async (moment: number) =>
    (await source.ask("steps", { r: 0, around: moment, limit: 2, brief: true })).rows.map((row) => row.step);
  assert.deepEqual(await around(30), [2, 3]);
  assert.deepEqual(await around(5), [1, 2]);
  assert.deepEqual(await around(99), [5]);
});

test("embedded tables become csv with quoted fields", async () => {
  const source = new EmbeddedSource({
    version: 1,
    answers: {
      "table/blocks": {
        columns: ["a", "b"],
        rows: [
          ["x,y", 'q"'],
          [null, 5],
        ],
      },
    },
  });
  assert.equal(await source.csv("table/blocks", {}), 'a,b\n"x,y","q"""\n,5\n');
});

test("embedded rows come in the order asked for", async () => {
  const source = new EmbeddedSource({
    version: 1,
    answers: {
      "steps?r=0": {
        rows: [
          { step: 1, growth_bytes: 5 },
          { step: 2, growth_bytes: 9 },
        ],
      },
      "table/blocks?r=0": {
        columns: ["block", "end"],
        rows: [
          [1, null],
          [2, 7],
          [3, 5],
        ],
      },
    },
  });
  const steps = await source.ask("steps", { r: 0, sort: "growth_bytes", descending: true });
  assert.deepEqual(
    steps.rows.map((row) => row.step),
    [2, 1],
  );
  const blocks = await source.ask("table/blocks", { r: 0, sort: "end", descending: false, offset: 0 });
  assert.deepEqual(
    blocks.rows.map((row) => row[0]),
    [3, 2, 1],
  );
});
