// What the server answers (crates/offline/viewer: one module per question). Times are nanoseconds since the session's origin,
// sizes are bytes. Strings come from recordings as they are: they are only ever shown as text.

export interface Progress {
  complete: boolean;
  fraction?: number;
}

export interface PoolFacts {
  pool: string;
  title: string;
  blocks: number;
  peak_bytes: number;
  peak_t: number;
  end_bytes: number;
  reserved_peak_bytes: number | null;
  is_main: boolean;
  /** Whether owners tell its blocks apart; absent as long as nobody knows. */
  tells_owners?: boolean;
}

export interface DeviceFacts {
  device: string;
  card_total_bytes: number | null;
  card_peak_bytes: number | null;
  pools: PoolFacts[];
}

export interface RecordingFacts {
  r: number;
  name: string;
  path: string;
  kind: string;
  process_id: number | null;
  rank: number | null;
  world_size: number | null;
  host: string | null;
  command: string | null;
  t0: number;
  t1: number;
  /** The first and last memory event; absent where that is not known yet. */
  active_t0?: number | null;
  active_t1?: number | null;
  events: number;
  blocks: number;
  steps: number;
  /** Numbers of the first and the last step, as far as they are known. */
  first_step?: number | null;
  last_step?: number | null;
  /** Of what waits or has only a summary, everything said here comes from the summary. */
  state: "opening" | "waiting" | "summary" | "reading" | "analysing" | "ready" | "failed";
  fraction: number;
  error: string | null;
  missing: string[];
  threads: { thread: number; events: number }[];
  devices: DeviceFacts[];
  has: Partial<Record<Feature, boolean>>;
  /** The job that goes on writing it, where jobs are followed. */
  live?: LiveFacts | null;
}

export interface LiveFacts {
  condition: "opening" | "running" | "ended" | "cut_off" | "unreadable";
  /** Why it cannot be read. */
  reason: string | null;
  /** Grows whenever the recording has been read again. */
  revision: number;
  /** Whether nothing newer will come. */
  is_last: boolean;
  // What the job says at this very moment, which may be more than has been read.
  events: number;
  recorded_ns: number;
  pools: { device: string; pool: string; used_bytes: number; reserved_bytes: number; peak_bytes: number }[];
  step: number | null;
}

export type Feature =
  | "steps"
  | "ranges"
  | "operators"
  | "kernels"
  | "python_calls"
  | "watch"
  | "native_stacks"
  | "python_stacks"
  | "accesses";

export interface Session extends Progress {
  version: number;
  tool: string;
  origin_ns: string;
  /** Whether jobs are followed that have not ended yet. */
  live?: boolean;
  /** Something to know about what was opened. */
  notice?: string | null;
  recordings: RecordingFacts[];
}

export type FindingFigure =
  | "bytes_per_step"
  | "first_step"
  | "last_step"
  | "held_bytes"
  | "needed_bytes"
  | "line_bytes"
  | "step";

export interface Finding {
  r: number;
  /** The ranks it holds for, if it is told once for several. */
  ranks?: number[];
  kind: string;
  severity: "error" | "warning" | "info";
  sentence: string;
  bytes: number | null;
  count: number | null;
  /** Further numbers of the sentence. */
  figures?: Partial<Record<FindingFigure, number>>;
  file: string | null;
  line: number | null;
  function: string | null;
  device: string | null;
  pool: string | null;
  t: number | null;
  /** The variable that holds most of it. */
  held_by: string | null;
  details: string[];
  /** What to do, in sentences. */
  advice: string[];
  /** Why memory ran out, in one word. */
  verdict?: string | null;
  link: Record<string, string | number | boolean | null> | null;
}

export interface Findings extends Progress {
  /** The answer in one to three sentences, recording by recording. */
  headlines?: { r: number; sentences: string[] }[];
  findings: Finding[];
}

export interface Series {
  key: string;
  label: string;
  peak_bytes: number;
  values: number[];
}

export type Line = (number | null)[];

