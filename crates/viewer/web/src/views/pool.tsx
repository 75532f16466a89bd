// Pool: segments with their blocks and gaps at the cursor, fragmentation over time, and why a request did not fit.
import { useCallback, useState } from "preact/hooks";
import { drawMemoryAxis, mostOf, yOf, type Plot } from "../canvas/stack";
import { fitText, Surface, type Pen, type Point } from "../canvas/surface";
import { drawCursor, drawTimeAxis, limitsOf, momentText, timeAt, timeScale, xOf } from "../canvas/time";
import { BlockDetails } from "../components/block-details";
import { Panel } from "../components/controls";
import { Answered, Empty, NoMemory } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { shortAddress } from "../names";
import { placeOf, useAnswer, usePage } from "../page";
import { useOwnerColours } from "../palette";
import type { Fragmentation, Line, Pool, Segment } from "../source/answers";
import { text, type TextKey } from "../texts";
import { readableOn, theme } from "../theme";
import { bytes, count, percent } from "../units";

const FRAGMENTATION_HEIGHT = 150;
const ROW = 22;
const NARROWEST = 24;
const ADDRESS_RIGHT = 116;

export function PoolView() {
  const page = usePage();
  const reply = useAnswer("pool", page.pool ? { ...placeOf(page), t: page.cursor } : null);
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

const FRAGMENTATION_LINES: [
  keyof Pick<Fragmentation, "reserved_bytes" | "used_bytes" | "largest_gap_bytes">,
  TextKey,
  number[],
  string,
][] = [
  ["reserved_bytes", "pool_line_reserved", [], "solid"],
  ["used_bytes", "pool_line_used", [7, 4], "dashed"],
  ["largest_gap_bytes", "pool_line_gap", [2, 3], "dotted"],
];

function lineColours(): string[] {
  const colours = theme();
  return [colours.accent, colours.text, colours.danger];
}

function FragmentationChart() {
  const page = usePage();
  const [width, setWidth] = useState(0);
  const limits = limitsOf(page);
  const scale = timeScale(limits, width);
  const reply = useAnswer("fragmentation", width > 0 ? { ...placeOf(page), width: Math.round(scale.width) } : null);
  const answer = reply.answer;
  const ceiling = answer ? Math.max(1, ...FRAGMENTATION_LINES.map(([key]) => mostOf(answer[key]))) * 1.05 : 1;
  const plot: Plot = { top: 22, bottom: FRAGMENTATION_HEIGHT - 6, ceiling };
  const draw = useCallback(
    (pen: Pen) => {
      drawTimeAxis(pen, scale, page.recording.t0, 9, plot.bottom, page.cursor);
      drawMemoryAxis(pen, scale, plot);
      if (answer) {
        FRAGMENTATION_LINES.forEach(([key, , dash], index) => {
          drawSamples(
            pen,
            answer.t.map((t) => xOf(scale, t)),
            answer[key],
            plot,
            dash,
            lineColours()[index]!,
          );
        });
      }
      drawCursor(pen, scale, page.cursor, 12, plot.bottom, momentText(page, page.cursor, width));
    },
    [answer, page.cursor, width, page.appearance],
  );
  const move = (point: Point) =>
    page.store.set({ t: Math.min(limits[1], Math.max(limits[0], timeAt(scale, point.x))) });
  return (
    <>
      <Surface
        height={FRAGMENTATION_HEIGHT}
        label={text("chart_fragmentation")}
        draw={draw}
        onWidth={setWidth}
        onClick={move}
        onDrag={({ to }) => move(to)}
        cursor="crosshair"
      />
      <ul class="legend">
        {FRAGMENTATION_LINES.map(([key, title, , style], index) => (
          <li key={key}>
            <i class={style} style={{ borderColor: lineColours()[index]! }} />
            <span>{text(title)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Samples hold until the next one. */
function drawSamples(pen: Pen, xs: number[], line: Line, plot: Plot, dash: number[], colour: string): void {
  const { context } = pen;
  context.save();
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.setLineDash(dash);
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
  if (line.length <= 60) {
    line.forEach((value, index) => {
      if (value !== null) context.fillRect(xs[index]! - 2, yOf(plot, value) - 2, 4, 4);
    });
  }
  context.restore();
}

function PoolState({ pool }: { pool: Pool }) {
  const page = usePage();
  const figures: [TextKey, string][] = [
    ["reserved", pool.reserved_bytes === null ? "-" : bytes(pool.reserved_bytes)],
    ["in_use", bytes(pool.used_bytes)],
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
      <div class="columns">
        <Panel>
          {pool.segments.length === 0 ? <Empty>{text("pool_no_segments")}</Empty> : <Segments pool={pool} />}
          {hidden > 0 && <p class="muted wide">{text("pool_more_segments", count(hidden))}</p>}
        </Panel>
        <aside>
          <BlockDetails />
        </aside>
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
  const ownerColour = useOwnerColours();
  const draw = useCallback(
    (pen: Pen) => {
      pool.segments.forEach((segment, row) =>
        drawSegment(pen, pool, segment, row * ROW, left, widthOf(segment), selected, ownerColour),
      );
    },
    [pool, width, selected, ownerColour, page.appearance],
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
          if (block >= 0) page.store.set({ block });
        }}
        cursor={hit && hit.index >= 0 ? "pointer" : "default"}
      />
      {hit && <SegmentTip pool={pool} piece={hit} />}
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
  ownerColour: (owner: string) => string,
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
    const owner = pool.owners[segment.owner[index]!] ?? "";
    const isMerged = segment.block[index]! < 0;
    const colour = isMerged ? colours.other : ownerColour(owner);
    context.fillStyle = colour;
    context.fillRect(x, y + 2, length > 2 ? length - 0.7 : length, ROW - 4);
    if (length > 46) {
      context.fillStyle = readableOn(colour);
      context.fillText(fitText(context, `${bytes(segment.length[index]!)} ${owner}`, length - 8), x + 4, y + ROW / 2);
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

function SegmentTip({ pool, piece }: { pool: Pool; piece: Piece }) {
  const { segment, index } = piece;
  const isMerged = index >= 0 && segment.block[index]! < 0;
  return (
    <AtPointer>
      {index >= 0 ? (
        <>
          <b>{bytes(segment.length[index]!)}</b>{" "}
          {isMerged ? text("pool_merged") : (pool.owners[segment.owner[index]!] ?? "")}
        </>
      ) : (
        <b>{text("pool_gap")}</b>
      )}
      <div class="muted">
        <span class="mono">{segment.address}</span> · {bytes(segment.bytes)} ·{" "}
        {percent(segment.used_bytes, segment.bytes)} {text("in_use").toLowerCase()}
      </div>
      <div class="muted">
        {text("pool_gaps")}: {count(segment.gaps)} · {text("pool_largest_gap")}: {bytes(segment.largest_gap_bytes)}
      </div>
    </AtPointer>
  );
}
