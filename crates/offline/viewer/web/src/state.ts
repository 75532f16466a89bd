// What the page shows, as one flat record: view, recording, window, cursor, selection and filter. It is shared by all
// views and lives in the fragment of the address, so that a copied address reproduces the view.

export const VIEWS = [
  "overview",
  "timeline",
  "blocks",
  "flame",
  "owners",
  "steps",
  "ranks",
  "pool",
  "calls",
  "watch",
  "table",
] as const;
export type View = (typeof VIEWS)[number];

export interface State {
  view: View;
  /** Number of the recording. */
  r: number;
  /** Empty: the device and pool with the most memory. */
  device: string;
  pool: string;
  /** Window in time; null: the whole recording. */
  t0: number | null;
  t1: number | null;
  /** The shared cursor; null: the peak. */
  t: number | null;
  /** The selected block. */
  block: number | null;
  // The filter.
  owner: string;
  thread: string;
  step: string;
  site: string;
  text: string;
  /** What the timeline is stacked by, and what holds memory at the cursor is grouped by; empty: what tells most. */
  by: "" | "owner" | "site" | "size" | "pool";
  // Blocks: the window in addresses.
  y0: number | null;
  y1: number | null;
  // Flame graphs.
  kind: "peak" | "time" | "window" | "leaked" | "difference";
  r2: number | null;
  invert: boolean;
  search: string;
  focus: number | null;
  // Tables.
  table: "blocks" | "events";
  alive: "any" | "window" | "end" | "kept" | "leaked";
  inefficient: boolean;
  event: string;
  sort: string;
  descending: boolean;
  offset: number;
}

export const DEFAULTS: Readonly<State> = {
  view: "overview",
  r: 0,
  device: "",
  pool: "",
  t0: null,
  t1: null,
  t: null,
  block: null,
  owner: "",
  thread: "",
  step: "",
  site: "",
  text: "",
  by: "",
  y0: null,
  y1: null,
  kind: "peak",
  r2: null,
  invert: false,
  search: "",
  focus: null,
  table: "blocks",
  alive: "any",
  inefficient: false,
  event: "",
  sort: "",
  descending: false,
  offset: 0,
};

const CHOICES: Partial<Record<keyof State, readonly string[]>> = {
  view: VIEWS,
  by: ["owner", "site", "size", "pool"],
  kind: ["peak", "time", "window", "leaked", "difference"],
  table: ["blocks", "events"],
  alive: ["any", "window", "end", "kept", "leaked"],
};

const KEYS: ReadonlySet<string> = new Set(Object.keys(DEFAULTS));

/** Numbers that may be absent. */
const NULLABLE = new Set<keyof State>(["t0", "t1", "t", "block", "y0", "y1", "r2", "focus"]);

/** The part of a state that `pairs` name; unknown names and impossible values are passed over. */
export function parseState(pairs: Iterable<readonly [string, string | number | boolean | null]>): Partial<State> {
  const found: Record<string, unknown> = {};
  for (const [name, value] of pairs) {
    if (!KEYS.has(name) || value === null) continue;
    const key = name as keyof State;
    const model = DEFAULTS[key];
    if (typeof model === "boolean") {
      found[key] = value === true || value === "1" || value === 1 || value === "true";
    } else if (typeof model === "number" || NULLABLE.has(key)) {
      const number = Number(value);
      if (value !== "" && Number.isFinite(number)) found[key] = number;
    } else if (!CHOICES[key] || CHOICES[key].includes(String(value))) {
      found[key] = String(value);
    }
  }
  return found as Partial<State>;
}

export function parseHash(hash: string): State {
  return { ...DEFAULTS, ...parseState(new URLSearchParams(hash.replace(/^#/, ""))) };
}

export function formatHash(state: State): string {
  const parameters = new URLSearchParams();
  for (const key of Object.keys(DEFAULTS) as (keyof State)[]) {
    const value = state[key];
    if (value === DEFAULTS[key] && key !== "view") continue;
    parameters.set(key, typeof value === "boolean" ? (value ? "1" : "0") : String(value));
  }
  return "#" + parameters.toString();
}

/** The state of the page; whoever shows it subscribes. */
export class Store {
  private current: State;
  private readonly listeners = new Set<() => void>();

  constructor(
    hash: string,
    private readonly write: (hash: string, isNewEntry: boolean) => void = () => {},
  ) {
    this.current = parseHash(hash);
  }

  get state(): State {
    return this.current;
  }

  /** Changes the state. Going elsewhere is a new entry of the browser's history; moving and zooming are not. */
  set(change: Partial<State>, isNewEntry = false): void {
    const next = { ...this.current, ...change };
    // A number of something in another recording would be something else there.
    if (next.r !== this.current.r)
      Object.assign(next, { block: null, site: "", focus: null, ...pick(change, ["block", "site"]) });
    if (formatHash(next) === formatHash(this.current)) return;
    this.current = next;
    this.write(formatHash(next), isNewEntry || change.view !== undefined);
    this.tell();
  }

  /** The address has changed: back, forward, or a link followed. */
  read(hash: string): void {
    this.current = parseHash(hash);
    this.tell();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private tell(): void {
    for (const listener of [...this.listeners]) listener();
  }
}

function pick(change: Partial<State>, keys: (keyof State)[]): Partial<State> {
  return Object.fromEntries(keys.filter((key) => key in change).map((key) => [key, change[key]])) as Partial<State>;
}
