// Time as the horizontal axis, the same in every chart: where a moment is, how the window moves, where the cursor goes.
import { useMemo } from "preact/hooks";
import { activeRange, usePage, type Page } from "../page";
import { moment } from "../units";
import { timeTicks } from "./axis";
import type { Drag, Pen, Point, Wheel } from "./surface";

/** Pixels left of the plot, for labels; the same everywhere, so that moments are below each other. */
export const GUTTER = 108;
const RIGHT = 8;
/** The narrowest window. */
const NARROWEST_NS = 20;

export interface TimeScale {
  start: number;
  end: number;
  left: number;
  width: number;
}

export function timeScale(window: readonly [number, number], width: number): TimeScale {
  return { start: window[0], end: window[1], left: GUTTER, width: Math.max(1, width - GUTTER - RIGHT) };
}

export function xOf(scale: TimeScale, t: number): number {
  return scale.left + ((t - scale.start) / (scale.end - scale.start)) * scale.width;
}

export function timeAt(scale: TimeScale, x: number): number {
  return Math.round(scale.start + ((x - scale.left) / scale.width) * (scale.end - scale.start));
}

/** A window moved into the limits, no narrower than can be drawn. */
export function limited(start: number, end: number, limits: readonly [number, number]): [number, number] {
  const width = Math.min(Math.max(end - start, NARROWEST_NS), limits[1] - limits[0]);
  const centre = (start + end) / 2;
  const first = Math.min(Math.max(centre - width / 2, limits[0]), limits[1] - width);
  return [Math.round(first), Math.round(first + width)];
}

/** The window scaled around a moment. */
export function zoomed(window: readonly [number, number], around: number, factor: number): [number, number] {
  return [around - (around - window[0]) * factor, around + (window[1] - around) * factor];
}

export function limitsOf(page: Page): [number, number] {
  // A report has its curves for the time in which there is memory, and nothing beyond.
  if (!page.source.live) return activeRange(page.recording);
  return [page.recording.t0, Math.max(page.recording.t1, page.recording.t0 + 1)];
}

/** Shows another window; that of the whole activity is no window at all. */
export function showWindow(page: Page, start: number, end: number): void {
  const limits = limitsOf(page);
  const [t0, t1] = limited(start, end, limits);
  const usual = activeRange(page.recording);
  const isWhole = t0 === usual[0] && t1 === usual[1];
  page.store.set(isWhole ? { t0: null, t1: null } : { t0, t1 });
}

export interface TimeGestures {
  onWheel: (wheel: Wheel) => void;
  onDrag: (drag: Drag) => void;
  onDoubleClick: () => void;
  onKey: (event: KeyboardEvent) => void;
}

/** What wheel, drag and arrow keys do to window and cursor. `mark` shows the range that Shift and drag marks. */
export function useTimeGestures(width: number, mark: (range: [number, number] | null) => void): TimeGestures {
  const page = usePage();
  const latest = useMemo(() => ({ page, width, dragged: null as [number, number] | null }), []);
  latest.page = page;
  latest.width = width;
  return useMemo(() => {
    const scale = () => timeScale(latest.page.window, latest.width);
    return {
      onWheel({ at, factor, shift, horizontal }) {
        const [start, end] = latest.page.window;
        const moved = (horizontal / latest.width) * (end - start);
        if (shift || Math.abs(horizontal) > 1) showWindow(latest.page, start + moved, end + moved);
        else showWindow(latest.page, ...zoomed(latest.page.window, timeAt(scale(), at.x), factor));
      },
      onDrag({ phase, from, to }) {
        if (from.shift) {
          const range = [timeAt(scale(), Math.min(from.x, to.x)), timeAt(scale(), Math.max(from.x, to.x))] as [
            number,
            number,
          ];
          mark(phase === "end" ? null : range);
          if (phase === "end") showWindow(latest.page, ...range);
          return;
        }
        if (phase === "start") latest.dragged = [...latest.page.window];
        if (!latest.dragged) return;
        const moved = ((from.x - to.x) / scale().width) * (latest.dragged[1] - latest.dragged[0]);
        showWindow(latest.page, latest.dragged[0] + moved, latest.dragged[1] + moved);
        if (phase === "end") latest.dragged = null;
      },
      onDoubleClick() {
        latest.page.store.set({ t0: null, t1: null });
      },
      onKey(event) {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        event.preventDefault();
        const { cursor, window, store } = latest.page;
        const pixel = (window[1] - window[0]) / Math.max(1, scale().width);
        const moved = Math.max(1, Math.round(pixel * (event.shiftKey ? 40 : 4))) * (event.key === "ArrowLeft" ? -1 : 1);
        const [first, last] = limitsOf(latest.page);
        store.set({ t: Math.min(last, Math.max(first, cursor + moved)) });
      },
    };
  }, []);
}

