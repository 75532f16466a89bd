import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULTS, formatHash, parseHash, parseState, Store } from "../src/state";

test("an address reproduces the state", () => {
  const state = {
    ...DEFAULTS,
    view: "flame" as const,
    r: 2,
    t0: 5,
    t1: 99,
    t: 17,
    owner: "PTA@model & <b>",
    invert: true,
    focus: 3,
  };
  assert.deepEqual(parseHash(formatHash(state)), state);
  assert.equal(formatHash(DEFAULTS), "#view=overview");
});

test("nonsense in an address is passed over", () => {
  const state = parseHash("#view=nowhere&r=abc&t0=&by=%00&__proto__=1&constructor=2&alive=kept");
  assert.deepEqual(state, { ...DEFAULTS, alive: "kept" });
});

test("links of findings name parts of a state", () => {
  assert.deepEqual(
    parseState(Object.entries({ view: "flame", kind: "leaked", t: 5, descending: true, unknown: 1, t1: null })),
    {
      view: "flame",
      kind: "leaked",
      t: 5,
      descending: true,
    },
  );
});

test("another recording forgets what was selected in the first", () => {
  const written: [string, boolean][] = [];
  const store = new Store("#view=blocks&block=5&site=3", (hash, isNewEntry) => written.push([hash, isNewEntry]));
  let calls = 0;
  const stop = store.subscribe(() => (calls += 1));
  store.set({ t: 1 });
  store.set({ t: 1 });
  store.set({ r: 1 });
  stop();
  store.set({ view: "pool" });
  assert.equal(calls, 2);
  assert.equal(store.state.block, null);
  assert.equal(store.state.site, "");
  assert.deepEqual(
    written.map(([, isNewEntry]) => isNewEntry),
    [false, false, true],
  );
});
