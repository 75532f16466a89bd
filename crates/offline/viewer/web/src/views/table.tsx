// Blocks and events as tables: the server sorts, filters and pages; rows can be copied as csv.
import { useState } from "preact/hooks";
import { BlockDetails } from "../components/block-details";
import { Panel, Segmented, Select } from "../components/controls";
import { DataTable, type Column } from "../components/data-table";
import { Pager } from "../components/pager";
import { Answered, Empty } from "../components/states";
import { shortAddress, shortLine, shortSpan } from "../names";
import { filterOf, placeOf, useAnswer, usePage, type Page } from "../page";
import type { Cell, Table } from "../source/answers";
import type { Parameters } from "../source/source";
import { text, textOr } from "../texts";
import { bytes, count, moment, span } from "../units";

const PAGE_ROWS = 100;
/** As many rows as the server puts into csv. */
const MOST_CSV_ROWS = 1_000_000;
const SORTABLE = new Set(["start", "end", "bytes", "lifetime", "address", "accesses"]);
const MOMENTS = new Set(["start", "end", "first_access", "last_access", "t"]);
const NUMBERS = new Set([
  "block",
  "allocation_id",
  "bytes",
  "start",
  "end",
  "lifetime",
  "thread",
  "step",
  "first_access",
  "last_access",
  "accesses",
  "event",
  "t",
]);
const EVENT_KINDS = [
  "malloc",
  "free",
  "access",
  "operator",
  "kernel",
  "range",
  "mark",
  "step",
  "snapshot",
  "card",
  "out_of_memory",
  "watch",
  "autograd",
  "system",
  "message",
];
/** Columns that narrow windows have no room for; the life of a block says the same. */
const MINOR = new Set(["address", "lifetime", "thread", "first_access", "last_access"]);
/** Columns that say what the selectors say already, or what only tools need. */
const HIDDEN = new Set(["allocation_id", "device", "pool"]);

export function TableView() {
  const page = usePage();
  const { state, store } = page;
  const isBlocks = state.table === "blocks";
  const question = isBlocks ? "table/blocks" : "table/events";
  const parameters = isBlocks ? blockParameters(page) : eventParameters(page);
  const reply = useAnswer(question, { ...parameters, offset: state.offset, limit: PAGE_ROWS });
  return (
    <>
      <div class="toolbar">
        <Segmented
          label={text("table")}
          choices={[
            ["blocks", text("table_blocks")],
            ["events", text("table_events")],
          ]}
          value={state.table}
          onChange={(table) => store.set({ table, offset: 0, sort: "", descending: false })}
        />
        {isBlocks ? (
          <>
            <Select
              label={text("alive")}
              isLabelShown
              choices={(["any", "window", "end", "kept", "leaked"] as const).map(
                (alive) => [alive, text(`alive_${alive}`)] as const,
              )}
              value={state.alive}
              onChange={(alive) => store.set({ alive, offset: 0 })}
            />
            <label class="field">
              <input
                type="checkbox"
                checked={state.inefficient}
                onChange={(event) => store.set({ inefficient: event.currentTarget.checked, offset: 0 })}
              />
              {text("only_inefficient")}
            </label>
          </>
        ) : (
          <Select
            label={text("event_kind")}
            isLabelShown
            choices={[["", text("event_any")], ...EVENT_KINDS.map((kind) => [kind, kind.replace(/_/g, " ")] as const)]}
            value={state.event}
            onChange={(event) => store.set({ event, offset: 0 })}
          />
        )}
        {state.t0 !== null && (
          <span class="chip">
            <span>
              {text(
                "window_only",
                moment(page.window[0] - page.recording.t0, 1000),
                moment(page.window[1] - page.recording.t0, 1000),
              )}
            </span>
            <button
              type="button"
              aria-label={text("whole")}
              onClick={() => store.set({ t0: null, t1: null, offset: 0 })}
            >
              ×
            </button>
          </span>
        )}
        <span class="last">
          {reply.answer !== null && reply.answer.total > MOST_CSV_ROWS && (
            <span class="muted" data-figure="csv-cut">
              {text("table_csv_cut", count(MOST_CSV_ROWS), count(reply.answer.total))}
            </span>
          )}
          <CsvButtons question={question} parameters={parameters} />
        </span>
      </div>
      <div class={isBlocks && state.block !== null ? "columns" : ""}>
        <Panel>
          <Answered reply={reply}>{(table) => <Rows table={table} isBlocks={isBlocks} />}</Answered>
        </Panel>
        {isBlocks && state.block !== null && (
          <aside>
            <BlockDetails />
          </aside>
        )}
      </div>
    </>
  );
}

function blockParameters(page: Page): Parameters {
  const { state } = page;
  const inWindow = state.alive === "window" || state.alive === "kept" || state.t0 !== null;
  return {
    ...placeOf(page),
    ...filterOf(state),
    alive: state.alive === "any" && state.t0 !== null ? "window" : state.alive,
    t0: inWindow ? page.window[0] : null,
    t1: inWindow ? page.window[1] : null,
    inefficient: state.inefficient || null,
    sort: SORTABLE.has(state.sort) ? state.sort : "start",
    descending: state.descending,
  };
}

