// The whole recording in small, below every chart over time, with the window that can be moved and resized.
import { useCallback, useRef, useState } from "preact/hooks";
import { mostOf } from "../canvas/stack";
import { Surface, type Drag, type Pen, type Point } from "../canvas/surface";
import { drawCursor, limitsOf, showWindow, timeAt, timeScale, xOf, type TimeScale } from "../canvas/time";
import { showCursor } from "../keyboard";
import { activeRange, placeOf, useAnswer, usePage, type Page } from "../page";
import type { Line } from "../source/answers";
import { text } from "../texts";

const HEIGHT = 44;
const HANDLE = 7;

export function Minimap() {
  const page = usePage();
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<"move" | "resize" | null>(null);
  const grip = useRef<{ edge: "start" | "end" | "both" | "new"; window: [number, number] } | null>(null);
  const limits = minimapRange(page);
  const scale = timeScale(limits, width);
  const reply = useAnswer(
    "curve",
    width > 0
      ? { ...placeOf(page), by: "none", t0: limits[0], t1: limits[1], width: Math.round(scale.width / 2) }
      : null,
  );
  const curve = reply.answer;
  const [start, end] = page.window;

  const draw = useCallback(
    (pen: Pen) => {
      const { context, theme, height } = pen;
      context.fillStyle = theme.background;
      context.fillRect(scale.left, 0, scale.width, height);
      if (curve && curve.max.length > 0) drawArea(pen, scale, curve.max);
      const left = xOf(scale, start);
      const right = xOf(scale, end);
      context.fillStyle = theme.background;
      context.globalAlpha = 0.7;
      context.fillRect(scale.left, 0, left - scale.left, height);
      context.fillRect(right, 0, scale.left + scale.width - right, height);
      context.globalAlpha = 1;
      context.strokeStyle = theme.accent;
      context.strokeRect(left + 0.5, 0.5, Math.max(2, right - left - 1), height - 1);
      context.fillStyle = theme.accent;
      for (const x of [left, right]) context.fillRect(x - 2, height / 2 - 8, 4, 16);
      drawCursor(pen, scale, page.cursor, 0, height, null);
    },
    [curve, start, end, page.cursor, width, limits[0], limits[1]],
  );

  const edgeAt = (x: number): "start" | "end" | "both" | "new" => {
    if (Math.abs(x - xOf(scale, start)) <= HANDLE) return "start";
    if (Math.abs(x - xOf(scale, end)) <= HANDLE) return "end";
    const isWhole = page.state.t0 === null;
    return !isWhole && x > xOf(scale, start) && x < xOf(scale, end) ? "both" : "new";
  };
  const onDrag = ({ phase, from, to }: Drag) => {
    if (phase === "start") grip.current = { edge: edgeAt(from.x), window: [...page.window] };
    if (!grip.current) return;
    const moved = timeAt(scale, to.x) - timeAt(scale, from.x);
    const [first, last] = grip.current.window;
    if (grip.current.edge === "start") showWindow(page, Math.min(first + moved, last), last);
    else if (grip.current.edge === "end") showWindow(page, first, Math.max(last + moved, first));
    else if (grip.current.edge === "both") showWindow(page, first + moved, last + moved);
    else showWindow(page, ...(sorted(timeAt(scale, from.x), timeAt(scale, to.x)) as [number, number]));
    if (phase === "end") grip.current = null;
  };
  const onHover = (point: Point | null) =>
    setHover(point && (edgeAt(point.x) === "both" ? "move" : edgeAt(point.x) === "new" ? null : "resize"));
  const onClick = (point: Point) => {
    const t = Math.min(limits[1], Math.max(limits[0], timeAt(scale, point.x)));
    page.store.set({ t });
    showCursor(page, t);
  };
  return (
    <Surface
      height={HEIGHT}
      label={text("chart_minimap")}
      draw={draw}
      onWidth={setWidth}
      onDrag={onDrag}
      onHover={onHover}
      onClick={onClick}
      onDoubleClick={() => page.store.set({ t0: null, t1: null })}
      cursor={hover === "resize" ? "ew-resize" : hover === "move" ? "grab" : "crosshair"}
      class="minimap"
    />
  );
}

/** The time in which there is memory, unless the window reaches beyond it. */
function minimapRange(page: Page): [number, number] {
  const active = activeRange(page.recording);
  return page.window[0] >= active[0] && page.window[1] <= active[1] ? active : limitsOf(page);
}

function sorted(left: number, right: number): number[] {
  return left < right ? [left, right] : [right, left];
}

/** One curve as a filled area. */
export function drawArea(pen: Pen, scale: TimeScale, line: Line): void {
  const { context, theme, height } = pen;
  const values = line.map((value) => value ?? 0);
  const most = Math.max(1, mostOf(line));
  const y = (value: number) => height - 1 - (value / most) * (height - 5);
  context.beginPath();
  context.moveTo(scale.left, height);
  values.forEach((value, index) => {
    context.lineTo(scale.left + (index / values.length) * scale.width, y(value));
    context.lineTo(scale.left + ((index + 1) / values.length) * scale.width, y(value));
  });
  context.lineTo(scale.left + scale.width, height);
  context.closePath();
  context.fillStyle = theme.series[0]!;
  context.globalAlpha = 0.55;
  context.fill();
  context.globalAlpha = 1;
}
