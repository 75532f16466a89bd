// Call chart: the Python calls of one thread over time, one row per depth.
import { useCallback, useMemo } from "preact/hooks";
import { drawSpans, ROW_HEIGHT, spanAt } from "../canvas/spans";
import { Surface, type Pen } from "../canvas/surface";
import { drawCursor, drawMark, drawTimeAxis, momentText } from "../canvas/time";
import { useTimeChart } from "../canvas/time-chart";
import { Panel, Select, WholeRecording } from "../components/controls";
import { Minimap } from "../components/minimap";
import { Empty, Loading, Problem } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { useAnswer, usePage } from "../page";
import { text } from "../texts";
import { count, span } from "../units";

const AXIS = 24;
/** Calls in a smaller part of the window are hard to see. */
const LEAST_SHARE = 0.2;

export function CallsView() {
  const page = usePage();
  const { state, store, recording } = page;
  const chart = useTimeChart();
  const { width, hover, mark, scale } = chart;
  const reply = useAnswer("calls", {
    r: recording.r,
    thread: state.thread,
    t0: page.window[0],
    t1: page.window[1],
    width: Math.max(100, Math.round(scale.width)),
    text: state.search,
  });
  const answer = reply.answer;
  const matching = useMemo(() => new Set(answer?.matching ?? []), [answer]);
  const isDim = state.search.trim() === "" ? null : (name: number) => !matching.has(name);
  const height = AXIS + Math.max(3, answer?.rows.length ?? 0) * ROW_HEIGHT + 8;
  const draw = useCallback(
    (pen: Pen) => {
      drawTimeAxis(pen, scale, recording.t0, 9, pen.height, page.cursor);
      answer?.rows.forEach((row, depth) => drawSpans(pen, scale, row, answer.names, AXIS + depth * ROW_HEIGHT, isDim));
      drawMark(pen, scale, mark, AXIS, pen.height);
      drawCursor(pen, scale, page.cursor, 12, pen.height, momentText(page, page.cursor, width));
    },
    [answer, page.window[0], page.window[1], page.cursor, mark, width, state.search, page.appearance],
  );
  if (reply.problem) return <Problem message={reply.problem} />;
  if (!answer) return <Loading />;
  if (answer.complete && answer.threads.length === 0) return <Empty>{text("calls_none")}</Empty>;
  // A trace of some calls is a narrow line in the time of a whole training.
  const thread = answer.threads.find((entry) => entry.thread === answer.thread);
  const traced = { t0: thread?.t0 ?? page.window[0], t1: thread?.t1 ?? page.window[1] };
  const air = Math.ceil((traced.t1 - traced.t0) * 0.02) + 1;
  const shown = Math.min(traced.t1, page.window[1]) - Math.max(traced.t0, page.window[0]);
  const isHidden = page.source.live && shown < (page.window[1] - page.window[0]) * LEAST_SHARE;
  const depth = hover ? Math.floor((hover.y - AXIS) / ROW_HEIGHT) : -1;
  const row = answer.rows[depth];
  const hit = row && hover ? spanAt(scale, row, hover.x) : -1;
  return (
    <>
      <div class="toolbar">
        <Select
          label={text("thread")}
          isLabelShown
          choices={answer.threads.map(
            (entry) => [String(entry.thread), `${entry.thread} (${text("calls_count", count(entry.calls))})`] as const,
          )}
          value={String(answer.thread ?? "")}
          onChange={(thread) => store.set({ thread })}
        />
        {state.search.trim() !== "" && <span>{text("calls_matches", count(answer.matches ?? matching.size))}</span>}
        <span class="last">
          {isHidden && (
            <button type="button" onClick={() => store.set({ t0: Math.max(0, traced.t0 - air), t1: traced.t1 + air })}>
              {text("calls_zoom")}
            </button>
          )}
          <WholeRecording />
        </span>
      </div>
      <Panel>
        <Surface
          height={height}
          label={text("chart_calls", answer.thread ?? "")}
          draw={draw}
          onWidth={chart.setWidth}
          onHover={chart.setHover}
          onClick={chart.moveCursor}
          {...chart.gestures}
        />
        <Minimap />
      </Panel>
      {row && hit >= 0 && (
        <AtPointer>
          <b>{answer.names[row.name[hit]!] ?? text("merged", count(row.count[hit]!))}</b>
          <div class="muted">
            {momentText(page, row.start[hit]!)} · {span(row.end[hit]! - row.start[hit]!)}
            {row.count[hit]! > 1 ? ` · ${text("calls_count", count(row.count[hit]!))}` : ""}
          </div>
        </AtPointer>
      )}
    </>
  );
}