function eventParameters(page: Page): Parameters {
  const { state } = page;
  const inWindow = state.t0 !== null;
  return {
    ...placeOf(page),
    ...filterOf(state),
    kind: state.event,
    t0: inWindow ? page.window[0] : null,
    t1: inWindow ? page.window[1] : null,
    descending: state.descending,
  };
}

function Rows({ table, isBlocks }: { table: Table; isBlocks: boolean }) {
  const page = usePage();
  const { state, store } = page;
  if (table.complete && table.rows.length === 0) return <Empty>{text("table_empty")}</Empty>;
  const blockColumn = table.columns.indexOf("block");
  const momentColumn = table.columns.indexOf("t");
  const columns: Column<Cell[]>[] = table.columns
    .map((name, index) => ({ column: columnOf(page, name, index, isBlocks), index }))
    .sort((left, right) => (isBlocks ? orderOf(left.column.key) - orderOf(right.column.key) : 0))
    .filter(
      ({ column, index }) =>
        (!isBlocks || !HIDDEN.has(column.key)) && table.rows.some((row) => isTelling(column.key, row[index] ?? null)),
    )
    .map(({ column }) => column);
  const choose = (row: Cell[]) => {
    const block = row[blockColumn];
    const moved = momentColumn >= 0 ? { t: Number(row[momentColumn]) } : {};
    store.set(typeof block === "number" && block >= 0 ? { ...moved, block } : moved);
  };
  return (
    <>
      <p class="toolbar muted" data-figure="total">
        {text("table_of", count(state.offset + 1), count(state.offset + table.rows.length), count(table.total))}
        {table.total_bytes !== undefined && ` · ${text("table_bytes", bytes(table.total_bytes))}`}
      </p>
      <DataTable
        label={text(isBlocks ? "table_blocks" : "table_events")}
        columns={columns}
        rows={table.rows}
        rowKey={(row) => String(row[0])}
        sort={isBlocks ? (SORTABLE.has(state.sort) ? state.sort : "start") : "t"}
        descending={state.descending}
        onSort={(sort, descending) => store.set({ sort, descending, offset: 0 })}
        onRow={choose}
        isSelected={(row) => state.block !== null && row[blockColumn] === state.block}
      />
      <Pager total={table.total} rows={table.rows.length} pageRows={PAGE_ROWS} isExact={table.total_exact} />
    </>
  );
}

/** The line comes before what is known to those who need it; all else is in the order of csv. */
function orderOf(column: string): number {
  const later = ["thread", "step", "operator"].indexOf(column);
  if (column === "line") return 1;
  return later >= 0 ? 2 : ["first_access", "last_access", "accesses", "inefficient"].includes(column) ? 3 : 0;
}

/** Whether a cell says something; columns in which none does are left out. */
function isTelling(column: string, cell: Cell): boolean {
  if (column === "end") return true;
  return column === "accesses" ? Number(cell) > 0 : cell !== null && cell !== "";
}

function columnOf(page: Page, name: string, index: number, isBlocks: boolean): Column<Cell[]> {
  const isNumber = NUMBERS.has(name);
  const show = (cell: Cell): string => {
    if (name === "end" && cell === null) return text("block_never_freed");
    if (cell === null || cell === "" || cell === undefined) return "-";
    if (name === "bytes") return bytes(Number(cell));
    if (name === "lifetime" || name === "idle") return span(Number(cell));
    if (MOMENTS.has(name)) return moment(Number(cell) - page.recording.t0, 1000);
    if (name === "line" || name === "detail") return shortLine(String(cell));
    if (name === "operator" || name === "name") return shortSpan(String(cell));
    if (name === "address") return shortAddress(String(cell));
    if (name === "inefficient")
      return String(cell)
        .split(/[,\s]+/)
        .map((kind) => textOr(`ineff_${kind}`, kind))
        .join(", ");
    if (name === "accesses") return count(Number(cell));
    return String(cell);
  };
  const isSortable = isBlocks ? SORTABLE.has(name) : name === "t";
  return {
    key: name,
    title: textOr(`col_${name}`, name),
    isNumber,
    class: `${isNumber ? "" : name === "address" ? "mono" : "name"} ${isBlocks && MINOR.has(name) ? "minor" : ""}`,
    sort: isSortable ? name : undefined,
    cell: (row) => show(row[index] ?? null),
    hint: (row) => (name === "bytes" ? `${row[index]} B` : isNumber || row[index] === null ? "" : String(row[index])),
  };
}

function CsvButtons({ question, parameters }: { question: "table/blocks" | "table/events"; parameters: Parameters }) {
  const { source, recording } = usePage();
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(await source.csv(question, parameters));
    setDone(true);
    window.setTimeout(() => setDone(false), 1500);
  };
  const save = async () => {
    const address = URL.createObjectURL(new Blob([await source.csv(question, parameters)], { type: "text/csv" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = `${question.replace("table/", "")}_${recording.process_id ?? recording.r}.csv`;
    link.click();
    URL.revokeObjectURL(address);
  };
  return (
    <>
      <button type="button" onClick={() => void copy()}>
        {text(done ? "copied" : "table_csv")}
      </button>
      <button type="button" onClick={() => void save()}>
        {text("table_save")}
      </button>
    </>
  );
}
