// Ranks: all open recordings beside each other, with what stands out.
import { useState } from "preact/hooks";
import { Panel } from "../components/controls";
import { DataTable } from "../components/data-table";
import { Answered, Empty } from "../components/states";
import { recordingTitle, useAnswer, usePage } from "../page";
import type { RankRow } from "../source/answers";
import { text } from "../texts";
import { bytes, bytesChange, count } from "../units";

type NumberKey =
  "peak_bytes" | "reserved_peak_bytes" | "end_bytes" | "bytes_per_step" | "leaked_bytes" | "out_of_memory" | "steps";

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
            <Panel>
              <DataTable
                label={text("ranks")}
                columns={[
                  {
                    key: "r",
                    title: text("ranks_col_rank"),
                    sort: "r",
                    cell: (row: RankRow) => {
                      const recording = session.recordings[row.r];
                      return recording ? recordingTitle(recording) : String(row.rank ?? row.r);
                    },
                  },
                  { key: "host", title: text("facts_host"), cell: (row) => row.host ?? "-" },
                  { key: "device", title: text("device"), cell: (row) => `${row.device} ${row.pool}` },
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
                  {
                    key: "outlier",
                    title: text("ranks_col_outlier"),
                    class: "wrap",
                    cell: (row) => row.outlier.map((sentence) => <div key={sentence}>{sentence}</div>),
                  },
                ]}
                rows={rows}
                rowKey={(row) => `${row.r} ${row.device} ${row.pool}`}
                sort={sort.key}
                descending={sort.descending}
                onSort={(key, descending) => setSort({ key, descending })}
                onRow={(row) =>
                  store.set({
                    view: "timeline",
                    r: row.r,
                    device: row.device,
                    pool: row.pool,
                    t: null,
                    t0: null,
                    t1: null,
                  })
                }
              />
            </Panel>
          </>
        );
      }}
    </Answered>
  );
}
