// Overview: what was found, worst first, each finding in one sentence with a link into the evidence; then every
// device with a small curve. Findings are text in the document.
import { useCallback, useState } from "preact/hooks";
import { Surface, type Pen } from "../canvas/surface";
import { drawArea } from "../components/minimap";
import { Panel } from "../components/controls";
import { LiveNow } from "../components/live";
import { Answered, Loading } from "../components/states";
import { placeText } from "../names";
import { activeRange, isSummarised, recordingTitle, rests, useAnswer, usePage, type Page } from "../page";
import type { DeviceFacts, Finding, PoolFacts, RecordingFacts } from "../source/answers";
import { formatHash, parseState, type State } from "../state";
import { currentLanguage, text, textOr, type TextKey } from "../texts";
import { bytes, count, moment, percent, seconds } from "../units";
import { questionsOf } from "./questions";

const CURVE_HEIGHT = 72;
/** More devices than these stand below the findings, not beside them. */
const MOST_CARDS_BESIDE = 4;

export function OverviewView() {
  const page = usePage();
  const reply = useAnswer("findings", {});
  // What nobody has opened yet would be a card without a curve.
  const shown = page.session.recordings.filter((recording) => recording === page.recording || !rests(recording));
  const cards = shown.flatMap((recording) =>
    recording.devices
      .filter((device) => device.pools.length > 0)
      .map((device) => <DeviceCard key={`${recording.r} ${device.device}`} recording={recording} device={device} />),
  );
  return (
    <>
      {page.recording.live && <LiveNow recording={page.recording} live={page.recording.live} />}
      <div class={cards.length > MOST_CARDS_BESIDE ? "" : "beside"}>
        <div>
          <div class="heading">
            <h2>{text("findings")}</h2>
          </div>
          {isSummarised(page.session) && <JobSentences />}
          <Answered reply={reply}>
            {({ findings, headlines, complete }) => (
              <>
                {!complete && <Loading>{text("findings_searching")}</Loading>}
                {currentLanguage() === "en" && (
                  <Headline sentences={untold(headlines?.find(({ r }) => r === page.recording.r)?.sentences, findings)} />
                )}
                <ol class="findings">
                  {findings.map((finding, index) => (
                    <FindingCard key={index} finding={finding} />
                  ))}
                </ol>
              </>
            )}
          </Answered>
        </div>
        <div>
          <div class="heading">
            <h2>{text("memory_per_device")}</h2>
          </div>
          <div class="cards">{cards}</div>
          <RecordingCard recording={page.recording} />
        </div>
      </div>
    </>
  );
}

/** What the summaries of all ranks say together, and the way to them. */
function JobSentences() {
  const { store } = usePage();
  const reply = useAnswer("ranks", {});
  return (
    <Answered reply={reply}>
      {({ jobs }) => (
        <>
          {jobs.map(({ heading, sentences }, index) => (
            <div key={index} class="headline">
              <p>
                <b>{heading}</b>
              </p>
              {sentences.map((sentence, number) => (
                <p key={number}>{sentence}</p>
              ))}
            </div>
          ))}
          <p class="actions">
            <button type="button" onClick={() => store.set({ view: "ranks" })}>
              {text("ranks_open")}
            </button>
          </p>
        </>
      )}
    </Answered>
  );
}

/** The state that shows what a finding speaks of. */
export function evidence(page: Page, finding: Finding): State {
  const { device, pool, t, r } = finding;
  const link = parseState(Object.entries(finding.link ?? {}));
  return {
    ...page.state,
    view: "timeline",
    r,
    device: device ?? "",
    pool: pool ?? "",
    t,
    t0: null,
    t1: null,
    y0: null,
    y1: null,
    block: null,
    focus: null,
    offset: 0,
    owner: "",
    thread: "",
    step: "",
    site: "",
    text: "",
    alive: "any",
    inefficient: false,
    sort: "",
    ...link,
    // A report cannot filter.
    ...(page.source.live ? {} : { site: "" }),
  };
}

/** What the answer says beyond the findings, such as that there are no leaks. */
function untold(sentences: string[] | undefined, findings: Finding[]): string[] {
  const told = new Set(findings.map(({ sentence }) => sentence));
  return (sentences ?? []).filter((sentence) => !told.has(sentence));
}

function Headline({ sentences }: { sentences: string[] }) {
  if (sentences.length === 0) return null;
  return (
    <div class="headline">
      {sentences.map((sentence, index) => (
        <p key={index}>{sentence}</p>
      ))}
    </div>
  );
}

