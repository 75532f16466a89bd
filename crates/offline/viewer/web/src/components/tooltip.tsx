// A box beside the pointer. It never covers what the pointer is at, and never leaves the screen.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

const DISTANCE = 14;

export function Tooltip({ x, y, children }: { x: number; y: number; children: ComponentChildren }) {
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const box = element.current!;
    const { width, height } = box.getBoundingClientRect();
    const left = x + DISTANCE + width > window.innerWidth ? x - DISTANCE - width : x + DISTANCE;
    const top = y + DISTANCE + height > window.innerHeight ? y - DISTANCE - height : y + DISTANCE;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, top)}px`;
  });
  return (
    <div class="tooltip" role="tooltip" ref={element}>
      {children}
    </div>
  );
}

/** Where the pointer is on the screen: surfaces only tell where it is on themselves. */
let pointer = { x: 0, y: 0 };
if (typeof window !== "undefined") {
  window.addEventListener("pointermove", (event) => (pointer = { x: event.clientX, y: event.clientY }), {
    capture: true,
    passive: true,
  });
}

export function AtPointer({ children }: { children: ComponentChildren }) {
  return (
    <Tooltip x={pointer.x} y={pointer.y}>
      {children}
    </Tooltip>
  );
}
