// The frame of the page: bar, views, filter, status line. It asks for the session and gives everything below it the
// page.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Select } from "./components/controls";
import { FilterBar } from "./components/filter-bar";
import { Help } from "./components/help";
import { LiveMark } from "./components/live";
import { Empty, Loading, Problem } from "./components/states";
import { listenToKeys } from "./keyboard";
import { momentText } from "./canvas/time";
import {
  isSummarised,
  PageContext,
  placeOf,
  recordingTitle,
  resolve,
  rests,
  revisionOf,
  useAnswer,
  usePage,
  type Page,
} from "./page";
import type { RecordingFacts, Session } from "./source/answers";
import type { DataSource } from "./source/source";
import { formatHash, VIEWS, type Store, type View } from "./state";
import { setLanguage, text, type Language } from "./texts";
import { applyTheme, keepSetting, preferredTheme, setting, type ThemeName } from "./theme";
import { bytes, percent, span } from "./units";
import { viewOf } from "./views";
import { questionsOf } from "./views/questions";

/** The views that the filter has an effect on. */
const FILTERED: ReadonlySet<View> = new Set([
  "timeline",
  "blocks",
  "flame",
  "owners",
  "steps",
  "pool",
  "calls",
  "table",
]);
/** The views of which a report shows all that the server would. */
const NOTHING_MORE: ReadonlySet<View> = new Set(["overview", "ranks", "watch", "steps"]);
/** The views that need no recording, only what is known of all of them. */
const OF_ALL: ReadonlySet<View> = new Set(["overview", "ranks"]);
const SESSION_REFRESH_MS = 300;
/** The session of more recordings than this is asked for less often: it is long. */
const MANY_RECORDINGS = 200;
const LIVE_REFRESH_MS = 1000;
const RETRY_MS = 2000;

export function App({ source, store }: { source: DataSource; store: Store }) {
  const [state, setState] = useState(store.state);
  useEffect(() => store.subscribe(() => setState(store.state)), [store]);
  const [isPaused, setPaused] = useState(false);
  const { session, problem } = useSession(source, isPaused, OF_ALL.has(state.view) ? null : state.r);
  // Of many ranks, the first thing to see is which one differs.
  useEffect(() => {
    if (session && isSummarised(session) && !location.hash.includes("view=")) store.set({ view: "ranks" });
  }, [session !== null && isSummarised(session), store]);
  const { theme, language, toggleTheme, toggleLanguage } = useAppearance();
  const [isHelpOpen, setHelpOpen] = useState(false);
  const steps = useRef<(direction: -1 | 1) => void>(() => {});

  const page = useMemo<Page | null>(() => {
    if (!session || session.recordings.length === 0) return null;
    const progress = session.recordings.map((recording) => `${recording.state}${recording.fraction}`).join();
    const revision = revisionOf(session);
    const appearance = `${theme} ${language} ${progress} ${revision}`;
    return { source, store, ...resolve(session, state), revision, appearance };
  }, [session, state, source, store, theme, language]);
  const views = useMemo(() => (page ? visibleViews(page) : []), [page]);
  const latest = useRef({ page, views });
  latest.current = { page, views };
  useEffect(
    () =>
      listenToKeys({
        page: () => latest.current.page,
        views: () => latest.current.views,
        toggleHelp: (isOpen) => setHelpOpen((old) => isOpen ?? !old),
        goToStep: (direction) => steps.current(direction),
      }),
    [],
  );
  useEffect(() => {
    document.title = page ? `${text(page.state.view)} – ${page.recording.name} – msMemScope` : "msMemScope";
  }, [page, language]);

  const controls = (
    <>
      <button type="button" class="plain" title={text("language_title")} onClick={toggleLanguage}>
        {text("language")}
      </button>
      <button type="button" class="plain" title={text("theme_title")} onClick={toggleTheme}>
        {text(theme === "dark" ? "theme_light" : "theme_dark")}
      </button>
      <button type="button" class="plain" onClick={() => setHelpOpen(true)}>
        {text("help")} <kbd>?</kbd>
      </button>
    </>
  );
  if (!page) {
    return (
      <div class="page">
        <header class="bar">
          <Brand session={session} />
          <span class="spacer" />
          {controls}
        </header>
        <main class="main">
          {problem ? (
            <Unreachable problem={problem} />
          ) : session?.complete ? (
            <Loading>{text("no_recordings")}</Loading>
          ) : (
            <Loading>{text("opening")}</Loading>
          )}
        </main>
        {isHelpOpen && <Help onClose={() => setHelpOpen(false)} />}
      </div>
    );
  }
  const View = viewOf(page.state.view);
  return (
    <PageContext.Provider value={page}>
      <a class="skip" href={formatHash(state)} onClick={(event) => focusContent(event)}>
        {text("skip")}
      </a>
      <div class="page">
        <header class="bar">
          <Brand session={session} />
          <Selectors page={page} />
          {page.recording.live && (
            <LiveMark live={page.recording.live} isPaused={isPaused} onPause={() => setPaused(!isPaused)} />
          )}
          <span class="spacer" />
          {source.live && <CopyLink />}
          {controls}
        </header>
        <nav class="rail" aria-label={text("views")}>
          {views.map((view, index) => (
            <a
              key={view}
              href={formatHash({ ...state, view })}
              aria-current={view === state.view ? "page" : undefined}
              onClick={(event) => {
                if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                event.preventDefault();
                store.set({ view });
              }}
            >
              <kbd aria-hidden="true">{index < 10 ? (index + 1) % 10 : "·"}</kbd>
              {text(view)}
            </a>
          ))}
        </nav>
        <main class="main" id="content" tabIndex={-1}>
          <RecordingProgress recording={page.recording} />
          {FILTERED.has(state.view) && (source.live || state.view === "flame") && <FilterBar />}
          <div class="content" data-view={state.view}>
            {problem && <Unreachable problem={problem} />}
            {page.session.notice && <p class="notice warning">{page.session.notice}</p>}
            {!source.live && !NOTHING_MORE.has(state.view) && <p class="muted toolbar">{text("in_report")}</p>}
            <RecordingState recording={page.recording} />
            {(OF_ALL.has(state.view) || !rests(page.recording)) && <View key={`${state.view} ${page.recording.r}`} />}
          </div>
        </main>
        <Status />
      </div>
      <StepKeys actions={steps} />
      {isHelpOpen && <Help onClose={() => setHelpOpen(false)} />}
    </PageContext.Provider>
  );
}

