// Pool: segments with their blocks and gaps at the cursor, fragmentation over time, and why a request did not fit.
import { useCallback, useState } from "preact/hooks";
import { drawLines, drawMemoryAxis, drawStack, mostOf, yOf, type Plot } from "../canvas/stack";
import { fitText, Surface, type Pen, type Point } from "../canvas/surface";
import { drawCursor, drawMark, drawTimeAxis, momentText, xOf, type TimeScale } from "../canvas/time";
import { useTimeChart } from "../canvas/time-chart";
import { BlockDetails } from "../components/block-details";
import { Panel } from "../components/controls";
import { Minimap } from "../components/minimap";
import { Answered, Empty, NoMemory } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { shortAddress } from "../names";
import { filterOf, isFiltered, placeOf, useAnswer, usePage } from "../page";
import { useBlockLooks, type BlockLook } from "../palette";
import type { Line, Pool, Segment } from "../source/answers";
import { currentLanguage, text, textOr, type TextKey } from "../texts";
import { readableOn, theme } from "../theme";
import { bytes, count, percent } from "../units";

const FRAGMENTATION_HEIGHT = 170;
/** More samples than these are a line without dots. */
const MOST_DOTS = 60;
const ROW = 22;
const NARROWEST = 24;
const ADDRESS_RIGHT = 116;
/** Blocks that the filter does not mean. */
const FAINT = 0.25;

export function PoolView() {
  const page = usePage();
  const reply = useAnswer(
    "pool",
    page.pool ? { ...placeOf(page), ...filterOf(page.state), t: page.cursor } : null,
  );
  if (!page.pool) return <NoMemory />;
  return (
    <>
      <Panel title={text("pool_fragmentation")}>
        <FragmentationChart />
      </Panel>
      <div class="wide">
        <Answered reply={reply}>{(pool) => <PoolState pool={pool} />}</Answered>
      </div>
    </>
  );
}

/** What is in use and what the pool holds at every moment; the largest gap where the analysis has looked: at step ends and peaks. */
function FragmentationChart() {
  const page = usePage();
  const chart = useTimeChart();
  const { width, mark, scale } = chart;
  const reply = useAnswer("fragmentation", chart.window && { ...placeOf(page), ...chart.window });
  const curve = useAnswer("curve", chart.window && { ...placeOf(page), ...chart.window, by: "none" }).answer;
  const samples = reply.answer;
  const ceiling =
    Math.max(1, mostOf(curve?.max), mostOf(curve?.lines.reserved), mostOf(samples?.largest_gap_bytes)) * 1.08;
  const plot: Plot = { top: 22, bottom: FRAGMENTATION_HEIGHT - 6, ceiling };
  const draw = useCallback(
    (pen: Pen) => {
      drawTimeAxis(pen, scale, page.recording.t0, 9, plot.bottom, page.cursor);
      drawMemoryAxis(pen, scale, plot);
      if (curve) {
        const { reserved } = curve.lines;
        drawStack(pen, scale, plot, curve);
        if (reserved) drawLines(pen, scale, plot, { ...curve, lines: { reserved } });
      }
      if (samples) drawSamples(pen, scale, plot, samples.t, samples.largest_gap_bytes);
      drawMark(pen, scale, mark, plot.top, plot.bottom);
      drawCursor(pen, scale, page.cursor, 12, plot.bottom, momentText(page, page.cursor, width));
    },
    [curve, samples, page.window[0], page.window[1], page.cursor, mark, width, page.appearance],
  );
  if (samples?.complete && samples.t.length === 0) return <p class="muted">{text("pool_no_samples")}</p>;
  const colours = theme();
  const lines: [TextKey, string, string][] = [
    ["pool_line_reserved", "solid", colours.accent],
    ["pool_line_gap", "dotted", colours.danger],
  ];
  return (
    <>
      <Surface
        height={FRAGMENTATION_HEIGHT}
        label={text("chart_fragmentation")}
        draw={draw}
        onWidth={chart.setWidth}
        onClick={chart.moveCursor}
        {...chart.gestures}
        cursor="crosshair"
      />
      <ul class="legend">
        <li>
          <i class="area" style={{ background: colours.series[0]! }} />
          <span>{text("pool_line_used")}</span>
        </li>
        {lines.map(([title, style, colour]) => (
          <li key={title}>
            <i class={style} style={{ borderColor: colour }} />
            <span>{text(title)}</span>
          </li>
        ))}
      </ul>
      <Minimap />
    </>
  );
}