function FindingCard({ finding }: { finding: Finding }) {
  const page = usePage();
  const target = evidence(page, finding);
  const isSeveral = page.session.recordings.length > 1;
  const recording = page.session.recordings[finding.r];
  const ranks = finding.ranks ?? [];
  const label = textOr(`evidence_${target.view}`, text("evidence"));
  const [first, ...rest] = detailsOf(finding);
  const place = placeText(finding.file, finding.line, finding.function);
  const device = recording?.devices.find((known) => known.device === finding.device);
  const pool = device?.pools.find((known) => known.pool === finding.pool);
  const sentence = sentenceOf(finding, pool?.title ?? finding.pool ?? "-");
  return (
    <li class={`finding ${finding.severity}`} data-kind={finding.kind}>
      <p class="tag">
        {text(`severity_${finding.severity}` as TextKey)}
        {ranks.length > 0
          ? ` · ${text("finding_ranks", ranks.join(", "))}`
          : isSeveral && recording
            ? ` · ${recordingTitle(recording)}`
            : ""}
        {finding.device && ranks.length === 0 ? ` · ${text("device_short", finding.device)}` : ""}
      </p>
      <p class="sentence">{sentence}</p>
      {place && !sentence.includes(place) && <p class="where mono">{place}</p>}
      {first && rest.length === 0 && <p class="muted">{first}</p>}
      {first && rest.length > 0 && (
        <details open={finding.severity === "error"}>
          <summary>{first}</summary>
          <ul>
            {rest.map((detail, index) => (
              <li key={index}>{detail}</li>
            ))}
          </ul>
        </details>
      )}
      {finding.advice.length > 0 && (
        <p class="advice">
          <b>{text("what_to_do")}</b> {adviceOf(finding)}
        </p>
      )}
      {finding.kind !== "none" && questionsOf(target.view).some((question) => page.source.answers(question)) && (
        <div class="actions">
          <a
            class="button"
            href={formatHash(target)}
            onClick={(event) => {
              if (event.ctrlKey || event.metaKey || event.shiftKey) return;
              event.preventDefault();
              page.store.set(target, true);
            }}
          >
            {label}
          </a>
        </div>
      )}
    </li>
  );
}

/** What the analyses say further; in Chinese first why memory ran out and what to do. */
function detailsOf(finding: Finding): string[] {
  if (currentLanguage() === "en" || finding.details.length === 0) return finding.details;
  const why = textOr(`verdict_${finding.verdict}`, "");
  return [...(why ? [why] : []), `${text("details_in_english")}：`, ...finding.details];
}

/** What to do; the analyses say it at length in English. */
function adviceOf(finding: Finding): string {
  const known = currentLanguage() === "en" ? "" : textOr(`advice_${finding.kind}`, "");
  return known || finding.advice.join(" ");
}

/** The sentence of the analyses; in Chinese one made from its numbers. */
function sentenceOf(finding: Finding, poolTitle: string): string {
  if (currentLanguage() === "en") return finding.sentence;
  // Of inefficient use as a whole only the peak without it is known.
  const isPeakOnly = finding.kind === "inefficient" && finding.count === null;
  const key = isPeakOnly ? "finding_inefficient_peak" : `finding_${finding.kind}`;
  const known = textOr(key, "");
  if (!known) return finding.sentence;
  const place = placeText(finding.file, finding.line, finding.function);
  const held = finding.held_by ? `，${text("held_by", finding.held_by)}` : "";
  const inFull = inFigures(finding, poolTitle, place);
  if (inFull) return `${inFull}${held}`;
  const sentence = text(key as TextKey, bytes(finding.bytes ?? 0), count(finding.count ?? 0), poolTitle);
  return `${sentence}${place ? `，${text("at_place", place)}` : ""}${held}`;
}

/** The sentence with all its numbers, where they are known. */
function inFigures(finding: Finding, poolTitle: string, place: string): string {
  const whole = finding.bytes ?? 0;
  const size = bytes(whole);
  const { bytes_per_step, first_step, last_step, held_bytes, needed_bytes, line_bytes, step } = finding.figures ?? {};
  const at = place ? `，${text("at_place", place)}` : "";
  if (bytes_per_step && finding.kind === "leak" && first_step !== undefined && last_step !== undefined)
    return text("finding_leak_steps", bytes(bytes_per_step), size, count(finding.count ?? 0), first_step, last_step) + at;
  if (held_bytes !== undefined && needed_bytes !== undefined)
    return text("finding_overhead", poolTitle, bytes(held_bytes), bytes(needed_bytes), size, percent(whole, held_bytes));
  if (finding.kind === "peak" && line_bytes !== undefined && place) {
    const moment = step ? text("finding_in_step", step) : "";
    return text("finding_peak_line", poolTitle, size, moment, percent(line_bytes, whole), place);
  }
  return "";
}