export interface Curve extends Progress {
  t0: number;
  t1: number;
  width: number;
  by: string;
  approximate: boolean;
  /** Null where nothing has been read yet. */
  min: Line;
  max: Line;
  series: Series[];
  lines: { reserved?: Line; driver?: Line; card?: Line; card_process?: Line };
  card_total_bytes?: number | null;
  other_processes?: Line | null;
  unexplained?: Line | null;
  peak_bytes: number;
  peak_t: number;
}

export interface SpanRow {
  start: number[];
  end: number[];
  name: number[];
  count: number[];
}

export interface Track {
  track: string;
  kind: "spans" | "instants";
  thread: number;
  title: string;
  rows?: SpanRow[];
  at?: number[];
  name?: number[];
  count?: number[];
}

export interface Tracks extends Progress {
  names: string[];
  tracks: Track[];
}

export interface Calls extends Progress {
  /** With the time from the first to the last call that another one makes. */
  threads: { thread: number; calls: number; t0?: number | null; t1?: number | null }[];
  thread: number | null;
  names: string[];
  rows: SpanRow[];
  matches?: number;
  matching?: number[];
}

export interface BlockMap extends Progress {
  t0: number;
  t1: number;
  y0: number;
  y1: number;
  y_total: number;
  regions: { y: number; bytes: number; address: string }[];
  regions_more?: number;
  block: number[];
  start: number[];
  end: (number | null)[];
  y: number[];
  bytes: number[];
  owner: number[];
  site: number[];
  owners: string[];
  more: { columns: number; rows: number; coverage: string; blocks: number } | null;
}

export interface Frame {
  function: string;
  file: string;
  line: number;
  language?: string;
  source?: boolean;
}

export interface Neighbour {
  block: number;
  address: string;
  bytes: number;
  distance_bytes?: number;
  owner: string;
  line: string;
  end?: number | null;
}

export interface BlockFacts extends Progress {
  block: number;
  allocation_id: number;
  row_id?: number;
  address: string;
  bytes: number;
  device: string;
  pool: string;
  start: number;
  end: number | null;
  before_recording: boolean;
  freed_by_nobody?: boolean;
  thread: number;
  step: number;
  end_step: number | null;
  owner: string;
  operator: string;
  site: number;
  line: string;
  inefficient: string[];
  leaked: boolean;
  stack: Frame[];
  native: Frame[];
  accesses: { t: number; operator: string; kind: string; thread: number }[];
  accesses_total: number;
  below: Neighbour | null;
  above: Neighbour | null;
  previous: Neighbour | null;
  next: Neighbour | null;
}

export interface HoldRow {
  key: string;
  label: string;
  bytes: number;
  blocks: number;
  file?: string | null;
  line?: number | null;
  function?: string | null;
}

export interface Holds extends Progress {
  t: number;
  used_bytes: number;
  blocks: number;
  by: string;
  rows: HoldRow[];
  more: { rows: number; bytes: number; blocks: number } | null;
}

export interface Flame extends Progress {
  kind: string;
  t: number | null;
  total_bytes: number;
  blocks_total?: number;
  pruned_bytes: number;
  parent: number[];
  name: number[];
  bytes: number[];
  blocks: number[];
  self_bytes: number[];
  before_bytes?: number[];
  names: Frame[];
}

export interface OwnerNode {
  name: string;
  owner: string;
  bytes: number;
  blocks: number;
  self_bytes: number;
  children: OwnerNode[];
}

export interface Owners extends Progress {
  t: number;
  total_bytes: number;
  tree: OwnerNode;
}

export interface StepRow {
  step: number;
  start: number;
  end: number;
  start_bytes: number;
  end_bytes: number;
  peak_bytes: number;
  peak_t: number;
  growth_bytes: number;
  kept_bytes: number;
  kept_blocks: number;
  grew: { site: number; label: string; bytes: number; file?: string | null; line?: number | null }[];
}

export interface Steps extends Progress {
  total: number;
  /** Steps that a report has no room for. */
  left_out?: number;
  bytes_per_step: number | null;
  rows: StepRow[];
}

