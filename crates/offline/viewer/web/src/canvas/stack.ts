// Stacked areas over time, with lines above them, as the timeline draws them.
import { text } from "../texts";
import type { Curve, Line } from "../source/answers";
import { shortLine } from "../names";
import { bytes } from "../units";
import { readableOn, seriesColour } from "../theme";
import { byteTicks } from "./axis";
import { fitText, font, type Pen } from "./surface";
import type { TimeScale } from "./time";

export const OTHER = "…";

export interface LineStyle {
  key: "reserved" | "driver" | "card" | "card_process";
  dash: number[];
  style: "solid" | "dashed" | "dotted";
}

/** Told apart by their dashes, not by colour alone. */
export const LINES: LineStyle[] = [
  { key: "reserved", dash: [], style: "solid" },
  { key: "driver", dash: [7, 4], style: "dashed" },
  { key: "card_process", dash: [2, 3], style: "dotted" },
  { key: "card", dash: [10, 4, 2, 4], style: "dashed" },
];

export function lineColour(pen: Pen, key: LineStyle["key"]): string {
  return { reserved: pen.theme.accent, driver: pen.theme.text, card_process: pen.theme.muted, card: pen.theme.danger }[
    key
  ];
}

export function mostOf(line: Line | null | undefined): number {
  return (line ?? []).reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
}

/** The highest value that the chart has to reach. */
export function ceilingOf(curve: Curve, withLines: boolean): number {
  let most = Math.max(1, mostOf(curve.max));
  if (withLines) for (const { key } of LINES) most = Math.max(most, mostOf(curve.lines[key]));
  return most * 1.04;
}

export interface Plot {
  top: number;
  bottom: number;
  ceiling: number;
}

export function yOf(plot: Plot, value: number): number {
  return plot.bottom - (value / plot.ceiling) * (plot.bottom - plot.top);
}

/** The horizontal lines and labels of the memory axis. */
export function drawMemoryAxis(pen: Pen, scale: TimeScale, plot: Plot): void {
  const { context, theme } = pen;
  context.textAlign = "right";
  for (const tick of byteTicks(plot.ceiling, (plot.bottom - plot.top) / 55)) {
    const y = Math.round(yOf(plot, tick.value)) + 0.5;
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(scale.left, y);
    context.lineTo(scale.left + scale.width, y);
    context.stroke();
    context.fillStyle = theme.muted;
    context.fillText(tick.label, scale.left - 8, Math.max(y, plot.top + 6));
  }
}

/** The areas. The curve may still be that of the window before, and is then drawn where it belongs. */
export function drawStack(pen: Pen, scale: TimeScale, plot: Plot, curve: Curve): void {
  const { context, theme } = pen;
  context.save();
  context.beginPath();
  context.rect(scale.left, plot.top, scale.width, plot.bottom - plot.top);
  context.clip();
  const x = edges(scale, curve);
  if (curve.series.length === 0) {
    fillBetween(
      pen,
      x,
      curve.max.map(() => 0),
      curve.max.map((value) => value ?? 0),
      plot,
      theme.series[0]!,
    );
  }
  let lower = new Array<number>(curve.max.length).fill(0);
  const bands: { index: number; label: string; colour: string; lower: number[]; upper: number[]; isOther: boolean }[] =
    [];
  curve.series.forEach((series, index) => {
    const isOther = series.key === OTHER;
    const colour = isOther ? theme.other : seriesColour(index);
    const upper = lower.map((value, bucket) => value + (series.values[bucket] ?? 0));
    fillBetween(pen, x, lower, upper, plot, colour);
    bands.push({ index, label: shortLine(series.label), colour, lower, upper, isOther });
    lower = upper;
  });
  for (const band of bands) labelBand(pen, x, plot, band);
  context.restore();
}

function edges(scale: TimeScale, curve: Curve): (bucket: number) => number {
  const pixel = scale.width / (scale.end - scale.start);
  const left = scale.left + (curve.t0 - scale.start) * pixel;
  const step = ((curve.t1 - curve.t0) * pixel) / Math.max(1, curve.max.length);
  return (bucket) => left + bucket * step;
}

function fillBetween(
  pen: Pen,
  x: (bucket: number) => number,
  lower: number[],
  upper: number[],
  plot: Plot,
  colour: string,
): void {
  const { context } = pen;
  context.beginPath();
  context.moveTo(x(0), yOf(plot, lower[0] ?? 0));
  upper.forEach((value, bucket) => {
    const y = yOf(plot, value);
    context.lineTo(x(bucket), y);
    context.lineTo(x(bucket + 1), y);
  });
  for (let bucket = lower.length - 1; bucket >= 0; bucket -= 1) {
    const y = yOf(plot, lower[bucket]!);
    context.lineTo(x(bucket + 1), y);
    context.lineTo(x(bucket), y);
  }
  context.closePath();
  context.fillStyle = colour;
  context.fill();
  // A thin border in the colour of the ground keeps neighbours apart for those who do not see the colours.
  context.strokeStyle = pen.theme.surface;
  context.lineWidth = 0.7;
  context.stroke();
  context.lineWidth = 1;
}

const LABEL_HEIGHT = 16;
/** Buckets over which a band has to be high enough for its label. */
const LABEL_BUCKETS = 60;

