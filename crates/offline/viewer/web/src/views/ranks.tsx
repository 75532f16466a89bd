// Ranks: all processes beside each other, job by job: in sentences what stands out, a matrix of how far each is from
// the median of its job, and a table of the numbers. Summaries are enough for it.
import { useState } from "preact/hooks";
import { Panel, Segmented } from "../components/controls";
import { DataTable } from "../components/data-table";
import { Pager } from "../components/pager";
import { Answered, Empty } from "../components/states";
import { recordingTitle, useAnswer, usePage } from "../page";
import type { RankFigure, RankRow, Ranks } from "../source/answers";
import { text, type TextKey } from "../texts";
import { bytes, bytesChange, count } from "../units";

type NumberKey = RankFigure | "leaked_bytes";

/** What the matrix compares. */
const FIGURES: readonly { key: NumberKey; title: TextKey; show: (value: number) => string }[] = [
  { key: "peak_bytes", title: "peak", show: bytes },
  { key: "bytes_per_step", title: "ranks_col_rate", show: bytesChange },
  { key: "unused_bytes", title: "ranks_unused", show: bytes },
  { key: "end_bytes", title: "at_end", show: bytes },
  { key: "leaked_bytes", title: "ranks_col_leaked", show: bytes },
];
const TITLES: Record<RankFigure, TextKey> = {
  peak_bytes: "peak",
  unused_bytes: "ranks_unused",
  end_bytes: "at_end",
  bytes_per_step: "ranks_col_rate",
  allocations: "ranks_allocations",
  steps: "steps",
};
/** With more ranks than this, cells are squares without numbers. */
const MOST_NUMBERS = 12;
/** With more than this, there is one field of squares for one figure. */
const MOST_COLUMNS = 48;
/** Rows of a page of the table. */
const PAGE_ROWS = 100;
/** Deviations from the median: smaller ones are none, larger ones are all the same colour. */
const SMALLEST_DEVIATION = 0.01;
const LARGEST_DEVIATION = 0.5;

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

/** How far a value is from the usual one, as a part of it: 0 nothing to speak of, 1 or -1 very far. */
export function deviation(value: number, usual: number): number {
  const share = usual === 0 ? Math.sign(value) : (value - usual) / Math.abs(usual);
  if (Math.abs(share) < SMALLEST_DEVIATION) return 0;
  return Math.max(-1, Math.min(1, share / LARGEST_DEVIATION));
}

function backgroundOf(far: number): string {
  if (far === 0) return "var(--hover)";
  const [colour, share] = [far > 0 ? "growth" : "decrease", Math.round(15 + Math.abs(far) * 35)];
  return `color-mix(in srgb, var(--${colour}) ${share}%, var(--surface))`;
}

function stands(row: RankRow, key: NumberKey): boolean {
  return row.outlier.some(({ figure }) => figure === key);
}

function outlierText({ figure, times_median }: RankRow["outlier"][number]): string {
  const what = text(TITLES[figure]);
  return times_median === null
    ? text("ranks_differs", what)
    : text("ranks_times", what, times_median.toFixed(2));
}

interface MatrixProperties {
  rows: RankRow[];
  onRow: (row: RankRow) => void;
}

function useNames(): (row: RankRow) => string {
  const { session } = usePage();
  return (row) => {
    const recording = session.recordings[row.r];
    return `${recording ? recordingTitle(recording) : row.r}, ${text("device_short", row.device)}`;
  };
}

/** One rank and one figure. */
function Cell(properties: {
  row: RankRow;
  figure: (typeof FIGURES)[number];
  usual: number;
  hasNumber: boolean;
  name: string;
  onRow: (row: RankRow) => void;
}) {
  const { row, figure, usual, hasNumber, name, onRow } = properties;
  const value = row[figure.key] ?? 0;
  const far = deviation(value, usual);
  const isOutlier = stands(row, figure.key);
  const label = `${name}: ${text(figure.title)} ${figure.show(value)}`;
  return (
    <button
      type="button"
      title={label}
      aria-label={isOutlier ? `${label}, ${text("ranks_col_outlier")}` : label}
      style={{ background: backgroundOf(far) }}
      onClick={() => onRow(row)}
    >
      {isOutlier && (value < usual ? "▼" : "▲")}
      {hasNumber && ` ${figure.show(value)}`}
    </button>
  );
}

