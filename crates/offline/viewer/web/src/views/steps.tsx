// Steps: what each step left behind, and which lines of code it was.
import { useCallback, useState } from "preact/hooks";
import { byteTicks } from "../canvas/axis";
import { Surface, type Pen, type Point } from "../canvas/surface";
import { GUTTER } from "../canvas/time";
import { Panel, Place } from "../components/controls";
import { DataTable } from "../components/data-table";
import { Pager } from "../components/pager";
import { Answered, Empty, NoMemory } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { filterOf, placeOf, useAnswer, usePage } from "../page";
import type { StepRow } from "../source/answers";
import { text } from "../texts";
import { bytes, bytesChange, count, span } from "../units";

const PAGE_ROWS = 100;
const CHART_ROWS = 4000;
const HEIGHT = 150;

export function StepsView() {
  const page = usePage();
  const { state, store } = page;
  const sort = ["growth_bytes", "peak_bytes", "end_bytes"].includes(state.sort) ? state.sort : "step";
  const about = { ...placeOf(page), ...filterOf(state) };
  const reply = useAnswer(
    "steps",
    page.pool ? { ...about, offset: state.offset, limit: PAGE_ROWS, sort, descending: state.descending } : null,
  );
  const chart = useAnswer("steps", page.pool ? { ...about, limit: CHART_ROWS, brief: true } : null).answer;
  if (!page.pool) return <NoMemory />;
  const show = (row: StepRow) =>
    store.set({ view: "timeline", t0: row.start, t1: Math.max(row.end, row.start + 1), t: row.peak_t });
  return (
    <Answered reply={reply}>
      {(answer) =>
        answer.complete && answer.total === 0 ? (
          <Empty>{text("steps_none")}</Empty>
        ) : (
          <>
            <div class="heading">
              {answer.bytes_per_step !== null && (
                <h3 data-figure="rate">{text("steps_rate", bytesChange(answer.bytes_per_step))}</h3>
              )}
              <span class="spacer" />
              {chart && chart.rows.length > 1 && page.source.live && (
                <button
                  type="button"
                  onClick={() =>
                    store.set({
                      view: "flame",
                      kind: "difference",
                      r2: null,
                      t0: chart.rows[0]!.end,
                      t1: chart.rows[chart.rows.length - 1]!.end,
                      focus: null,
                    })
                  }
                >
                  {text("steps_compare")}
                </button>
              )}
            </div>
            {chart && (
              <Panel>
                <StepChart rows={chart.rows} onChoose={show} />
                <p class="muted wide">
                  {text("steps_chart")}
                  {(chart.total > chart.rows.length || (chart.left_out ?? 0) > 0) && ` · ${text("steps_first", count(chart.rows.length))}`}
                </p>
              </Panel>
            )}
            <Panel class="wide">
              <DataTable
                label={text("steps")}
                columns={[
                  { key: "step", title: text("step"), isNumber: true, sort: "step", cell: (row: StepRow) => row.step },
                  {
                    key: "duration",
                    title: text("steps_col_duration"),
                    isNumber: true,
                    cell: (row) => span(row.end - row.start),
                  },
                  {
                    key: "peak",
                    title: text("peak"),
                    isNumber: true,
                    sort: "peak_bytes",
                    cell: (row) => bytes(row.peak_bytes),
                  },
                  {
                    key: "end",
                    title: text("steps_col_end"),
                    isNumber: true,
                    sort: "end_bytes",
                    cell: (row) => bytes(row.end_bytes),
                  },
                  {
                    key: "growth",
                    title: text("steps_col_growth"),
                    isNumber: true,
                    sort: "growth_bytes",
                    cell: (row) => bytesChange(row.growth_bytes),
                  },
                  { key: "kept", title: text("steps_col_kept"), isNumber: true, cell: (row) => bytes(row.kept_bytes) },
                  {
                    key: "grew",
                    title: text("steps_col_grew"),
                    class: "wrap",
                    cell: (row) =>
                      row.grew.map((site) => (
                        <div key={site.site}>
                          <button
                            type="button"
                            class="link"
                            title={site.label}
                            onClick={(event) => {
                              event.stopPropagation();
                              const window = page.source.live ? { t0: null, t1: null } : { t0: row.start, t1: row.end };
                              store.set({ view: "timeline", site: String(site.site), t: row.end, ...window });
                            }}
                          >
                            {bytesChange(site.bytes)} <Place line={site.label} />
                          </button>
                        </div>
                      )),
                  },
                ]}
                rows={answer.rows}
                rowKey={(row) => row.step}
                sort={sort}
                descending={state.descending}
                onSort={(next, descending) => store.set({ sort: next, descending, offset: 0 })}
                onRow={show}
                isSelected={(row) => row.start === state.t0 && row.end === state.t1}
              />
              <Pager total={answer.total} rows={answer.rows.length} pageRows={PAGE_ROWS} />
            </Panel>
          </>
        )
      }
    </Answered>
  );
}

