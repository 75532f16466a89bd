import assert from "node:assert/strict";
import { test } from "node:test";
import * as units from "../src/units";

// The same cases as in crates/front/cli/src/units.rs.
test("numbers read as in the terminal reports", () => {
  assert.equal(units.bytes(0), "0 B");
  assert.equal(units.bytes(1023), "1023 B");
  assert.equal(units.bytes(1024), "1.0 KiB");
  assert.equal(units.bytes(1_048_575), "1.0 MiB");
  assert.equal(units.bytes(20_971_520), "20.0 MiB");
  // Halves go to the even digit, as the terminal rounds them.
  assert.equal(units.bytes(81.25 * 1024 * 1024), "81.2 MiB");
  assert.equal(units.bytes(81.75 * 1024 * 1024), "81.8 MiB");
  assert.equal(units.bytes(100.5 * 1024), "100 KiB");
  assert.equal(units.bytes(101.5 * 1024), "102 KiB");
  assert.equal(units.bytes(104_806_000), "100 MiB");
  assert.equal(units.bytes(1_073_400_000), "1.0 GiB");
  assert.equal(units.bytes(2 ** 64), "16.0 EiB");
  assert.equal(units.shortCount(999_999), "999,999");
  assert.equal(units.shortCount(1_000_000), "1.0 M");
  assert.equal(units.shortCount(99_960_000), "100 M");
  assert.equal(units.shortCount(999_600_000), "1.0 G");
  assert.equal(units.count(0), "0");
  assert.equal(units.count(999), "999");
  assert.equal(units.count(1_234_567), "1,234,567");
  assert.equal(units.seconds(1_500_000), "1.50 ms");
  assert.equal(units.seconds(250_000_000), "250 ms");
  assert.equal(units.seconds(61_000_000_000), "61.0 s");
  assert.equal(units.seconds(3_661_000_000_000), "61 min 1 s");
});

test("changes carry their sign", () => {
  assert.equal(units.bytesChange(3 * 1024 * 1024), "+3.0 MiB");
  assert.equal(units.bytesChange(-1536), "-1.5 KiB");
  assert.equal(units.bytesChange(0), "0 B");
});

test("moments are as fine as what is drawn", () => {
  assert.equal(units.moment(0), "0");
  assert.equal(units.moment(1_500_000, 100_000), "1.5 ms");
  assert.equal(units.moment(1_500_000, 1_000), "1.500 ms");
  assert.equal(units.moment(2_000_000_000, 1e9), "2 s");
  assert.equal(units.moment(750, 1), "750 ns");
  assert.equal(units.span(123_456), "123 µs");
  assert.equal(units.span(1_234_567_890), "1.23 s");
  assert.equal(units.percent(1, 3), "33 %");
  assert.equal(units.percent(1, 30), "3.3 %");
  assert.equal(units.percent(1, 0), "-");
});
