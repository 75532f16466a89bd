// Ranks: all open recordings beside each other, with what stands out: a matrix of how far each is from the median of
// all, and a table of the numbers.
import { useState } from "preact/hooks";
import { Panel } from "../components/controls";
import { DataTable } from "../components/data-table";
import { Answered, Empty } from "../components/states";
import { recordingTitle, useAnswer, usePage } from "../page";
import type { RankRow } from "../source/answers";
import { text, type TextKey } from "../texts";
import { bytes, bytesChange, count } from "../units";

type NumberKey =
  "peak_bytes" | "reserved_peak_bytes" | "end_bytes" | "bytes_per_step" | "leaked_bytes" | "out_of_memory" | "steps";

/** What the matrix compares. */
const FIGURES: readonly { key: NumberKey; title: TextKey; show: (value: number) => string }[] = [
  { key: "peak_bytes", title: "peak", show: bytes },
  { key: "reserved_peak_bytes", title: "reserved", show: bytes },
  { key: "end_bytes", title: "at_end", show: bytes },
  { key: "bytes_per_step", title: "ranks_col_rate", show: bytesChange },
  { key: "leaked_bytes", title: "ranks_col_leaked", show: bytes },
];
/** With more ranks than this, cells are squares without numbers. */
const MOST_NUMBERS = 12;
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

function stands(row: RankRow, key: NumberKey) {
  return row.outlier.find(({ figure }) => figure === key);
}

function outlierText({ figure, times_median }: RankRow["outlier"][number]): string {
  const what = text(figure === "peak_bytes" ? "peak" : "ranks_col_rate");
  return times_median === null
    ? text("ranks_differs", what)
    : text("ranks_times", what, times_median.toFixed(2));
}

/** Every rank a column, every figure a row: the darker a cell, the farther from the median; ▲ stands out. */
function Matrix({ rows, onRow }: { rows: RankRow[]; onRow: (row: RankRow) => void }) {
  const { session } = usePage();
  const hasNumbers = rows.length <= MOST_NUMBERS;
  const nameOf = (row: RankRow) => {
    const recording = session.recordings[row.r];
    return `${recording ? recordingTitle(recording) : row.r}, ${text("device_short", row.device)}`;
  };
  return (
    <div class="scroll">
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
          {FIGURES.filter(({ key }) => rows.some((row) => row[key])).map(({ key, title, show }) => {
            const usual = median(rows.map((row) => row[key] ?? 0));
            return (
              <tr key={key}>
                <th scope="row">{text(title)}</th>
                {rows.map((row, index) => {
                  const value = row[key] ?? 0;
                  const far = rows.length > 1 ? deviation(value, usual) : 0;
                  const isOutlier = stands(row, key) !== undefined;
                  const label = `${nameOf(row)}: ${text(title)} ${show(value)}`;
                  return (
                    <td key={index} class={isOutlier ? "outlier" : ""}>
                      <button
                        type="button"
                        title={label}
                        aria-label={isOutlier ? `${label}, ${text("ranks_col_outlier")}` : label}
                        style={{ background: backgroundOf(far) }}
                        onClick={() => onRow(row)}
                      >
                        {isOutlier && (far < 0 ? "▼" : "▲")}
                        {hasNumbers && ` ${show(value)}`}
                      </button>
                    </td>
                  );
                })}
              </tr>
            );
          })}
        </tbody>
      </table>
      <p class="muted wide">{text("ranks_matrix_hint")}</p>
    </div>
  );
}

export function RanksView() {
  const page = usePage();
  const { session, store } = page;
  const reply = useAnswer("ranks", {});
  const [sort, setSort] = useState<{ key: string; descending: boolean }>({ key: "r", descending: false });
  return (
    <Answered reply={reply}>
      {(answer) => {
        const rows = [...answer.rows].sort((left, right) => {
          const value = (row: RankRow) => (sort.key === "r" ? (row.rank ?? row.r) : (row[sort.key as NumberKey] ?? 0));
          return (value(left) - value(right)) * (sort.descending ? -1 : 1) || left.r - right.r;
        });
        const open = (row: RankRow) =>
          store.set({
            view: "timeline",
            r: row.r,
            device: row.device,
            pool: row.pool,
            t: null,
            t0: null,
            t1: null,
          });
        const most = (key: NumberKey) => Math.max(1, ...rows.map((row) => row[key] ?? 0));
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
            {rows.length > 1 && (
              <Panel title={text("ranks_matrix")}>
                <Matrix rows={rows} onRow={open} />
              </Panel>
            )}
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
                  },
                  {
                    key: "peak",
                    title: text("peak"),
                    isNumber: true,
                    sort: "peak_bytes",
                    cell: bar("peak_bytes", bytes),
                  },
                  {
                    key: "reserved",
                    title: text("reserved"),
                    isNumber: true,
                    sort: "reserved_peak_bytes",
                    cell: bar("reserved_peak_bytes", bytes),
                  },
                  {
                    key: "end",
                    title: text("at_end"),
                    isNumber: true,
                    sort: "end_bytes",
                    cell: bar("end_bytes", bytes),
                  },
                  {
                    key: "rate",
                    title: text("ranks_col_rate"),
                    isNumber: true,
                    sort: "bytes_per_step",
                    cell: bar("bytes_per_step", bytesChange),
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
                    isNumber: true,
                    sort: "out_of_memory",
                    cell: (row) => count(row.out_of_memory),
                  },
                  {
                    key: "steps",
                    title: text("steps"),
                    isNumber: true,
                    sort: "steps",
                    cell: (row) => count(row.steps),
                  },
                ]}
                rows={rows}
                rowKey={(row) => `${row.r} ${row.device} ${row.pool}`}
                sort={sort.key}
                descending={sort.descending}
                onSort={(key, descending) => setSort({ key, descending })}
                onRow={open}
              />
            </Panel>
          </>
        );
      }}
    </Answered>
  );
}