function StepChart({ rows, onChoose }: { rows: StepRow[]; onChoose: (row: StepRow) => void }) {
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<Point | null>(null);
  const most = rows.reduce((sum, row) => Math.max(sum, row.peak_bytes), 1) * 1.05;
  const slot = (width - GUTTER - 8) / Math.max(1, rows.length);
  const draw = useCallback((pen: Pen) => drawSteps(pen, rows, most), [rows, most]);
  const at = (point: Point) => rows[Math.floor((point.x - GUTTER) / slot)];
  const hit = hover && hover.x >= GUTTER ? at(hover) : undefined;
  return (
    <>
      <Surface
        height={HEIGHT}
        label={text("steps_chart")}
        draw={draw}
        onWidth={setWidth}
        onHover={setHover}
        onClick={(point) => {
          const row = at(point);
          if (row) onChoose(row);
        }}
        cursor={hit ? "pointer" : "default"}
      />
      {hit && (
        <AtPointer>
          <b>{text("block_step", hit.step)}</b>
          <div>
            {text("steps_col_end")}: {bytes(hit.end_bytes)} ({bytesChange(hit.growth_bytes)})
          </div>
          <div>
            {text("peak")}: {bytes(hit.peak_bytes)}
          </div>
        </AtPointer>
      )}
    </>
  );
}

function drawSteps(pen: Pen, rows: readonly StepRow[], most: number): void {
  const { context, theme, width } = pen;
  const bottom = HEIGHT - 20;
  const y = (value: number) => bottom - (value / most) * (bottom - 6);
  const slot = (width - GUTTER - 8) / Math.max(1, rows.length);
  context.textAlign = "right";
  for (const tick of byteTicks(most, 4)) {
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(GUTTER, Math.round(y(tick.value)) + 0.5);
    context.lineTo(width - 8, Math.round(y(tick.value)) + 0.5);
    context.stroke();
    context.fillStyle = theme.muted;
    context.fillText(tick.label, GUTTER - 8, y(tick.value));
  }
  const bar = Math.max(1, Math.min(slot * 0.7, 44));
  const every = Math.max(1, Math.ceil(46 / slot));
  rows.forEach((row, index) => {
    const centre = GUTTER + (index + 0.5) * slot;
    context.fillStyle = theme.series[0]!;
    context.fillRect(centre - bar / 2, y(row.end_bytes), bar, bottom - y(row.end_bytes));
    context.strokeStyle = theme.text;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(centre - bar / 2, y(row.peak_bytes));
    context.lineTo(centre + bar / 2, y(row.peak_bytes));
    context.stroke();
    context.lineWidth = 1;
    if (index % every === 0) {
      context.fillStyle = theme.muted;
      context.textAlign = "center";
      context.fillText(String(row.step), centre, HEIGHT - 9);
    }
  });
}
