import assert from "node:assert/strict";
import { test } from "node:test";
import { deviation, median } from "../src/views/ranks";

test("ranks are compared with the median", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.equal(median([]), 0);
  assert.equal(deviation(100, 100), 0);
  assert.equal(deviation(100.5, 100), 0, "too little to speak of");
  assert.equal(deviation(125, 100), 0.5);
  assert.equal(deviation(10, 100), -1);
  assert.equal(deviation(0, 0), 0);
  assert.equal(deviation(5, 0), 1, "beside nothing, anything is far");
});