/** Samples hold until the next one; those beside the window lead into it and out of it. */
function drawSamples(pen: Pen, scale: TimeScale, plot: Plot, times: number[], line: Line): void {
  const { context } = pen;
  const xs = times.map((t) => xOf(scale, t));
  context.save();
  context.beginPath();
  context.rect(scale.left, plot.top, scale.width, plot.bottom - plot.top + 2);
  context.clip();
  context.strokeStyle = pen.theme.danger;
  context.fillStyle = pen.theme.danger;
  context.setLineDash([2, 3]);
  context.lineWidth = 1.5;
  context.beginPath();
  let previous: number | null = null;
  line.forEach((value, index) => {
    if (value === null) {
      previous = null;
      return;
    }
    const y = yOf(plot, value);
    if (previous === null) context.moveTo(xs[index]!, y);
    else {
      context.lineTo(xs[index]!, previous);
      context.lineTo(xs[index]!, y);
    }
    previous = y;
  });
  context.stroke();
  if (line.length <= MOST_DOTS) {
    line.forEach((value, index) => {
      if (value !== null) context.fillRect(xs[index]! - 2, yOf(plot, value) - 2, 4, 4);
    });
  }
  context.restore();
}

function PoolState({ pool }: { pool: Pool }) {
  const page = usePage();
  const isFading = isFiltered(page.state) && page.source.live;
  const meant: [TextKey, string][] = isFading ? [["pool_meant", bytes(pool.meant_bytes)]] : [];
  const figures: [TextKey, string][] = [
    ["reserved", pool.reserved_bytes ? bytes(pool.reserved_bytes) : "-"],
    ["in_use", bytes(pool.used_bytes)],
    ...meant,
    ["pool_segments", count(pool.segments_total)],
    ["pool_gaps", count(pool.gaps_total)],
    ["pool_gap_bytes", bytes(pool.gap_bytes)],
    ["pool_largest_gap", bytes(pool.largest_gap_bytes)],
  ];
  const hidden = pool.segments_total - pool.segments.length;
  return (
    <>
      {pool.failure && (
        <div class="notice error">
          <div>
            <b>{text("pool_why")}</b>{" "}
            <button type="button" class="link" onClick={() => page.store.set({ t: pool.failure!.t })}>
              {text("pool_requested", bytes(pool.failure.requested_bytes), momentText(page, pool.failure.t))}
            </button>
            {currentLanguage() !== "en" && <p>{textOr(`verdict_${pool.failure.verdict}`, "")}</p>}
            {pool.failure.sentences.map((sentence, index) => (
              <p key={index}>{sentence}</p>
            ))}
          </div>
        </div>
      )}
      <p class="muted">{text("pool_text", momentText(page, pool.t))}</p>
      <div class="figures toolbar">
        {figures.map(([key, value]) => (
          <div key={key} data-figure={key}>
            <b>{value}</b>
            {text(key)}
          </div>
        ))}
      </div>
      <div class={page.source.answers("block") ? "columns" : ""}>
        <Panel>
          {pool.segments.length === 0 ? <Empty>{text("pool_no_segments")}</Empty> : <Segments pool={pool} />}
          {hidden > 0 && <p class="muted wide">{text("pool_more_segments", count(hidden))}</p>}
        </Panel>
        {page.source.answers("block") && (
          <aside>
            <BlockDetails />
          </aside>
        )}
      </div>
    </>
  );
}

interface Piece {
  segment: Segment;
  index: number;
}

function Segments({ pool }: { pool: Pool }) {
  const page = usePage();
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<Point | null>(null);
  const largest = pool.segments.reduce((most, segment) => Math.max(most, segment.bytes), 1);
  const left = ADDRESS_RIGHT + 74;
  const widthOf = (segment: Segment) => Math.max(NARROWEST, (segment.bytes / largest) * (width - left - 8));
  const { block: selected } = page.state;
  const look = useBlockLooks();
  const draw = useCallback(
    (pen: Pen) => {
      pool.segments.forEach((segment, row) =>
        drawSegment(pen, pool, segment, row * ROW, left, widthOf(segment), selected, look),
      );
    },
    [pool, width, selected, look, page.appearance],
  );
  const at = (point: Point): Piece | null => {
    const segment = pool.segments[Math.floor(point.y / ROW)];
    if (!segment || point.x < left || point.x > left + widthOf(segment)) return null;
    const offset = ((point.x - left) / widthOf(segment)) * segment.bytes;
    const index = segment.offset.findIndex(
      (start, piece) => offset >= start && offset < start + segment.length[piece]!,
    );
    return { segment, index };
  };
  const hit = hover ? at(hover) : null;
  return (
    <>
      <Surface
        height={pool.segments.length * ROW + 2}
        label={text("chart_pool")}
        draw={draw}
        onWidth={setWidth}
        onHover={setHover}
        onClick={(point) => {
          const piece = at(point);
          const block = piece && piece.index >= 0 ? piece.segment.block[piece.index]! : -1;
          if (block >= 0 && page.source.answers("block")) page.store.set({ block });
        }}
        cursor={hit && hit.index >= 0 && page.source.answers("block") ? "pointer" : "default"}
      />
      {hit && <SegmentTip pool={pool} piece={hit} look={look} />}
    </>
  );
}

