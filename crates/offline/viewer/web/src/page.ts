// What every component needs: the source of data, the shared state and the recording that is shown; and `useAnswer`,
// the one way in which views ask questions.
import { createContext } from "preact";
import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Answers, PoolFacts, Progress, Question, RecordingFacts, Session } from "./source/answers";
import { addressOf, type DataSource, type Parameters } from "./source/source";
import type { State, Store } from "./state";
import { programName } from "./names";
import { text } from "./texts";

export interface Page {
  source: DataSource;
  store: Store;
  state: State;
  session: Session;
  recording: RecordingFacts;
  device: string;
  pool: string;
  poolFacts: PoolFacts | null;
  /** What memory is divided by: what the user chose, otherwise owners, or call sites where nobody knows owners. */
  by: "owner" | "site" | "size" | "pool";
  /** The window that is shown, never empty; without one in the state, the time in which there was memory. */
  window: [number, number];
  /** The moment of the cursor: where the user put it, otherwise the peak. */
  cursor: number;
  /** Changes when there is something newer of a job that is followed: answers are asked for again. */
  revision: string;
  /** Changes with the theme, the language and the arrival of more data: what is drawn has to be drawn again. */
  appearance: string;
}

export const PageContext = createContext<Page | null>(null);

export function usePage(): Page {
  const page = useContext(PageContext);
  if (!page) throw new Error("a view outside of the page");
  return page;
}

/** Programs start and end without device memory: the page opens on the time in between, with a little air around it. */
export function activeRange(recording: RecordingFacts): [number, number] {
  const whole: [number, number] = [recording.t0, Math.max(recording.t1, recording.t0 + 1)];
  const first = recording.active_t0 ?? whole[0];
  const last = recording.active_t1 ?? whole[1];
  if (last <= first) return whole;
  const air = Math.ceil((last - first) * 0.02);
  return [Math.max(whole[0], first - air), Math.min(whole[1], last + air)];
}

/** Which device, pool, window and moment a state means for this session. */
export function resolve(session: Session, state: State): Omit<Page, "source" | "store" | "appearance" | "revision"> {
  const recording = session.recordings[state.r] ?? session.recordings[0];
  if (!recording) throw new Error("no recording");
  const device =
    recording.devices.find((candidate) => candidate.device === state.device) ??
    recording.devices.find((candidate) => candidate.pools.some((pool) => pool.is_main)) ??
    recording.devices[0];
  const pools = device?.pools ?? [];
  const largest = [...pools].sort((left, right) => right.peak_bytes - left.peak_bytes)[0];
  const poolFacts =
    pools.find((pool) => pool.pool === state.pool) ??
    pools.find((pool) => pool.is_main) ??
    pools.find((pool) => pool.pool !== "HAL" && pool.peak_bytes > 0) ??
    largest ??
    null;
  const [first, last] = activeRange(recording);
  const start = state.t0 ?? first;
  const end = state.t1 ?? last;
  const window: [number, number] = end > start ? [start, end] : [first, last];
  return {
    session,
    state,
    recording,
    device: device?.device ?? "",
    pool: poolFacts?.pool ?? "",
    poolFacts,
    by: state.by || dividedBy(recording, poolFacts),
    window,
    cursor: state.t ?? poolFacts?.peak_t ?? recording.t0,
  };
}

/** The numbers of the steps of a recording, from the first to the last. */
export function stepNumbers(recording: RecordingFacts): { first: number; last: number; count: number } {
  const { steps, first_step, last_step } = recording;
  if (steps === 0) return { first: 1, last: 0, count: 0 };
  const first = first_step ?? 1;
  const last = last_step ?? first + steps - 1;
  return { first, last, count: last - first + 1 };
}

/** What tells the blocks of a pool apart: owners, or call sites where nobody knows owners. */
export function dividedBy({ has }: RecordingFacts, pool: PoolFacts | null): "owner" | "site" {
  return pool?.tells_owners === false && (has.python_stacks || has.native_stacks) ? "site" : "owner";
}

/** What people call a recording: its rank, its program and its process, as far as they are known. */
export function recordingTitle(recording: RecordingFacts): string {
  const program = recording.command ? programName(recording.command) : "";
  const name = program && recording.process_id !== null ? `${program} · ${recording.process_id}` : recording.name;
  return recording.rank === null ? name : `${text("facts_rank")} ${recording.rank} · ${name}`;
}