function usualOf(rows: RankRow[], key: NumberKey): number {
  return median(rows.map((row) => row[key] ?? 0));
}

/** Every rank a column, every figure a row: the darker a cell, the farther from the median; ▲ stands out. */
function Matrix({ rows, onRow }: MatrixProperties) {
  const hasNumbers = rows.length <= MOST_NUMBERS;
  const nameOf = useNames();
  return (
    <table class={`matrix ${hasNumbers ? "" : "small"}`} aria-label={text("ranks_matrix")}>
      <thead>
        <tr>
          <th />
          {rows.map((row, index) => (
            <th key={index} scope="col" title={nameOf(row)}>
              {row.rank ?? row.r}
              {rows.some((other) => other !== row && other.r === row.r) && `:${row.device}`}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {FIGURES.filter(({ key }) => rows.some((row) => row[key])).map((figure) => {
          const usual = usualOf(rows, figure.key);
          return (
            <tr key={figure.key}>
              <th scope="row">{text(figure.title)}</th>
              {rows.map((row, index) => (
                <td key={index} class={stands(row, figure.key) ? "outlier" : ""}>
                  <Cell {...{ row, figure, usual, onRow }} hasNumber={hasNumbers} name={nameOf(row)} />
                </td>
              ))}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** Every rank a square, in the order of ranks, for one figure at a time. */
function Field({ rows, onRow }: MatrixProperties) {
  const [chosen, setChosen] = useState<NumberKey>("peak_bytes");
  const nameOf = useNames();
  const figure = FIGURES.find(({ key }) => key === chosen) ?? FIGURES[0]!;
  const usual = usualOf(rows, figure.key);
  return (
    <>
      <p>
        <Segmented
          label={text("ranks_figure")}
          choices={FIGURES.map(({ key, title }) => [key, text(title)] as const)}
          value={chosen}
          onChange={setChosen}
        />
      </p>
      <div class="rank-field" role="group" aria-label={text("ranks_matrix")}>
        {rows.map((row, index) => (
          <span key={index} class={stands(row, figure.key) ? "outlier" : ""}>
            <Cell {...{ row, figure, usual, onRow }} hasNumber={false} name={nameOf(row)} />
          </span>
        ))}
      </div>
    </>
  );
}

/** One job: what there is to say about it, and its ranks. */
function Job({ job, rows, onRow }: MatrixProperties & { job: Ranks["jobs"][number] }) {
  return (
    <Panel title={job.heading}>
      <p class="muted mono wide">{job.command}</p>
      <ul class="job-sentences">
        {job.sentences.map((sentence, index) => (
          <li key={index}>{sentence}</li>
        ))}
      </ul>
      {rows.length > 1 && (
        <div class="scroll">
          {rows.length > MOST_COLUMNS ? <Field {...{ rows, onRow }} /> : <Matrix {...{ rows, onRow }} />}
          <p class="muted wide">{text("ranks_matrix_hint")}</p>
        </div>
      )}
    </Panel>
  );
}

export function RanksView() {
  const page = usePage();
  const { session, store, state } = page;
  const reply = useAnswer("ranks", {});
  const [sort, setSort] = useState<{ key: string; descending: boolean }>({ key: "r", descending: false });
  return (
    <Answered reply={reply}>
      {(answer) => {
        const rows = [...answer.rows].sort((left, right) => {
          const value = (row: RankRow) => (sort.key === "r" ? (row.rank ?? row.r) : Number(row[sort.key as NumberKey]));
          return (value(left) - value(right)) * (sort.descending ? -1 : 1) || left.r - right.r;
        });
        const shown = rows.slice(state.offset, state.offset + PAGE_ROWS);
        const open = (row: RankRow) =>
          store.set({
            view: "timeline",
            r: row.r,
            device: row.device,
            pool: row.pool,
            t: null,
            t0: null,
            t1: null,
            offset: 0,
          });
        const most = (key: NumberKey) => rows.reduce((largest, row) => Math.max(largest, row[key] ?? 0), 1);
        const bar = (key: NumberKey, show: (value: number) => string) => {
          const largest = most(key);
          return (row: RankRow) => (
            <>
              {row[key] === null ? "-" : show(row[key])}
              <div>
                <span class="bar-cell" style={{ width: `${Math.max(0, ((row[key] ?? 0) / largest) * 90)}px` }} />
              </div>
            </>
          );
        };
        return (
          <>
            {session.recordings.length < 2 && <Empty>{text("ranks_one")}</Empty>}
            {answer.notice && <p class="notice warning">{answer.notice}</p>}
            {answer.jobs.map((job, index) => (
              <Job key={index} job={job} rows={answer.rows.filter((row) => row.job === index)} onRow={open} />
            ))}
            <Panel>
              <DataTable
                label={text("ranks")}
                columns={[
                  {
                    key: "r",
                    title: text("ranks_col_rank"),
                    sort: "r",
                    class: "whole",
                    cell: (row: RankRow) => {
                      const recording = session.recordings[row.r];
                      return recording ? recordingTitle(recording) : String(row.rank ?? row.r);
                    },
                  },
                  { key: "host", title: text("facts_host"), cell: (row) => row.host ?? "-" },
                  { key: "device", title: text("device"), class: "whole", cell: (row) => `${row.device} ${row.pool}` },
                  {
                    key: "outlier",
                    title: text("ranks_col_outlier"),
                    class: "reason",
                    cell: (row) => row.outlier.map((reason) => <div key={reason.figure}>{outlierText(reason)}</div>),
                    hint: (row) => row.sentence ?? "",
                  },
                  {
                    key: "peak",
                    title: text("peak"),
                    isNumber: true,
                    sort: "peak_bytes",
                    cell: bar("peak_bytes", bytes),
                  },
                  {
                    key: "rate",
                    title: text("ranks_col_rate"),
                    isNumber: true,
                    sort: "bytes_per_step",
                    cell: bar("bytes_per_step", bytesChange),
                  },
                  {
                    key: "unused",
                    title: text("ranks_unused"),
                    isNumber: true,
                    sort: "unused_bytes",
                    cell: bar("unused_bytes", bytes),
                  },
                  {
                    key: "end",
                    title: text("at_end"),
                    isNumber: true,
                    sort: "end_bytes",
                    cell: bar("end_bytes", bytes),
                  },
                  {
                    key: "leaked",
                    title: text("ranks_col_leaked"),
                    isNumber: true,
                    sort: "leaked_bytes",
                    cell: bar("leaked_bytes", bytes),
                  },
                  {
                    key: "oom",
                    title: text("ranks_col_oom"),
                    sort: "out_of_memory",
                    cell: (row) => (row.out_of_memory ? text("ranks_yes") : ""),
                  },
                  {
                    key: "steps",
                    title: text("steps"),
                    isNumber: true,
                    sort: "steps",
                    cell: (row) => count(row.steps),
                  },
                ]}
                rows={shown}
                rowKey={(row) => `${row.r} ${row.device} ${row.pool}`}
                sort={sort.key}
                descending={sort.descending}
                onSort={(key, descending) => setSort({ key, descending })}
                onRow={open}
              />
              <Pager total={rows.length} rows={shown.length} pageRows={PAGE_ROWS} />
            </Panel>
          </>
        );
      }}
    </Answered>
  );
}