/** Steps that are shown together, as there are more of them than there is room for; often only one. */
export interface StepBar {
  /** Number of steps before it. */
  offset: number;
  steps: number;
  first_step: number;
  last_step: number;
  start: number;
  first_end: number;
  end: number;
  least_end_bytes: number;
  most_end_bytes: number;
  /** At the end of the last of them. */
  end_bytes: number;
  peak_bytes: number;
  peak_t: number;
  peak_step: number;
  growth_bytes: number;
}

export interface StepBars extends Progress {
  total: number;
  steps_per_bar: number;
  bars: StepBar[];
}

/** What ranks are compared by. */
export type RankFigure = "peak_bytes" | "unused_bytes" | "end_bytes" | "bytes_per_step" | "allocations" | "steps";

export interface RankRow {
  r: number;
  /** Number of its job. */
  job: number;
  rank: number | null;
  host: string | null;
  process_id: number | null;
  /** Empty if the process used none. */
  device: string;
  pool: string;
  peak_bytes: number;
  /** Reserved at most, without the most that was in use. */
  unused_bytes: number;
  end_bytes: number;
  bytes_per_step: number | null;
  leaked_bytes: number;
  allocations: number;
  out_of_memory: boolean;
  steps: number;
  /** Figures that stand out among the ranks, and how many times the median they are; null beside a median of zero. */
  outlier: { figure: RankFigure; times_median: number | null }[];
  /** Why it is called different. */
  sentence: string | null;
}

export interface Ranks extends Progress {
  jobs: { heading: string; command: string; sentences: string[] }[];
  rows: RankRow[];
  notice: string | null;
}

export interface Segment {
  address: string;
  bytes: number;
  used_bytes: number;
  largest_gap_bytes: number;
  gaps: number;
  offset: number[];
  length: number[];
  block: number[];
  owner: number[];
  site: number[];
  /** Whether the filter means it. */
  meant: boolean[];
}

export interface Pool extends Progress {
  t: number;
  reserved_bytes: number | null;
  used_bytes: number;
  meant_bytes: number;
  segments_total: number;
  gaps_total: number;
  gap_bytes: number;
  largest_gap_bytes: number;
  segments: Segment[];
  owners: string[];
  failure: { t: number; requested_bytes: number; verdict: string; sentences: string[] } | null;
}

export interface Fragmentation extends Progress {
  t: number[];
  reserved_bytes: Line;
  used_bytes: Line;
  idle_bytes: Line;
  largest_gap_bytes: Line;
  gap_bytes: Line;
  step: number[];
}

export interface WatchChange {
  t: number;
  block: number;
  operator: string;
  call: number | null;
  changed_bytes: number | null;
  sentence: string;
  file: string | null;
  line: number | null;
  step: number | null;
  spans: [number, number][];
}

export interface Watch extends Progress {
  blocks: {
    name: string;
    device: string;
    address: string;
    bytes: number;
    looks: number;
    declared_changes: number;
    corruptions: number;
  }[];
  changes: WatchChange[];
  hunt: { operators: number; looks_due: number; looks_taken: number } | null;
}

export type Cell = string | number | null;

export interface Table extends Progress {
  total: number;
  total_bytes?: number;
  total_exact?: boolean;
  offset: number;
  columns: string[];
  rows: Cell[][];
}

export interface Source {
  file: string;
  first_line: number;
  lines: string[];
  line: number;
}

export interface Answers {
  session: Session;
  findings: Findings;
  curve: Curve;
  tracks: Tracks;
  calls: Calls;
  blocks: BlockMap;
  block: BlockFacts;
  holds: Holds;
  flame: Flame;
  owners: Owners;
  steps: Steps;
  "steps/bars": StepBars;
  ranks: Ranks;
  pool: Pool;
  fragmentation: Fragmentation;
  watch: Watch;
  "table/blocks": Table;
  "table/events": Table;
  source: Source;
}

export type Question = keyof Answers;
