// Timeline: live memory stacked by owner, call site, size or pool, with reserved and whole-card lines; steps, ranges,
// operators and marks as tracks below; what holds memory at the cursor beside it.
import { useCallback, useEffect, useState } from "preact/hooks";
import { drawSpans, ROW_HEIGHT, spanAt, stepColour } from "../canvas/spans";
import {
  ceilingOf,
  drawLines,
  drawRests,
  drawMemoryAxis,
  drawPeak,
  drawStack,
  LINES,
  lineColour,
  mostOf,
  OTHER,
  type Plot,
} from "../canvas/stack";
import { fitText, font, Surface, useRoom, type Pen, type Point } from "../canvas/surface";
import {
  drawCursor,
  drawMark,
  drawTimeAxis,
  momentText,
  timeAt,
  xOf,
  type TimeScale,
} from "../canvas/time";
import { useTimeChart } from "../canvas/time-chart";
import { Panel, Segmented, Select, Swatch, WholeRecording } from "../components/controls";
import { Holds } from "../components/holds";
import { Minimap } from "../components/minimap";
import { Loading, NoMemory, Problem } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { showCursor } from "../keyboard";
import { shortLine } from "../names";
import { filterOf, isFiltered, placeOf, useAnswer, usePage } from "../page";
import { SERIES } from "../palette";
import type { Curve, Track } from "../source/answers";
import { text, textOr, type TextKey } from "../texts";
import { theme } from "../theme";
import { bytes, count, span } from "../units";

const AXIS = 24;
const TOOLTIP_ROWS = 8;
/** Room for everything above and below the chart but the tracks, and for those before they are known. */
const AROUND = 390;
const USUAL_TRACKS = 210;

export function TimelineView() {
  const page = usePage();
  const { state, store } = page;
  const [scaleChoice, setScaleChoice] = useState<"all" | "used" | null>(null);
  const [tracksHeight, setTracksHeight] = useState(USUAL_TRACKS);
  const height = useRoom(AROUND + tracksHeight, 280);
  const chart = useTimeChart();
  const { width, hover, mark, scale } = chart;
  const reply = useAnswer(
    "curve",
    chart.window && page.pool
      ? { ...placeOf(page), ...filterOf(state), ...chart.window, by: page.by, series: SERIES }
      : null,
  );
  const curve = reply.answer;
  const withLines = (scaleChoice ?? (curve ? usualScale(curve) : "all")) === "all";
  const plot: Plot = { top: AXIS, bottom: height - 6, ceiling: curve ? ceilingOf(curve, withLines) : 1 };
  const draw = useCallback(
    (pen: Pen) => {
      drawTimeAxis(pen, scale, page.recording.t0, 9, plot.bottom, page.cursor);
      drawMemoryAxis(pen, scale, plot);
      if (curve) {
        drawRests(pen, scale, plot, curve);
        drawStack(pen, scale, plot, curve);
        drawLines(pen, scale, plot, curve);
        if (!isFiltered(state) || !page.source.live) drawPeak(pen, scale, plot, curve.peak_t, curve.peak_bytes);
      }
      drawMark(pen, scale, mark, plot.top, plot.bottom);
      drawCursor(pen, scale, page.cursor, 12, plot.bottom, momentText(page, page.cursor, width));
    },
    [curve, page.window[0], page.window[1], page.cursor, mark, width, height, withLines, page.appearance],
  );
  if (!page.pool) return <NoMemory />;
  const poolTitle = page.poolFacts?.title ?? page.pool;
  return (
    <>
      <div class="toolbar">
        <label class="field">{text("stacked_by")}</label>
        <Segmented
          label={text("stacked_by")}
          choices={(["owner", "site", "size", "pool"] as const)
            .filter((by) => page.source.answers("curve", { ...placeOf(page), by }))
            .map((by) => [by, text(`by_${by}`)] as const)}
          value={page.by}
          onChange={(by) => store.set({ by })}
        />
        {curve && Object.keys(curve.lines).length > 0 && (
          <Select
            label={text("scale")}
            isLabelShown
            choices={[
              ["all", text("scale_all")],
              ["used", text("scale_used")],
            ]}
            value={withLines ? "all" : "used"}
            onChange={(value) => setScaleChoice(value as "all" | "used")}
          />
        )}
        {!curve && !reply.problem && <Loading />}
        <span class="last">
          <button
            type="button"
            onClick={() => {
              store.set({ t: null });
              showCursor(page, page.poolFacts?.peak_t ?? page.cursor);
            }}
          >
            {text("to_peak")} <kbd>P</kbd>
          </button>
          <WholeRecording />
        </span>
      </div>
      {reply.problem && <Problem message={reply.problem} />}
      {curve?.approximate && (
        <p class="notice" role="status">
          {text("approximate")}
        </p>
      )}
      <div class="columns">
        <Panel>
          <Surface
            height={height}
            label={text(
              "chart_timeline",
              poolTitle,
              bytes(curve?.peak_bytes ?? 0),
              momentText(page, curve?.peak_t ?? page.cursor),
            )}
            draw={draw}
            onWidth={chart.setWidth}
            onHover={chart.setHover}
            onClick={chart.moveCursor}
            {...chart.gestures}
            cursor="crosshair"
          />
          {curve && <Legend curve={curve} />}
          <TrackCharts onHeight={setTracksHeight} />
          <Minimap />
          {hover && curve && hover.x >= scale.left && <HoverTip curve={curve} t={timeAt(scale, hover.x)} />}
        </Panel>
        <aside>
          <Holds />
        </aside>
      </div>
    </>
  );
}

