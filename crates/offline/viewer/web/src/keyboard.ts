// Keys that work everywhere on the page, as in Perfetto and MindStudio Insight. Fields keep what is typed into them.
import { limitsOf, showWindow, zoomed } from "./canvas/time";
import type { Page } from "./page";
import type { View } from "./state";

export interface Actions {
  page: () => Page | null;
  views: () => View[];
  toggleHelp: (isOpen?: boolean) => void;
  /** Moves the cursor to the end of the previous or next step. */
  goToStep: (direction: -1 | 1) => void;
}

const ZOOM = 0.7;
const PAN = 0.2;

/** What a key does; false if it means nothing here. */
export function pressed(key: string, actions: Actions): boolean {
  const page = actions.page();
  if (key === "?") {
    actions.toggleHelp();
    return true;
  }
  if (key === "Escape") {
    actions.toggleHelp(false);
    page?.store.set({ block: null, focus: null });
    return true;
  }
  if (!page) return false;
  const [start, end] = page.window;
  const width = end - start;
  const around = page.cursor >= start && page.cursor <= end ? page.cursor : (start + end) / 2;
  const letter = key.toLowerCase();
  switch (letter) {
    case "w":
      showWindow(page, ...zoomed(page.window, around, ZOOM));
      return true;
    case "s":
      showWindow(page, ...zoomed(page.window, around, 1 / ZOOM));
      return true;
    case "a":
      showWindow(page, start - PAN * width, end - PAN * width);
      return true;
    case "d":
      showWindow(page, start + PAN * width, end + PAN * width);
      return true;
    case "r":
      page.store.set({ t0: null, t1: null, y0: null, y1: null });
      return true;
    case "p":
      page.store.set({ t: null });
      showCursor(page, page.poolFacts?.peak_t ?? limitsOf(page)[0]);
      return true;
    case "[":
      actions.goToStep(-1);
      return true;
    case "]":
      actions.goToStep(1);
      return true;
    case "/": {
      const field = document.querySelector<HTMLInputElement>("input[data-search]") ?? null;
      field?.focus();
      field?.select();
      return field !== null;
    }
    default:
  }
  if (/^[0-9]$/.test(key)) {
    const view = actions.views()[key === "0" ? 9 : Number(key) - 1];
    if (view) page.store.set({ view });
    return view !== undefined;
  }
  return false;
}

/** Moves the window so that a moment is in it. */
export function showCursor(page: Page, t: number): void {
  const [start, end] = page.window;
  if (t >= start && t <= end) return;
  const half = (end - start) / 2;
  showWindow(page, t - half, t + half);
}

export function listenToKeys(actions: Actions): () => void {
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement | null;
    const isField = target?.matches?.("input, select, textarea") ?? false;
    if (isField) {
      if (event.key === "Escape") target?.blur();
      return;
    }
    if (pressed(event.key, actions)) event.preventDefault();
  };
  window.addEventListener("keydown", onKey);
  return () => window.removeEventListener("keydown", onKey);
}
