// Steps: what each step left behind, and which lines of code it was.
import { useState } from "preact/hooks";
import { Panel, Place } from "../components/controls";
import { DataTable } from "../components/data-table";
import { Pager } from "../components/pager";
import { Answered, Empty, NoMemory } from "../components/states";
import { barsIn, StepChart } from "../components/step-chart";
import { filterOf, placeOf, useAnswer, usePage } from "../page";
import type { StepBar, StepRow } from "../source/answers";
import { text } from "../texts";
import { bytes, bytesChange, count, span } from "../units";

const PAGE_ROWS = 100;

export function StepsView() {
  const page = usePage();
  const { state, store } = page;
  const sort = ["growth_bytes", "peak_bytes", "end_bytes"].includes(state.sort) ? state.sort : "step";
  const about = { ...placeOf(page), ...filterOf(state) };
  const reply = useAnswer(
    "steps",
    page.pool ? { ...about, offset: state.offset, limit: PAGE_ROWS, sort, descending: state.descending } : null,
  );
  const [width, setWidth] = useState(window.innerWidth);
  const chart = useAnswer("steps/bars", page.pool ? { ...about, bars: barsIn(width) } : null).answer;
  if (!page.pool) return <NoMemory />;
  const show = (row: Pick<StepRow, "start" | "end" | "peak_t">) =>
    store.set({ view: "timeline", t0: row.start, t1: Math.max(row.end, row.start + 1), t: row.peak_t });
  const list = (bar: StepBar) => store.set({ sort: "step", descending: false, offset: bar.offset, t: bar.peak_t });
  const isListed = sort === "step" && !state.descending && (chart?.steps_per_bar ?? 1) > 1;
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
              {chart && chart.total > 1 && page.source.live && (
                <button
                  type="button"
                  onClick={() =>
                    store.set({
                      view: "flame",
                      kind: "difference",
                      r2: null,
                      t0: chart.bars[0]!.first_end,
                      t1: chart.bars[chart.bars.length - 1]!.end,
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
                <StepChart
                  bars={chart.bars}
                  listed={isListed ? [state.offset, state.offset + answer.rows.length] : null}
                  onWidth={setWidth}
                  onChoose={(bar) => (bar.steps === 1 ? show(bar) : bar.offset < answer.total && list(bar))}
                />
                <p class="muted wide" data-figure="steps_chart">
                  {text("steps_chart")}
                  {chart.steps_per_bar > 1 &&
                    ` · ${text("steps_together", count(chart.total), count(chart.steps_per_bar))} ` +
                      (answer.left_out ? "" : text("steps_click"))}
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
              {(answer.left_out ?? 0) > 0 && (
                <p class="muted wide">
                  {text("steps_first", count(answer.total), count(answer.total + answer.left_out!))}
                </p>
              )}
            </Panel>
          </>
        )
      }
    </Answered>
  );
}