function DeviceCard({ recording, device }: { recording: RecordingFacts; device: DeviceFacts }) {
  const page = usePage();
  const [width, setWidth] = useState(0);
  const pool = mainPool(device);
  const [t0, t1] = activeRange(recording);
  const reply = useAnswer(
    "curve",
    width > 0 && pool
      ? { r: recording.r, device: device.device, pool: pool.pool, by: "none", t0, t1, width: Math.round(width / 2) }
      : null,
  );
  const curve = reply.answer;
  const draw = useCallback(
    (pen: Pen) => {
      pen.context.fillStyle = pen.theme.background;
      pen.context.fillRect(0, 0, pen.width, pen.height);
      if (curve && curve.max.length > 0) drawArea(pen, { start: 0, end: 1, left: 0, width: pen.width }, curve.max);
    },
    [curve],
  );
  if (!pool) return null;
  const title = `${text("device_short", device.device)} · ${pool.title}`;
  const open = () =>
    page.store.set({
      view: "timeline",
      r: recording.r,
      device: device.device,
      pool: pool.pool,
      t: null,
      t0: null,
      t1: null,
    });
  return (
    <section class="panel card">
      <header>
        <h3>
          {title}
          {page.session.recordings.length > 1 && <span class="muted"> · {recordingTitle(recording)}</span>}
        </h3>
        <button type="button" class="link" aria-label={text("open_timeline", title)} onClick={open}>
          {text("timeline")} →
        </button>
      </header>
      {!rests(recording) && (
        <Surface
          height={CURVE_HEIGHT}
          label={text("chart_timeline", title, bytes(pool.peak_bytes), moment(pool.peak_t - recording.t0, 1e5))}
          draw={draw}
          onWidth={setWidth}
          onClick={open}
          cursor="pointer"
        />
      )}
      <div class="figures">
        <div data-figure="peak">
          <b>{bytes(pool.peak_bytes)}</b>
          {text("peak")}
        </div>
        {pool.reserved_peak_bytes ? (
          <div data-figure="reserved">
            <b>{bytes(pool.reserved_peak_bytes)}</b>
            {text("reserved")}
          </div>
        ) : null}
        <div data-figure="end">
          <b>{bytes(pool.end_bytes)}</b>
          {text("at_end")}
        </div>
        <div>
          <b>{count(pool.blocks)}</b>
          {text("alive_at_end")}
        </div>
        {device.card_peak_bytes ? (
          <div>
            <b>{bytes(device.card_peak_bytes)}</b>
            {text("line_card")}
          </div>
        ) : null}
      </div>
    </section>
  );
}

/** The pool that a card shows: that of the framework where there is one, as pools nest. */
export function mainPool(device: DeviceFacts): PoolFacts | undefined {
  const largest = [...device.pools].sort((left, right) => right.peak_bytes - left.peak_bytes);
  return (
    largest.find((pool) => pool.is_main) ??
    largest.find((pool) => pool.pool !== "HAL" && pool.peak_bytes > 0) ??
    largest[0]
  );
}

function RecordingCard({ recording }: { recording: RecordingFacts }) {
  const facts: [TextKey, string | null][] = [
    ["facts_command", recording.command],
    ["facts_process", recording.process_id === null ? null : String(recording.process_id)],
    ["facts_host", recording.host],
    [
      "facts_rank",
      recording.rank === null
        ? null
        : recording.world_size
          ? text("rank_of", recording.rank, recording.world_size)
          : String(recording.rank),
    ],
    ["facts_duration", seconds(recording.t1 - recording.t0)],
    ["facts_events", count(recording.events)],
    ["facts_blocks", count(recording.blocks)],
    ["facts_steps", count(recording.steps)],
    ["facts_path", recording.path],
  ];
  return (
    <Panel title={text("recording_facts")}>
      <dl class="facts">
        {facts
          .filter((fact) => fact[1] !== null && fact[1] !== "")
          .map(([key, value]) => (
            <>
              <dt>{text(key)}</dt>
              <dd title={value ?? ""}>{value}</dd>
            </>
          ))}
      </dl>
      {recording.missing.length > 0 && (
        <div class="notice warning wide">
          <div>
            <b>{text("missing_title")}</b>
            {recording.missing.map((sentence, index) => (
              <p key={index}>{sentence}</p>
            ))}
          </div>
        </div>
      )}
    </Panel>
  );
}
