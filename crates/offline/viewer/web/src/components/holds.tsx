// What holds memory at the cursor, largest first.
import { shortLine } from "../names";
import { filterOf, placeOf, useAnswer, usePage } from "../page";
import type { HoldRow } from "../source/answers";
import { blocksText, text } from "../texts";
import { bytes, count, percent } from "../units";
import { momentText } from "../canvas/time";
import { Panel, Segmented } from "./controls";
import { DataTable } from "./data-table";
import { Answered, Empty } from "./states";

const ROWS = 25;

export function Holds() {
  const page = usePage();
  const { state, store } = page;
  const by = page.by === "pool" ? "owner" : page.by;
  const reply = useAnswer(
    "holds",
    page.pool ? { ...placeOf(page), ...filterOf(state), t: page.cursor, by, limit: ROWS } : null,
  );
  // A report knows few moments and may answer for another one than the cursor's.
  const answered = page.source.live ? page.cursor : (reply.answer?.t ?? page.cursor);
  const isPeak = page.source.live ? state.t === null : answered === page.poolFacts?.peak_t;
  const moment = momentText(page, answered);
  const choose = (row: HoldRow) => {
    if (by === "owner") store.set({ owner: row.key });
    else if (by === "site") store.set({ site: row.key });
  };
  return (
    <Panel title={isPeak ? text("at_peak", moment) : text("cursor_at", moment)}>
      <div class="toolbar">
        <Segmented
          label={text("group_by")}
          choices={(["owner", "site", "size"] as const).map((choice) => [choice, text(`by_${choice}`)] as const)}
          value={by}
          onChange={(choice) => store.set({ by: choice })}
        />
      </div>
      <Answered reply={reply}>
        {(answer) => (
          <>
            <p class="figures" data-figure="cursor">
              <div>
                <b>{bytes(answer.used_bytes)}</b>
                {text("in_use")}, {blocksText(answer.blocks, count(answer.blocks))}
              </div>
            </p>
            {answer.rows.length === 0 ? (
              <Empty>{text("no_match")}</Empty>
            ) : (
              <DataTable
                label={text("group_by")}
                isCompact
                columns={[
                  {
                    key: "label",
                    title: text(by === "owner" ? "owner" : by === "site" ? "site" : "bytes"),
                    class: "name",
                    cell: (row) => shortLine(row.label) || "-",
                    hint: (row) => row.label,
                  },
                  { key: "bytes", title: text("bytes"), isNumber: true, cell: (row) => bytes(row.bytes) },
                  {
                    key: "share",
                    title: text("share"),
                    isNumber: true,
                    cell: (row) => percent(row.bytes, answer.used_bytes),
                  },
                ]}
                rows={answer.rows}
                rowKey={(row) => row.key}
                onRow={by === "size" || !page.source.live ? undefined : choose}
              />
            )}
            {answer.more && answer.more.rows > 0 && (
              <p class="muted">
                {text("holds_more", count(answer.more.rows))}: {bytes(answer.more.bytes)}
              </p>
            )}
          </>
        )}
      </Answered>
    </Panel>
  );
}
