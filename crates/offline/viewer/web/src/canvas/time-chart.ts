// What every chart over the shown window has: its width, the pointer, the range that is being marked, and what wheel,
// drag and click do.
import { useState } from "preact/hooks";
import { usePage } from "../page";
import type { Parameters } from "../source/source";
import type { Point } from "./surface";
import { timeAt, timeScale, useTimeGestures, type TimeGestures, type TimeScale } from "./time";

export interface TimeChart {
  width: number;
  setWidth: (width: number) => void;
  hover: Point | null;
  setHover: (point: Point | null) => void;
  /** The range that Shift and drag marks. */
  mark: [number, number] | null;
  scale: TimeScale;
  gestures: TimeGestures;
  /** The moment at a point of the chart, within the window. */
  momentAt: (point: Point) => number;
  /** The shared cursor goes to a point of the chart. */
  moveCursor: (point: Point) => void;
  /** The window as parameters of a question, one value per pixel; null as long as the chart has no width. */
  window: Parameters | null;
}

export function useTimeChart(): TimeChart {
  const page = usePage();
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<Point | null>(null);
  const [mark, setMark] = useState<[number, number] | null>(null);
  const scale = timeScale(page.window, width);
  const gestures = useTimeGestures(width, setMark);
  const [t0, t1] = page.window;
  const momentAt = (point: Point) => Math.min(t1, Math.max(t0, timeAt(scale, point.x)));
  return {
    width,
    setWidth,
    hover,
    setHover,
    mark,
    scale,
    gestures,
    momentAt,
    moveCursor: (point) => page.store.set({ t: momentAt(point) }),
    window: width > 0 ? { t0, t1, width: Math.round(scale.width) } : null,
  };
}