/** Lines far above the memory in use would leave no room for what it consists of. */
function usualScale(curve: Curve): "all" | "used" {
  return ceilingOf(curve, true) > 2.5 * ceilingOf(curve, false) ? "used" : "all";
}

function Legend({ curve }: { curve: Curve }) {
  const { store, source } = usePage();
  const lines = LINES.filter(({ key }) => curve.lines[key]);
  const pen = { theme: theme() } as Pen;
  const choose = (key: string) => (curve.by === "owner" ? { owner: key } : { site: key });
  return (
    <ul class="legend">
      {curve.series.map((series, index) => (
        <li key={series.key} title={series.label}>
          <Swatch index={index} isOther={series.key === OTHER} />
          {source.live && series.key !== OTHER && (curve.by === "owner" || curve.by === "site") ? (
            <button type="button" class="link" onClick={() => store.set(choose(series.key))}>
              {curve.by === "site" ? shortLine(series.label) : series.label}
            </button>
          ) : (
            <span>
              {series.key === OTHER ? text("other") : curve.by === "site" ? shortLine(series.label) : series.label}
            </span>
          )}
        </li>
      ))}
      {lines.map(({ key, style }) => (
        <li key={key}>
          <i class={style} style={{ borderColor: lineColour(pen, key) }} />
          <span>
            {text(`line_${key}` as TextKey)} ({bytes(mostOf(curve.lines[key]))})
          </span>
        </li>
      ))}
      {(["other_processes", "unexplained"] as const)
        .filter((key) => mostOf(curve[key]) > 0)
        .map((key) => (
          <li key={key}>
            <i class={`rest ${key}`} />
            <span class="muted">
              {text(key)} ({bytes(mostOf(curve[key]))})
            </span>
          </li>
        ))}
    </ul>
  );
}

/** What the curve says at the pointer: no question to the server. */
function HoverTip({ curve, t }: { curve: Curve; t: number }) {
  const page = usePage();
  const bucket = Math.floor(((t - curve.t0) / (curve.t1 - curve.t0)) * curve.max.length);
  if (bucket < 0 || bucket >= curve.max.length) return null;
  const rows = curve.series
    .map((series, index) => ({
      label: series.label,
      isOther: series.key === OTHER,
      index,
      bytes: series.values[bucket] ?? 0,
    }))
    .filter((row) => row.bytes > 0)
    .sort((left, right) => right.bytes - left.bytes)
    .slice(0, TOOLTIP_ROWS);
  const others: [TextKey, number | null | undefined][] = [
    ...LINES.map(
      ({ key }) => [`line_${key}` as TextKey, curve.lines[key]?.[bucket]] as [TextKey, number | null | undefined],
    ),
    ["other_processes", curve.other_processes?.[bucket]],
    ["unexplained", curve.unexplained?.[bucket]],
  ];
  return (
    <AtPointer>
      <table>
        <tbody>
          <tr>
            <td>
              <b>{momentText(page, t)}</b>
            </td>
            <td class="number">
              <b>{bytes(curve.max[bucket] ?? 0)}</b>
            </td>
          </tr>
          {rows.map((row) => (
            <tr key={row.index}>
              <td>
                <Swatch index={row.index} isOther={row.isOther} />
                {row.isOther ? text("other") : shortLine(row.label)}
              </td>
              <td class="number">{bytes(row.bytes)}</td>
            </tr>
          ))}
          {others
            .filter(([, value]) => value !== null && value !== undefined)
            .map(([key, value]) => (
              <tr key={key}>
                <td class="muted">{text(key)}</td>
                <td class="number muted">{bytes(value!)}</td>
              </tr>
            ))}
        </tbody>
      </table>
    </AtPointer>
  );
}

const INSTANT_SNAP = 5;
const MOST_ROWS = 40;

interface Lane {
  track: Track;
  title: string;
  depth: number;
  y: number;
}