function drawSegment(
  pen: Pen,
  pool: Pool,
  segment: Segment,
  y: number,
  left: number,
  width: number,
  selected: number | null,
  look: (owner: string, site: number) => BlockLook,
): void {
  const { context, theme: colours } = pen;
  context.textAlign = "right";
  context.fillStyle = colours.muted;
  context.fillText(shortAddress(segment.address), ADDRESS_RIGHT, y + ROW / 2);
  context.fillStyle = colours.text;
  context.fillText(bytes(segment.bytes), left - 8, y + ROW / 2);
  // Hatched ground is free memory, also without colours.
  context.fillStyle = hatch(pen);
  context.fillRect(left, y + 2, width, ROW - 4);
  context.strokeStyle = colours.faint;
  context.strokeRect(left + 0.5, y + 2.5, width - 1, ROW - 5);
  context.textAlign = "left";
  segment.offset.forEach((offset, index) => {
    const x = left + (offset / segment.bytes) * width;
    const length = Math.max(0.7, (segment.length[index]! / segment.bytes) * width);
    const isMerged = segment.block[index]! < 0;
    const { colour, name } = isMerged
      ? { colour: colours.other, name: "" }
      : look(pool.owners[segment.owner[index]!] ?? "", segment.site[index]!);
    context.globalAlpha = segment.meant[index] === false ? FAINT : 1;
    context.fillStyle = colour;
    context.fillRect(x, y + 2, length > 2 ? length - 0.7 : length, ROW - 4);
    context.globalAlpha = 1;
    if (length > 46 && segment.meant[index] !== false) {
      context.fillStyle = readableOn(colour);
      context.fillText(fitText(context, `${bytes(segment.length[index]!)} ${name}`, length - 8), x + 4, y + ROW / 2);
    }
    if (segment.block[index] === selected && selected !== null) {
      context.strokeStyle = colours.text;
      context.lineWidth = 2;
      context.strokeRect(x, y + 2, Math.max(3, length), ROW - 4);
      context.lineWidth = 1;
    }
  });
}

const hatches = new Map<string, CanvasPattern>();

function hatch(pen: Pen): CanvasPattern | string {
  const known = hatches.get(pen.theme.name);
  if (known) return known;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const context = tile.getContext("2d");
  if (!context) return pen.theme.background;
  context.fillStyle = pen.theme.background;
  context.fillRect(0, 0, 6, 6);
  context.strokeStyle = pen.theme.line;
  context.beginPath();
  context.moveTo(-1, 7);
  context.lineTo(7, -1);
  context.stroke();
  const pattern = pen.context.createPattern(tile, "repeat");
  if (!pattern) return pen.theme.background;
  hatches.set(pen.theme.name, pattern);
  return pattern;
}

function SegmentTip({
  pool,
  piece,
  look,
}: {
  pool: Pool;
  piece: Piece;
  look: (owner: string, site: number) => BlockLook;
}) {
  const { segment, index } = piece;
  const isMerged = index >= 0 && segment.block[index]! < 0;
  return (
    <AtPointer>
      {index >= 0 ? (
        <>
          <b>{bytes(segment.length[index]!)}</b>{" "}
          {isMerged
            ? text("pool_merged")
            : look(pool.owners[segment.owner[index]!] ?? "", segment.site[index]!).name}
        </>
      ) : (
        <b>{text("pool_gap")}</b>
      )}
      <div class="muted">
        <span class="mono">{shortAddress(segment.address)}</span> · {bytes(segment.bytes)} ·{" "}
        {percent(segment.used_bytes, segment.bytes)} {text("in_use").toLowerCase()}
      </div>
      <div class="muted">
        {text("pool_gaps")}: {count(segment.gaps)} · {text("pool_largest_gap")}: {bytes(segment.largest_gap_bytes)}
      </div>
    </AtPointer>
  );
}
