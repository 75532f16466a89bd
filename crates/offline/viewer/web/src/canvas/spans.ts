// Spans over time in rows of nesting depth: operators, ranges, steps, Python calls.
import type { SpanRow } from "../source/answers";
import { shortSpan } from "../names";
import { nameColour, readableOn, seriesColour } from "../theme";
import { fitText, type Pen } from "./surface";
import { xOf, type TimeScale } from "./time";

export const ROW_HEIGHT = 18;

export interface SpanHit {
  row: number;
  index: number;
}

/** Steps follow each other: two shades tell neighbours apart, and say no more than that. */
export function stepColour(name: string): string {
  return seriesColour(Number(/\d+/.exec(name)?.[0] ?? 0) % 2 === 0 ? 0 : 8);
}

/** Draws one row of spans; `isDim` says which names do not match a search. */
export function drawSpans(
  pen: Pen,
  scale: TimeScale,
  row: SpanRow,
  names: readonly string[],
  y: number,
  isDim: ((name: number) => boolean) | null,
  colourOf: (name: string) => string = nameColour,
): void {
  const { context, theme } = pen;
  context.save();
  context.beginPath();
  context.rect(scale.left, y, scale.width, ROW_HEIGHT);
  context.clip();
  context.textAlign = "left";
  for (let index = 0; index < row.start.length; index += 1) {
    const left = Math.max(xOf(scale, row.start[index]!), scale.left - 2);
    const right = Math.min(xOf(scale, row.end[index]!), scale.left + scale.width + 2);
    if (right < scale.left || left > scale.left + scale.width) continue;
    const name = row.name[index]!;
    const colour = name < 0 ? theme.other : colourOf(names[name] ?? "");
    context.globalAlpha = isDim?.(name) ? 0.25 : 1;
    context.fillStyle = colour;
    const width = Math.max(1, right - left);
    context.fillRect(left, y + 1, width > 3 ? width - 0.7 : width, ROW_HEIGHT - 2);
    if (width > 24) {
      context.fillStyle = readableOn(colour);
      const label =
        name < 0
          ? `${row.count[index]}×`
          : shortSpan(names[name] ?? "") + (row.count[index]! > 1 ? ` ×${row.count[index]}` : "");
      context.fillText(fitText(context, label, width - 8), left + 4, y + ROW_HEIGHT / 2 + 0.5);
    }
  }
  context.restore();
}

/** The span at a place, or the nearest within a few pixels. */
export function spanAt(scale: TimeScale, row: SpanRow, x: number): number {
  const SNAP = 3;
  let best = -1;
  let nearest = SNAP;
  for (let index = 0; index < row.start.length; index += 1) {
    const left = xOf(scale, row.start[index]!);
    const right = Math.max(xOf(scale, row.end[index]!), left + 1);
    const distance = x < left ? left - x : x > right ? x - right : 0;
    if (distance < nearest || (distance === 0 && nearest === 0 && best < 0)) {
      nearest = distance;
      best = index;
    }
    if (distance === 0) return index;
  }
  return best;
}