function focusContent(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/**
 * The session, asked for until it is complete, as long as jobs go on, and again when the server is back. `shown` is the
 * recording that is looked at: one that waits for that is opened then.
 */
function useSession(
  source: DataSource,
  isPaused: boolean,
  shown: number | null,
): { session: Session | null; problem: string | null } {
  const [session, setSession] = useState<Session | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const isWaiting = shown !== null && session?.recordings[shown]?.state === "waiting";
  const wanted = isWaiting ? shown : null;
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const ask = async () => {
      let again = RETRY_MS;
      try {
        const answer = await source.ask("session", source.live ? { r: wanted } : {});
        if (isOver) return;
        setSession(answer);
        setProblem(null);
        if (answer.complete && !answer.live) return;
        const isLong = answer.recordings.length > MANY_RECORDINGS;
        again = answer.complete || isLong ? LIVE_REFRESH_MS : SESSION_REFRESH_MS;
      } catch (error) {
        if (isOver) return;
        setProblem(error instanceof Error ? error.message : String(error));
      }
      timer = window.setTimeout(ask, again);
    };
    if (!isPaused) void ask();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
    };
  }, [source, isPaused, wanted]);
  return { session, problem };
}

function useAppearance() {
  const [theme, setTheme] = useState<ThemeName>(() => (setting("theme") as ThemeName | null) ?? preferredTheme());
  const [language, setWords] = useState<Language>(() => {
    const wanted = setting("language") ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
    return wanted === "zh" ? "zh" : "en";
  });
  // Before the first drawing, not after it.
  setLanguage(language);
  if (document.documentElement.dataset["theme"] !== theme) applyTheme(theme);
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  return {
    theme,
    language,
    toggleTheme: () => {
      const next = theme === "dark" ? "light" : "dark";
      keepSetting("theme", next);
      setTheme(next);
    },
    toggleLanguage: () => {
      const next = language === "zh" ? "en" : "zh";
      keepSetting("language", next);
      setWords(next);
    },
  };
}

/** The views that have something to say about this session. */
function visibleViews(page: Page): View[] {
  return VIEWS.filter((view) => {
    if (view === "ranks" && page.session.recordings.length < 2) return view === page.state.view;
    return questionsOf(view).some((question) => page.source.answers(question));
  });
}

function Brand({ session }: { session: Session | null }) {
  return (
    <h1 class="brand">
      msMemScope
      {session && <small>{session.tool}</small>}
    </h1>
  );
}

