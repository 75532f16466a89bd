// Blocks in address and time: every block a rectangle, from all of them down to one. Those too small to draw are a
// shading of how much of the place is in use. A click shows the life of a block.
import { useCallback, useMemo, useState } from "preact/hooks";
import { fitText, font, Surface, useRoom, type Drag, type Pen, type Point, type Wheel } from "../canvas/surface";
import {
  drawCursor,
  drawMark,
  drawTimeAxis,
  momentText,
  xOf,
  type TimeScale,
} from "../canvas/time";
import { useTimeChart } from "../canvas/time-chart";
import { BlockDetails } from "../components/block-details";
import { Panel, WholeRecording } from "../components/controls";
import { Minimap } from "../components/minimap";
import { Empty, Loading, NoMemory, Problem } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { shortAddress } from "../names";
import { filterOf, placeOf, useAnswer, usePage } from "../page";
import { useBlockLooks, type BlockLook } from "../palette";
import type { BlockMap } from "../source/answers";
import { text } from "../texts";
import { readableOn } from "../theme";
import { bytes, count, span } from "../units";

const AXIS = 24;
const SNAP = 5;
const SMALLEST_Y = 256;

interface Frame {
  scale: TimeScale;
  /** Pixels from the lowest to the highest address. */
  height: number;
  y0: number;
  y1: number;
}

/** Low addresses are at the bottom. */
function yOf(frame: Frame, y: number): number {
  return AXIS + frame.height - ((y - frame.y0) / (frame.y1 - frame.y0)) * frame.height;
}

function addressAt(frame: Frame, pixel: number): number {
  return frame.y0 + ((AXIS + frame.height - pixel) / frame.height) * (frame.y1 - frame.y0);
}