/** The parameters of every question about memory: which recording, device and pool. */
export function placeOf(page: Page): Parameters {
  return { r: page.recording.r, device: page.device, pool: page.pool };
}

/** The filter as parameters. */
export function filterOf(state: State): Parameters {
  return { owner: state.owner, thread: state.thread, step: state.step, site: state.site, text: state.text };
}

/** Whether only a summary speaks for a recording: nobody has asked about it yet, or it is not here or cannot be read. */
export function rests(recording: RecordingFacts | undefined): boolean {
  return recording !== undefined && ["waiting", "summary", "failed"].includes(recording.state);
}

/** Whether summaries speak for some of the recordings. */
export function isSummarised(session: Session): boolean {
  return session.recordings.some(({ state }) => state === "waiting" || state === "summary");
}

/** Which reading of each recording is shown. */
export function revisionOf(session: Session): string {
  return session.recordings.map((recording) => recording.live?.revision ?? 0).join();
}

export function isFiltered(state: State): boolean {
  return Object.values(filterOf(state)).some((value) => value !== "");
}

export interface Reply<T> {
  /** The newest answer, which may still be that of the question before while the next one is under way. */
  answer: T | null;
  /** Whether `answer` answers this very question. */
  current: boolean;
  problem: string | null;
}

/** These say something true before a recording is read to its end; all others are empty until then. */
const PROGRESSIVE: ReadonlySet<Question> = new Set<Question>(["findings", "ranks", "curve"]);
const CACHE_LIMIT = 64;
const cache = new Map<string, unknown>();
/** How often an answer that is not complete yet is asked for again. */
const REFRESH_MS = 400;
/** Several changes within one frame make one question. */
const SETTLE_MS = 30;

function remember(address: string, answer: unknown): void {
  cache.delete(address);
  cache.set(address, answer);
  for (const oldest of cache.keys()) {
    if (cache.size <= CACHE_LIMIT) break;
    cache.delete(oldest);
  }
}

let waited = 0;

/** One more question is waited for, whichever view it is for; returns what says once that it is not any more. */
function waitFor(): () => void {
  const add = (change: number) => (document.documentElement.dataset["waiting"] = String((waited += change)));
  let waits = true;
  add(1);
  return () => {
    if (waits) add(-1);
    waits = false;
  };
}

/**
 * Asks a question, again whenever it or the recording changes, or until its answer is complete. `parameters` null asks
 * nothing, and so does a recording of which only the summary is known.
 */
export function useAnswer<Q extends Question>(question: Q, parameters: Parameters | null): Reply<Answers[Q]> {
  const { source, revision, session } = usePage();
  const isAsked = parameters && !(typeof parameters["r"] === "number" && rests(session.recordings[parameters["r"]]));
  const address = isAsked ? addressOf(question, parameters) : null;
  const [reply, setReply] = useState<{ address: string | null; answer: Answers[Q] | null; problem: string | null }>({
    address: null,
    answer: null,
    problem: null,
  });
  const wanted = useRef(parameters);
  wanted.current = parameters;
  useEffect(() => {
    if (address === null) return;
    const key = `${revision} ${address}`;
    const known = cache.get(key) as Answers[Q] | undefined;
    if (known !== undefined) {
      setReply({ address, answer: known, problem: null });
      return;
    }
    const controller = new AbortController();
    const isAnswered = waitFor();
    let timer = 0;
    const ask = async () => {
      try {
        const answer = await source.ask(question, wanted.current ?? {}, controller.signal);
        if (controller.signal.aborted) return;
        const isComplete = (answer as Partial<Progress>).complete !== false;
        if (isComplete || PROGRESSIVE.has(question)) setReply({ address, answer, problem: null });
        if (!isComplete) timer = window.setTimeout(ask, REFRESH_MS);
        else {
          remember(key, answer);
          isAnswered();
        }
      } catch (error) {
        if (controller.signal.aborted) return;
        setReply((old) => ({
          address,
          answer: old.answer,
          problem: error instanceof Error ? error.message : String(error),
        }));
        isAnswered();
      }
    };
    timer = window.setTimeout(ask, SETTLE_MS);
    return () => {
      controller.abort();
      window.clearTimeout(timer);
      isAnswered();
    };
  }, [address, source, revision]);
  return useMemo(
    () => ({
      answer: address === null ? null : reply.answer,
      current: reply.address === address,
      problem: reply.address === address ? reply.problem : null,
    }),
    [address, reply],
  );
}