function Selectors({ page }: { page: Page }) {
  const { session, recording, store } = page;
  const device = recording.devices.find((candidate) => candidate.device === page.device);
  return (
    <>
      {session.recordings.length > 1 ? (
        <Select
          label={text("recording")}
          choices={session.recordings.map((candidate) => [String(candidate.r), recordingTitle(candidate)] as const)}
          value={String(recording.r)}
          onChange={(r) => store.set({ r: Number(r), t0: null, t1: null, t: null, device: "", pool: "" })}
        />
      ) : (
        <span class="muted recording" title={recording.path}>
          {recordingTitle(recording)}
        </span>
      )}
      {recording.devices.length > 1 && (
        <Select
          label={text("device")}
          choices={recording.devices.map(
            (candidate) => [candidate.device, text("device_short", candidate.device)] as const,
          )}
          value={page.device}
          onChange={(next) => store.set({ device: next, pool: "", t: null, y0: null, y1: null, block: null })}
        />
      )}
      {device && device.pools.length > 0 && (
        <Select
          label={text("pool_select")}
          choices={device.pools.map((pool) => [pool.pool, `${pool.title} · ${bytes(pool.peak_bytes)}`] as const)}
          value={page.pool}
          onChange={(pool) => store.set({ pool, device: page.device, y0: null, y1: null, block: null })}
        />
      )}
    </>
  );
}

function CopyLink() {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(location.href);
    setCopied(true);
    window.setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" class="plain" onClick={() => void copy()}>
      {text(isCopied ? "copied" : "copy_link")}
    </button>
  );
}

function Unreachable({ problem }: { problem: string }) {
  return <Problem message={`${text("unreachable", problem)} ${text("unreachable_advice")}`} />;
}

function RecordingProgress({ recording }: { recording: RecordingFacts }) {
  if (recording.state === "ready" || rests(recording)) return null;
  const share = Math.round(recording.fraction * 100);
  return (
    <div class="progress" role="progressbar" aria-valuenow={share} aria-valuemin={0} aria-valuemax={100}>
      <div style={{ width: `${share}%` }} />
    </div>
  );
}

/** Says what is going on with the recording while it is not all there. */
function RecordingState({ recording }: { recording: RecordingFacts }) {
  const { state } = usePage();
  if (recording.state === "failed") return <Problem message={text("failed", recording.error ?? "")} />;
  if (recording.state === "ready") return null;
  if (recording.state === "summary")
    return OF_ALL.has(state.view) ? null : <Empty>{text("summary_only", recording.path)}</Empty>;
  if (recording.state === "waiting") return OF_ALL.has(state.view) ? null : <Loading>{text("opening")}</Loading>;
  const sentence =
    recording.state === "opening"
      ? text("opening")
      : recording.state === "reading"
        ? text("reading", percent(recording.fraction, 1))
        : text("analysing");
  return (
    <div class="notice" role="status">
      {sentence}
    </div>
  );
}

function Status() {
  const page = usePage();
  const reply = useAnswer(
    "holds",
    page.pool && page.source.live ? { ...placeOf(page), t: page.cursor, by: "owner", limit: 1 } : null,
  );
  return (
    <footer class="status">
      <span>
        {text("status_window")} <b>{span(page.window[1] - page.window[0])}</b>
      </span>
      <span>
        {text("status_cursor")} <b>{momentText(page, page.cursor)}</b> {page.state.t === null && text("status_peak")}
      </span>
      {reply.answer && (
        <span>
          {text("status_in_use")} <b>{bytes(reply.answer.used_bytes)}</b>
        </span>
      )}
    </footer>
  );
}

/** Steps around the cursor that `[` and `]` know: enough for somebody who presses quickly. */
const STEPS_AROUND = 40;

/** `[` and `]` need to know where the steps are. */
function StepKeys({ actions }: { actions: { current: (direction: -1 | 1) => void } }) {
  const page = usePage();
  const reply = useAnswer(
    "steps",
    page.recording.steps > 0 && page.source.answers("steps")
      ? { ...placeOf(page), around: page.cursor, limit: STEPS_AROUND, brief: true }
      : null,
  );
  actions.current = (direction) => {
    const ends = (reply.answer?.rows ?? []).map((row) => row.end).sort((left, right) => left - right);
    const next =
      direction === 1 ? ends.find((end) => end > page.cursor) : ends.reverse().find((end) => end < page.cursor);
    if (next !== undefined) page.store.set({ t: next });
  };
  return null;
}