export function BlocksView() {
  const page = usePage();
  const { state, store } = page;
  const [grabbed, setGrabbed] = useState<[number, number] | null>(null);
  const chart = useTimeChart();
  const { width, hover, mark, scale, gestures } = chart;
  const height = useRoom(360, 320);
  const plotHeight = height - AXIS - 4;
  const reply = useAnswer(
    "blocks",
    chart.window && page.pool
      ? { ...placeOf(page), ...filterOf(state), ...chart.window, y0: state.y0, y1: state.y1, height: plotHeight }
      : null,
  );
  const map = reply.answer;
  const look = useBlockLooks();
  const total = Math.max(1, map?.y_total ?? 1);
  const frame: Frame = {
    scale,
    height: plotHeight,
    y0: state.y0 ?? 0,
    y1: Math.max((state.y0 ?? 0) + 1, state.y1 ?? total),
  };
  const shading = useMemo(() => (map?.more ? decode(map.more.coverage) : null), [map]);
  const draw = useCallback(
    (pen: Pen) => {
      if (!map) return;
      drawTimeAxis(pen, scale, page.recording.t0, 9, height - 4, page.cursor);
      drawRegions(pen, frame, map);
      pen.context.save();
      pen.context.beginPath();
      pen.context.rect(scale.left, AXIS, scale.width, plotHeight);
      pen.context.clip();
      if (shading && map.more) drawShading(pen, frame, map, shading);
      drawBlocks(pen, frame, map, page.recording.t1, state.block, look);
      pen.context.restore();
      drawMark(pen, scale, mark, AXIS, height - 4);
      drawCursor(pen, scale, page.cursor, 12, height - 4, momentText(page, page.cursor, width));
    },
    [
      map,
      shading,
      look,
      page.window[0],
      page.window[1],
      state.y0,
      state.y1,
      state.block,
      page.cursor,
      mark,
      width,
      height,
      page.appearance,
    ],
  );
  if (!page.pool) return <NoMemory />;

  const showAddresses = (low: number, high: number) => {
    const size = Math.min(Math.max(high - low, SMALLEST_Y), total);
    const first = Math.min(Math.max(low, 0), total - size);
    store.set(size >= total ? { y0: null, y1: null } : { y0: Math.round(first), y1: Math.round(first + size) });
  };
  const onWheel = (wheel: Wheel) => {
    if (!wheel.control) return gestures.onWheel(wheel);
    const around = addressAt(frame, wheel.at.y);
    showAddresses(around - (around - frame.y0) * wheel.factor, around + (frame.y1 - around) * wheel.factor);
  };
  const onDrag = (drag: Drag) => {
    gestures.onDrag(drag);
    if (drag.from.shift) return;
    const start = drag.phase === "start" ? ([frame.y0, frame.y1] as [number, number]) : grabbed;
    if (drag.phase === "start") setGrabbed(start);
    if (!start || state.y0 === null) return;
    const moved = ((drag.to.y - drag.from.y) / plotHeight) * (start[1] - start[0]);
    showAddresses(start[0] + moved, start[1] + moved);
  };
  const hit = hover && map ? blockAt(frame, map, page.recording.t1, hover) : -1;
  return (
    <>
      <div class="toolbar">
        {!map && !reply.problem && <Loading />}
        <span class="muted">
          {map && <span data-figure="drawn">{text("blocks_drawn", count(map.block.length))}</span>}
          {map?.more && map.more.blocks > 0 && (
            <>
              , <span data-figure="small">{text("blocks_small", count(map.more.blocks))}</span>
            </>
          )}
        </span>
        <span class="last">
          <button type="button" disabled={state.y0 === null} onClick={() => store.set({ y0: null, y1: null })}>
            {text("all_addresses")}
          </button>
          <WholeRecording />
        </span>
      </div>
      {reply.problem && <Problem message={reply.problem} />}
      <div class="columns">
        <Panel>
          {map && map.complete && map.block.length === 0 && !map.more && <Empty>{text("no_match")}</Empty>}
          <Surface
            height={height}
            label={text("chart_blocks")}
            draw={draw}
            onWidth={chart.setWidth}
            onHover={chart.setHover}
            onClick={(point) => {
              const index = map ? blockAt(frame, map, page.recording.t1, point) : -1;
              const t = chart.momentAt(point);
              store.set(index < 0 || !map ? { t } : { t, block: map.block[index]! });
            }}
            {...gestures}
            onWheel={onWheel}
            onDrag={onDrag}
            cursor={hit >= 0 ? "pointer" : "crosshair"}
          />
          <Minimap />
          <p class="muted wide">
            {text("blocks_hint")} {map?.regions_more ? text("blocks_regions_more", count(map.regions_more)) : ""}
          </p>
          {hit >= 0 && map && (
            <AtPointer>
              <b>{bytes(map.bytes[hit]!)}</b> <span class="mono">{addressText(map, map.y[hit]!)}</span>
              <div>{look(map.owners[map.owner[hit]!] ?? "", map.site[hit]!).name || "-"}</div>
              <div class="muted">
                {momentText(page, map.start[hit]!)} –{" "}
                {map.end[hit] === null ? text("block_never_freed") : momentText(page, map.end[hit]!)} (
                {span((map.end[hit] ?? page.recording.t1) - map.start[hit]!)})
              </div>
            </AtPointer>
          )}
        </Panel>
        <aside>
          <BlockDetails />
        </aside>
      </div>
    </>
  );
}

/** Coverage comes as one byte per cell. */
function decode(coverage: string): Uint8Array {
  const text = atob(coverage);
  const cells = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index += 1) cells[index] = text.charCodeAt(index);
  return cells;
}

function drawShading(pen: Pen, frame: Frame, map: BlockMap, cells: Uint8Array): void {
  const { columns, rows } = map.more!;
  const left = xOf(frame.scale, map.t0);
  const width = (xOf(frame.scale, map.t1) - left) / columns;
  const { context } = pen;
  context.fillStyle = pen.theme.muted;
  for (let row = 0; row < rows; row += 1) {
    const bottom = yOf(frame, map.y0 + (row / rows) * (map.y1 - map.y0));
    const top = yOf(frame, map.y0 + ((row + 1) / rows) * (map.y1 - map.y0));
    let column = 0;
    while (column < columns) {
      const value = cells[row * columns + column]!;
      let end = column + 1;
      while (end < columns && cells[row * columns + end] === value) end += 1;
      if (value > 0) {
        context.globalAlpha = 0.15 + (value / 255) * 0.6;
        context.fillRect(left + column * width, top, (end - column) * width + 0.3, bottom - top + 0.3);
      }
      column = end;
    }
  }
  context.globalAlpha = 1;
}

