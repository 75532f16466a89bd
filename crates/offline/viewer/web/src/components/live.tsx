// A job that is followed: how it is, in the bar of every view, and what it holds right now.
import type { LiveFacts, RecordingFacts } from "../source/answers";
import { text, type TextKey } from "../texts";
import { bytes, count, seconds } from "../units";

/** A page that is this much behind says so. */
const BEHIND_NS = 5e9;

export function LiveMark({
  live,
  isPaused,
  onPause,
}: {
  live: LiveFacts;
  isPaused: boolean;
  onPause: () => void;
}) {
  const isOver = live.is_last || live.condition === "unreadable";
  const word = isPaused && !isOver ? "paused" : live.condition;
  return (
    <span class="live" data-live={word} role="status">
      <i aria-hidden="true" />
      {text(`live_${word}` as TextKey)}
      {!isOver && (
        <button type="button" class="plain" title={text("live_pause_title")} onClick={onPause}>
          {text(isPaused ? "live_resume" : "live_pause")}
        </button>
      )}
    </span>
  );
}

/** The newest numbers, which may be newer than everything else on the page. */
export function LiveNow({ recording, live }: { recording: RecordingFacts; live: LiveFacts }) {
  const isOver = live.is_last || live.condition === "unreadable";
  const titles = new Map(recording.devices.flatMap(({ pools }) => pools.map(({ pool, title }) => [pool, title])));
  return (
    <section class="panel now" aria-label={text("live_now")}>
      {!isOver && (
        <div class="figures">
          {live.pools.map((pool) => (
            <div key={`${pool.device} ${pool.pool}`} data-figure={`now_${pool.pool}`}>
              <b>{bytes(pool.used_bytes)}</b>
              {text("live_in_use", `${titles.get(pool.pool) ?? pool.pool} · ${text("device_short", pool.device)}`)}
            </div>
          ))}
          {live.step !== null && (
            <div data-figure="now_step">
              <b>{count(live.step)}</b>
              {text("live_step")}
            </div>
          )}
          <div>
            <b>{count(live.events)}</b>
            {text("facts_events")}
          </div>
          <div>
            <b>{seconds(live.recorded_ns)}</b>
            {text("live_recorded")}
          </div>
        </div>
      )}
      <p class="muted">{sentence(recording, live)}</p>
    </section>
  );
}

function sentence(recording: RecordingFacts, live: LiveFacts): string {
  if (live.condition === "unreadable") return text("live_is_unreadable", live.reason ?? "");
  if (live.is_last) return text(live.condition === "cut_off" ? "live_is_cut_off" : "live_is_ended");
  const behind = live.recorded_ns - (recording.t1 - recording.t0);
  return behind > BEHIND_NS && live.events > recording.events
    ? text("live_behind", seconds(behind))
    : text("live_follows");
}
