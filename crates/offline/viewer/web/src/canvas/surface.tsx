// A canvas as sharp as the screen, which is drawn again when its size or what it shows changes. It can have the
// focus, has a name for screen readers, and passes on pointer and keys in its own coordinates.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { usePage } from "../page";
import { theme, type Theme } from "../theme";

export interface Pen {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  theme: Theme;
}

export interface Point {
  x: number;
  y: number;
  shift: boolean;
}

interface Properties {
  height: number;
  label: string;
  draw: (pen: Pen) => void;
  onWidth?: (width: number) => void;
  onHover?: (point: Point | null) => void;
  onClick?: (point: Point) => void;
  onDoubleClick?: (point: Point) => void;
  onDrag?: (drag: Drag) => void;
  onWheel?: (wheel: Wheel) => void;
  onKey?: (event: KeyboardEvent) => void;
  cursor?: string;
  class?: string;
}

export interface Drag {
  phase: "start" | "move" | "end";
  from: Point;
  to: Point;
}

export interface Wheel {
  at: Point;
  /** Larger than 1 zooms out. */
  factor: number;
  shift: boolean;
  control: boolean;
  horizontal: number;
}

/** Pixels the pointer may move between press and release of a click. */
const CLICK_SLOP = 4;

export function Surface(properties: Properties) {
  const element = useRef<HTMLCanvasElement>(null);
  const latest = useRef(properties);
  latest.current = properties;
  const [width, setWidth] = useState(0);
  const { appearance } = usePage();

  useLayoutEffect(() => {
    const canvas = element.current!;
    const measure = () => setWidth(Math.floor(canvas.parentElement!.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(canvas.parentElement!);
    measure();
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (width > 0) latest.current.onWidth?.(width);
  }, [width]);

  useEffect(() => {
    const canvas = element.current!;
    if (width === 0) return;
    const frame = requestAnimationFrame(() => {
      const ratio = window.devicePixelRatio || 1;
      const { height } = latest.current;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      const context = canvas.getContext("2d");
      if (!context) return;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      context.font = font();
      context.textBaseline = "middle";
      latest.current.draw({ context, width, height, theme: theme() });
    });
    return () => cancelAnimationFrame(frame);
  }, [properties.draw, properties.height, width, appearance]);

  useEffect(() => listen(element.current!, () => latest.current), []);

  return (
    <canvas
      ref={element}
      class={`surface ${properties.class ?? ""}`}
      role="img"
      aria-label={properties.label}
      tabIndex={0}
      style={{ cursor: properties.cursor ?? "default", height: `${properties.height}px` }}
    />
  );
}

export function font(size = 12, weight = 400): string {
  return `${weight} ${size}px ${theme().font}`;
}

/** Connects pointer, wheel and keys; returns what disconnects them. */
function listen(canvas: HTMLCanvasElement, current: () => Properties): () => void {
  let pressed: Point | null = null;
  let dragging = false;
  const point = (event: MouseEvent): Point => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, shift: event.shiftKey };
  };
  const handlers: { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void } = {
    pointerdown(event) {
      if (event.button !== 0) return;
      pressed = point(event);
      dragging = false;
      canvas.setPointerCapture(event.pointerId);
    },
    pointermove(event) {
      const to = point(event);
      if (pressed) {
        if (!dragging && Math.hypot(to.x - pressed.x, to.y - pressed.y) > CLICK_SLOP) {
          dragging = true;
          current().onDrag?.({ phase: "start", from: pressed, to });
        }
        if (dragging) {
          current().onDrag?.({ phase: "move", from: pressed, to });
          current().onHover?.(null);
          return;
        }
      }
      current().onHover?.(to);
    },
    pointerup(event) {
      const to = point(event);
      if (pressed && dragging) current().onDrag?.({ phase: "end", from: pressed, to });
      else if (pressed) current().onClick?.(to);
      pressed = null;
      dragging = false;
    },
    pointercancel() {
      pressed = null;
      dragging = false;
    },
    pointerleave() {
      current().onHover?.(null);
    },
    dblclick(event) {
      current().onDoubleClick?.(point(event));
    },
    wheel(event) {
      if (!current().onWheel) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      const vertical = Math.max(-120, Math.min(120, event.deltaY * lines));
      current().onWheel?.({
        at: point(event),
        factor: Math.exp(vertical / 300),
        shift: event.shiftKey,
        control: event.ctrlKey || event.metaKey,
        horizontal: event.deltaX * lines + (event.shiftKey ? vertical : 0),
      });
    },
    keydown(event) {
      current().onKey?.(event);
    },
  };
  const entries = Object.entries(handlers) as [string, EventListener][];
  for (const [name, handler] of entries) canvas.addEventListener(name, handler, { passive: false });
  return () => {
    for (const [name, handler] of entries) canvas.removeEventListener(name, handler);
  };
}

/** The height of a chart that takes what the screen has below the rest of its view. */
export function useRoom(restPixels: number, leastPixels: number): number {
  const [height, setHeight] = useState(window.innerHeight);
  useEffect(() => {
    const measure = () => setHeight(window.innerHeight);
    window.addEventListener("resize", measure);
    return () => window.removeEventListener("resize", measure);
  }, []);
  return Math.max(leastPixels, height - restPixels);
}

/** Text that ends with … where it does not fit; nothing where not even a few letters do. */
export function fitText(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (width < 14) return "";
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = Math.min(text.length, Math.ceil(width / 3));
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low < 2 ? "" : text.slice(0, low) + "…";
}