function drawBlocks(
  pen: Pen,
  frame: Frame,
  map: BlockMap,
  recordingEnd: number,
  selected: number | null,
  look: (owner: string, site: number) => BlockLook,
): void {
  const { context, theme } = pen;
  context.textAlign = "left";
  for (let index = 0; index < map.block.length; index += 1) {
    const box = boxOf(frame, map, recordingEnd, index);
    if (box.left > frame.scale.left + frame.scale.width || box.right < frame.scale.left) continue;
    const { colour, name } = look(map.owners[map.owner[index]!] ?? "", map.site[index]!);
    const isDimmed = selected !== null && map.block[index] !== selected;
    context.globalAlpha = isDimmed ? 0.45 : 1;
    context.fillStyle = colour;
    const width = Math.max(1, box.right - box.left);
    const height = Math.max(0.8, box.bottom - box.top);
    context.fillRect(box.left, box.top, width, height);
    if (height > 3 && width > 3) {
      context.strokeStyle = theme.surface;
      context.strokeRect(box.left + 0.5, box.top + 0.5, width - 1, height - 1);
    }
    const left = Math.max(box.left, frame.scale.left);
    if (height >= 15 && width > 40 && !isDimmed) {
      context.fillStyle = readableOn(colour);
      const room = Math.min(box.right, frame.scale.left + frame.scale.width) - left - 8;
      context.fillText(
        fitText(context, `${bytes(map.bytes[index]!)}  ${name}`, room),
        left + 4,
        (Math.max(box.top, AXIS) + Math.min(box.bottom, AXIS + frame.height)) / 2,
      );
    }
  }
  context.globalAlpha = 1;
  const chosen = selected === null ? -1 : map.block.indexOf(selected);
  if (chosen >= 0) {
    const box = boxOf(frame, map, recordingEnd, chosen);
    context.strokeStyle = theme.text;
    context.lineWidth = 2;
    context.strokeRect(
      box.left - 1,
      box.top - 1,
      Math.max(3, box.right - box.left) + 2,
      Math.max(3, box.bottom - box.top) + 2,
    );
    context.lineWidth = 1;
  }
}

function boxOf(frame: Frame, map: BlockMap, recordingEnd: number, index: number) {
  return {
    left: xOf(frame.scale, map.start[index]!),
    right: xOf(frame.scale, map.end[index] ?? recordingEnd),
    top: yOf(frame, map.y[index]! + map.bytes[index]!),
    bottom: yOf(frame, map.y[index]!),
  };
}

/** The block at a place, or the nearest thin one. */
function blockAt(frame: Frame, map: BlockMap, recordingEnd: number, point: Point): number {
  if (point.x < frame.scale.left || point.y < AXIS) return -1;
  let best = -1;
  let nearest = SNAP;
  for (let index = 0; index < map.block.length; index += 1) {
    const box = boxOf(frame, map, recordingEnd, index);
    const horizontal = Math.max(box.left - point.x, point.x - box.right, 0);
    const vertical = Math.max(box.top - point.y, point.y - box.bottom, 0);
    const distance = Math.max(horizontal, vertical);
    if (distance === 0) return index;
    if (distance < nearest) {
      nearest = distance;
      best = index;
    }
  }
  return best;
}

function addressText(map: BlockMap, y: number): string {
  let found = map.regions[0];
  for (const region of map.regions) if (region.y <= y) found = region;
  if (!found) return "";
  return "0x" + (BigInt(found.address) + BigInt(Math.round(y - found.y))).toString(16);
}

/** Where ranges of addresses start: what lies between them is left out. */
function drawRegions(pen: Pen, frame: Frame, map: BlockMap): void {
  const { context, theme } = pen;
  context.textAlign = "right";
  context.font = font(11);
  let lastLabel = Infinity;
  for (const region of [...map.regions].sort((left, right) => left.y - right.y)) {
    const bottom = yOf(frame, region.y);
    const top = yOf(frame, region.y + region.bytes);
    if (top > AXIS + frame.height || bottom < AXIS) continue;
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(frame.scale.left, Math.round(bottom) + 0.5);
    context.lineTo(frame.scale.left + frame.scale.width, Math.round(bottom) + 0.5);
    context.stroke();
    const y = Math.min(bottom - 7, AXIS + frame.height - 6);
    if (y > AXIS + 6 && lastLabel - y > 15) {
      context.fillStyle = theme.muted;
      context.fillText(shortAddress(region.address), frame.scale.left - 8, y);
      lastLabel = y;
    }
  }
  context.font = font();
}