/** Writes the number and name of a band into it, where it is high enough for long enough. */
function labelBand(
  pen: Pen,
  x: (bucket: number) => number,
  plot: Plot,
  band: { index: number; label: string; colour: string; lower: number[]; upper: number[]; isOther: boolean },
): void {
  const { context } = pen;
  let best = { start: 0, length: 0 };
  let start = 0;
  let top = Infinity;
  let bottom = -Infinity;
  for (let bucket = 0; bucket < band.upper.length; bucket += 1) {
    // The label stands in a rectangle that is inside the band all the way.
    const high = yOf(plot, band.upper[bucket]!);
    const low = yOf(plot, band.lower[bucket]!);
    const nextBottom = bucket === start ? low : Math.min(bottom, low);
    const nextTop = bucket === start ? high : Math.max(top, high);
    if (nextBottom - nextTop < LABEL_HEIGHT) {
      start = bucket + 1;
      top = -Infinity;
      bottom = Infinity;
      continue;
    }
    top = nextTop;
    bottom = nextBottom;
    if (bucket - start + 1 > best.length) best = { start, length: bucket - start + 1 };
  }
  if (best.length < Math.min(LABEL_BUCKETS, band.upper.length / 12)) return;
  const left = Math.max(x(best.start), 0);
  const width = x(best.start + best.length) - left;
  const inside = { high: -Infinity, low: Infinity };
  for (let bucket = best.start; bucket < best.start + best.length; bucket += 1) {
    inside.high = Math.max(inside.high, yOf(plot, band.upper[bucket]!));
    inside.low = Math.min(inside.low, yOf(plot, band.lower[bucket]!));
  }
  const label = fitText(context, band.isOther ? band.label : `${band.index + 1}  ${band.label}`, width - 12);
  if (!label) return;
  context.font = font(11.5, 550);
  context.textAlign = "left";
  context.fillStyle = readableOn(band.colour);
  context.fillText(label, left + 6, (inside.high + inside.low) / 2);
  context.font = font();
}

/** Reserved memory, driver and card as lines. */
/** The parts of the card above what the driver gave: what nobody explains, and what other processes use. */
const RESTS = [
  { key: "unexplained", from: "driver", to: "card_process" },
  { key: "other_processes", from: "card_process", to: "card" },
] as const;

/** The rest of the card as faint bands with their names, between the lines that bound them. */
export function drawRests(pen: Pen, scale: TimeScale, plot: Plot, curve: Curve): void {
  const { context, theme } = pen;
  const x = edges(scale, curve);
  context.save();
  context.beginPath();
  context.rect(scale.left, plot.top, scale.width, plot.bottom - plot.top);
  context.clip();
  for (const { key, from, to } of RESTS) {
    const [low, high] = [curve.lines[from], curve.lines[to]];
    if (!low || !high) continue;
    const bottom = low.map((value, bucket) => (high[bucket] === null ? 0 : (value ?? 0)));
    const top = high.map((value, bucket) => Math.max(value ?? 0, bottom[bucket]!));
    context.globalAlpha = 0.1;
    fillBetween(pen, x, bottom, top, plot, key === "unexplained" ? theme.muted : theme.danger);
    context.globalAlpha = 1;
    const middle = bottom.length >> 1;
    const [above, below] = [Math.max(plot.top, yOf(plot, top[middle] ?? 0)), yOf(plot, bottom[middle] ?? 0)];
    if (below - above < 16) continue;
    context.textAlign = "center";
    context.fillStyle = theme.muted;
    context.fillText(text(key), scale.left + scale.width / 2, (above + below) / 2);
  }
  context.restore();
}

export function drawLines(pen: Pen, scale: TimeScale, plot: Plot, curve: Curve): void {
  const { context } = pen;
  context.save();
  context.beginPath();
  context.rect(scale.left, plot.top - 1, scale.width, plot.bottom - plot.top + 2);
  context.clip();
  const x = edges(scale, curve);
  for (const { key, dash } of LINES) {
    const line = curve.lines[key];
    if (!line) continue;
    context.strokeStyle = lineColour(pen, key);
    context.setLineDash(dash);
    context.lineWidth = 1.5;
    context.beginPath();
    let isDrawing = false;
    line.forEach((value, bucket) => {
      if (value === null) {
        isDrawing = false;
        return;
      }
      const y = yOf(plot, value);
      if (isDrawing) context.lineTo(x(bucket), y);
      else context.moveTo(x(bucket), y);
      context.lineTo(x(bucket + 1), y);
      isDrawing = true;
    });
    context.stroke();
  }
  context.restore();
}

/** The peak as a small flag. */
export function drawPeak(pen: Pen, scale: TimeScale, plot: Plot, peakT: number, peakBytes: number): void {
  if (peakT < scale.start || peakT > scale.end || peakBytes <= 0) return;
  const { context, theme } = pen;
  const x = scale.left + ((peakT - scale.start) / (scale.end - scale.start)) * scale.width;
  const y = yOf(plot, peakBytes);
  if (y < plot.top - 1) return;
  context.fillStyle = theme.text;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 5, y - 7);
  context.lineTo(x + 5, y - 7);
  context.closePath();
  context.fill();
  const label = bytes(peakBytes);
  context.font = font(12, 600);
  const width = context.measureText(label).width;
  const isLeft = x + 10 + width > scale.left + scale.width;
  context.textAlign = isLeft ? "right" : "left";
  const at = [isLeft ? x - 9 : x + 9, Math.max(y - 6, plot.top + 6)] as const;
  context.strokeStyle = theme.surface;
  context.lineWidth = 4;
  context.strokeText(label, ...at);
  context.lineWidth = 1;
  context.fillText(label, ...at);
  context.font = font();
}