/** Steps, ranges, operators, kernels and marks over time; `only` names those wanted. */
export function TrackCharts({ only, onHeight }: { only?: string; onHeight?: (height: number) => void }) {
  const page = usePage();
  const chart = useTimeChart();
  const { width, hover, mark, scale } = chart;
  const reply = useAnswer(
    "tracks",
    chart.window && page.source.answers("tracks")
      ? { r: page.recording.r, device: page.device, ...chart.window, tracks: only }
      : null,
  );
  const answer = reply.answer;
  const lanes = answer ? lanesOf(answer.tracks) : [];
  const height = Math.max(ROW_HEIGHT, lanes.length > 0 ? lanes[lanes.length - 1]!.y + ROW_HEIGHT + 6 : 0);
  const draw = useCallback(
    (pen: Pen) => {
      if (!answer) return;
      const { context } = pen;
      for (const lane of lanes) {
        if (lane.depth === 0) {
          context.textAlign = "right";
          context.fillStyle = pen.theme.muted;
          context.font = font(11);
          context.fillText(
            fitText(context, lane.title, scale.left - 12),
            scale.left - 8,
            lane.y + ROW_HEIGHT / 2 + 0.5,
          );
          context.font = font();
        }
        const row = lane.track.rows?.[lane.depth];
        const colourOf = lane.track.track === "steps" ? stepColour : undefined;
        if (row) drawSpans(pen, scale, row, answer.names, lane.y, null, colourOf);
        else drawInstants(pen, scale, lane);
      }
      drawMark(pen, scale, mark, 0, pen.height);
      drawCursor(pen, scale, page.cursor, 0, pen.height, null);
    },
    [answer, page.window[0], page.window[1], page.cursor, mark, width, page.appearance],
  );
  useEffect(() => {
    if (answer) onHeight?.(height);
  }, [answer, height]);
  if (answer && lanes.length === 0) return <p class="muted">{text("tracks_none")}</p>;
  const tip = hover && answer ? trackTip(lanes, answer.names, scale, hover) : null;
  return (
    <>
      <Surface
        height={height}
        label={text("chart_tracks")}
        draw={draw}
        onWidth={chart.setWidth}
        onHover={chart.setHover}
        onClick={chart.moveCursor}
        {...chart.gestures}
      />
      {tip && (
        <AtPointer>
          <b>{tip.title}</b>
          <div class="muted">{tip.detail}</div>
        </AtPointer>
      )}
    </>
  );
}

/** Where each row of each track goes; empty tracks are left out. */
function lanesOf(tracks: Track[]): Lane[] {
  const lanes: Lane[] = [];
  let y = 6;
  for (const track of tracks) {
    const depths = track.kind === "spans" ? (track.rows ?? []).length : (track.at ?? []).length > 0 ? 1 : 0;
    const isOneOfSeveral = tracks.filter(({ track: name, kind }) => name === track.track && kind === track.kind).length > 1;
    // Kernels that run are spans; moments are those at which somebody launched them.
    const key = track.track === "kernels" && track.kind === "instants" ? "track_launches" : `track_${track.track}`;
    const title = textOr(key, track.title) + (isOneOfSeveral ? ` ${track.thread}` : "");
    for (let depth = 0; depth < depths && lanes.length < MOST_ROWS; depth += 1) {
      lanes.push({ track, title, depth, y });
      y += ROW_HEIGHT;
    }
    if (depths > 0) y += 4;
  }
  return lanes;
}

function drawInstants(pen: Pen, scale: TimeScale, lane: Lane): void {
  const { context, theme: colours } = pen;
  context.fillStyle = lane.track.track === "out_of_memory" ? colours.danger : colours.accent;
  for (const at of lane.track.at ?? []) {
    const x = xOf(scale, at);
    if (x < scale.left - 4 || x > scale.left + scale.width + 4) continue;
    const middle = lane.y + ROW_HEIGHT / 2;
    context.beginPath();
    context.moveTo(x, middle - 6);
    context.lineTo(x + 5, middle);
    context.lineTo(x, middle + 6);
    context.lineTo(x - 5, middle);
    context.closePath();
    context.fill();
  }
}

function trackTip(
  lanes: Lane[],
  names: string[],
  scale: TimeScale,
  point: Point,
): { title: string; detail: string } | null {
  const lane = lanes.find((candidate) => point.y >= candidate.y && point.y < candidate.y + ROW_HEIGHT);
  if (!lane || point.x < scale.left) return null;
  const row = lane.track.rows?.[lane.depth];
  if (row) {
    const index = spanAt(scale, row, point.x);
    if (index < 0) return null;
    const name = names[row.name[index]!] ?? text("merged", count(row.count[index]!));
    const times = row.count[index]! > 1 ? ` · ${count(row.count[index]!)}×` : "";
    return { title: name, detail: `${lane.title} · ${span(row.end[index]! - row.start[index]!)}${times}` };
  }
  const at = lane.track.at ?? [];
  const index = at.findIndex((t) => Math.abs(xOf(scale, t) - point.x) <= INSTANT_SNAP);
  if (index < 0) return null;
  return { title: names[lane.track.name?.[index] ?? -1] ?? lane.title, detail: lane.title };
}
