// All steps at once: what is in use at their ends and the most within them. Where there are more steps than bars have
// room, several share one, which shows the least and the most at their ends.
import { useCallback, useState } from "preact/hooks";
import { byteTicks } from "../canvas/axis";
import { Surface, type Pen, type Point } from "../canvas/surface";
import { GUTTER } from "../canvas/time";
import type { StepBar } from "../source/answers";
import { text } from "../texts";
import { bytes, bytesChange } from "../units";
import { AtPointer } from "./tooltip";

const HEIGHT = 150;
const MARGIN = 8;
/** Pixels of a bar with its gap. */
const NARROWEST = 4;
/** Other widths of the window would ask for other bars all the time. */
const BARS_ROUNDED = 50;

/** How many bars a chart of this width has room for. */
export function barsIn(width: number): number {
  const fitting = (width - GUTTER - MARGIN) / NARROWEST;
  return Math.max(BARS_ROUNDED, Math.floor(fitting / BARS_ROUNDED) * BARS_ROUNDED);
}

interface Properties {
  bars: readonly StepBar[];
  /** The steps that are listed elsewhere, by their place among all. */
  listed: readonly [number, number] | null;
  onWidth: (width: number) => void;
  onChoose: (bar: StepBar) => void;
}

export function StepChart({ bars, listed, onWidth, onChoose }: Properties) {
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<Point | null>(null);
  const slot = (width - GUTTER - MARGIN) / Math.max(1, bars.length);
  const [from, to] = listed ?? [0, 0];
  const draw = useCallback((pen: Pen) => drawBars(pen, bars, [from, to]), [bars, from, to]);
  const at = (point: Point) => (point.x >= GUTTER ? bars[Math.floor((point.x - GUTTER) / slot)] : undefined);
  const hit = hover ? at(hover) : undefined;
  return (
    <>
      <Surface
        height={HEIGHT}
        label={text("steps_chart")}
        draw={draw}
        onWidth={(next) => {
          setWidth(next);
          onWidth(next);
        }}
        onHover={setHover}
        onClick={(point) => {
          const bar = at(point);
          if (bar) onChoose(bar);
        }}
        cursor={hit ? "pointer" : "default"}
      />
      {hit && (
        <AtPointer>
          <BarFacts bar={hit} />
        </AtPointer>
      )}
    </>
  );
}

function BarFacts({ bar }: { bar: StepBar }) {
  const isOne = bar.steps === 1;
  const ends = isOne ? bytes(bar.end_bytes) : `${bytes(bar.least_end_bytes)} – ${bytes(bar.most_end_bytes)}`;
  return (
    <>
      <b>
        {isOne ? text("block_step", bar.first_step) : text("steps_from_to", bar.first_step, bar.last_step)}
      </b>
      <div>
        {text(isOne ? "steps_col_end" : "steps_ends")}: {ends} ({bytesChange(bar.growth_bytes)})
      </div>
      <div>
        {text("peak")}: {isOne ? bytes(bar.peak_bytes) : text("steps_peak_in", bytes(bar.peak_bytes), bar.peak_step)}
      </div>
    </>
  );
}

function drawBars(pen: Pen, bars: readonly StepBar[], [from, to]: readonly [number, number]): void {
  const { context, theme, width } = pen;
  const most = bars.reduce((highest, bar) => Math.max(highest, bar.peak_bytes), 1) * 1.05;
  const bottom = HEIGHT - 20;
  const y = (value: number) => bottom - (value / most) * (bottom - 6);
  const slot = (width - GUTTER - MARGIN) / Math.max(1, bars.length);
  context.textAlign = "right";
  for (const tick of byteTicks(most, 4)) {
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(GUTTER, Math.round(y(tick.value)) + 0.5);
    context.lineTo(width - MARGIN, Math.round(y(tick.value)) + 0.5);
    context.stroke();
    context.fillStyle = theme.muted;
    context.fillText(tick.label, GUTTER - 8, y(tick.value));
  }
  const thickness = Math.max(1, Math.min(slot * 0.7, 44));
  const labelWidth = context.measureText(String(bars[bars.length - 1]?.first_step ?? "")).width + 24;
  const every = Math.max(1, Math.ceil(labelWidth / slot));
  bars.forEach((bar, index) => {
    const centre = GUTTER + (index + 0.5) * slot;
    const left = centre - thickness / 2;
    context.fillStyle = theme.series[0]!;
    context.fillRect(left, y(bar.least_end_bytes), thickness, bottom - y(bar.least_end_bytes));
    context.globalAlpha = 0.45;
    context.fillRect(left, y(bar.most_end_bytes), thickness, y(bar.least_end_bytes) - y(bar.most_end_bytes));
    context.globalAlpha = 1;
    context.strokeStyle = theme.text;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(left, y(bar.peak_bytes));
    context.lineTo(left + thickness, y(bar.peak_bytes));
    context.stroke();
    context.lineWidth = 1;
    if (bar.offset < to && bar.offset + bar.steps > from) {
      context.fillStyle = theme.accent;
      context.fillRect(centre - slot / 2, bottom + 1, slot, 3);
    }
    if (index % every === 0) {
      context.fillStyle = theme.muted;
      context.textAlign = "center";
      context.fillText(String(bar.first_step), centre, HEIGHT - 8);
    }
  });
}