/** Room for the label of the cursor, which stands on the axis. */
const CURSOR_LABEL = 96;

/** The horizontal axis with its labels, at the top of a chart; labels make room for that of the cursor. */
export function drawTimeAxis(
  pen: Pen,
  scale: TimeScale,
  origin: number,
  y: number,
  bottom: number,
  cursor: number,
): void {
  const { context, theme } = pen;
  context.textAlign = "center";
  const ticks = timeTicks(scale.start, scale.end, scale.width / 130, origin);
  for (const tick of ticks) {
    const x = Math.round(xOf(scale, tick.value)) + 0.5;
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(x, y + 8);
    context.lineTo(x, bottom);
    context.stroke();
    const half = context.measureText(tick.label).width / 2;
    const centre = Math.min(Math.max(x, scale.left + half), scale.left + scale.width - half);
    const label = Math.min(
      Math.max(xOf(scale, cursor), scale.left + CURSOR_LABEL / 2),
      scale.left + scale.width - CURSOR_LABEL / 2,
    );
    if (cursor >= scale.start && cursor <= scale.end && Math.abs(centre - label) < half + CURSOR_LABEL / 2) continue;
    context.fillStyle = theme.muted;
    context.fillText(tick.label, centre, y);
  }
}

/** The shared cursor, with its time where there is room for it. */
export function drawCursor(
  pen: Pen,
  scale: TimeScale,
  t: number,
  top: number,
  bottom: number,
  label: string | null,
): void {
  if (t < scale.start || t > scale.end) return;
  const { context, theme } = pen;
  const x = Math.round(xOf(scale, t)) + 0.5;
  context.save();
  context.strokeStyle = theme.text;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, bottom);
  context.stroke();
  context.setLineDash([]);
  if (label !== null) {
    const width = context.measureText(label).width + 10;
    const left = Math.min(Math.max(x - width / 2, scale.left), scale.left + scale.width - width);
    context.fillStyle = theme.text;
    context.beginPath();
    context.roundRect(left, top - 9, width, 18, 4);
    context.fill();
    context.fillStyle = theme.background;
    context.textAlign = "center";
    context.fillText(label, left + width / 2, top + 0.5);
  }
  context.restore();
}

/** A range marked with Shift and drag. */
export function drawMark(
  pen: Pen,
  scale: TimeScale,
  range: readonly [number, number] | null,
  top: number,
  bottom: number,
): void {
  if (!range) return;
  const { context, theme } = pen;
  const left = xOf(scale, range[0]);
  context.save();
  context.globalAlpha = 0.18;
  context.fillStyle = theme.accent;
  context.fillRect(left, top, xOf(scale, range[1]) - left, bottom - top);
  context.restore();
}

/** A moment as fine as one pixel of the window. */
export function momentText(page: Page, t: number, width = 1000): string {
  const resolution = Math.max(1, (page.window[1] - page.window[0]) / width);
  return moment(t - page.recording.t0, resolution);
}

export type { Point };
