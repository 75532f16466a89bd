// Round numbers for axes: memory in binary units, time in decimal ones.
import { bytes, moment } from "../units";

export interface Tick {
  value: number;
  label: string;
}

/** The smallest of 1, 2, 5, 10, ... times `unit` that is at least `wanted`. */
function roundStep(wanted: number, unit: number): number {
  const exponent = Math.floor(Math.log10(wanted / unit));
  for (const factor of [1, 2, 5, 10]) {
    const step = factor * 10 ** exponent * unit;
    if (step >= wanted * (1 - 1e-9)) return step;
  }
  return 10 ** (exponent + 1) * unit;
}

/** Ticks from 0 to `most` bytes, about `wanted` of them, each a round number of its unit. */
export function byteTicks(most: number, wanted: number): Tick[] {
  if (most <= 0) return [{ value: 0, label: "0" }];
  const rough = most / Math.max(1, wanted);
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(rough, 1)) / Math.log(1024)));
  const step = Math.max(1, rough / unit > 500 ? unit * 1024 : roundStep(rough, unit));
  const ticks: Tick[] = [];
  for (let value = 0; value <= most * (1 + 1e-9); value += step) {
    ticks.push({ value, label: value === 0 ? "0" : bytes(value).replace(".0 ", " ") });
  }
  return ticks;
}

/** Ticks within a window of time, about `wanted` of them, relative to the start of the recording. */
export function timeTicks(start: number, end: number, wanted: number, origin = 0): Tick[] {
  const step = Math.max(1, roundStep((end - start) / Math.max(1, wanted), 1));
  const ticks: Tick[] = [];
  const first = Math.ceil((start - origin) / step);
  for (let index = first; index * step + origin <= end && ticks.length < 1000; index += 1) {
    const value = index * step;
    ticks.push({ value: value + origin, label: moment(value, step) });
  }
  return ticks;
}
