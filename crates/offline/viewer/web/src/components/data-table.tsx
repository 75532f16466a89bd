// A table: numbers aligned at their last digit, columns that can sort it, rows that can be chosen with the mouse or
// Enter.
import type { ComponentChildren } from "preact";
import { text } from "../texts";

export interface Column<Row> {
  key: string;
  title: string;
  isNumber?: boolean;
  class?: string;
  sort?: string;
  cell: (row: Row) => ComponentChildren;
  hint?: (row: Row) => string;
}

interface Properties<Row> {
  label: string;
  columns: Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row, index: number) => string | number;
  isCompact?: boolean;
  sort?: string;
  descending?: boolean;
  onSort?: (sort: string, descending: boolean) => void;
  onRow?: (row: Row) => void;
  isSelected?: (row: Row) => boolean;
}

export function DataTable<Row>(properties: Properties<Row>) {
  const { columns, rows, onRow, onSort } = properties;
  const heading = (column: Column<Row>) => {
    if (!column.sort || !onSort) return column.title;
    const isSorted = properties.sort === column.sort;
    const descending = isSorted ? !properties.descending : Boolean(column.isNumber);
    return (
      <button type="button" title={text("sort_by", column.title)} onClick={() => onSort(column.sort!, descending)}>
        {column.title}
        {isSorted ? (properties.descending ? " ↓" : " ↑") : ""}
      </button>
    );
  };
  const sortState = (column: Column<Row>) =>
    column.sort && properties.sort === column.sort ? (properties.descending ? "descending" : "ascending") : undefined;
  return (
    <div class="scroll">
      <table class={properties.isCompact ? "compact" : ""} aria-label={properties.label}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.key}
                scope="col"
                class={`${column.isNumber ? "number" : ""} ${column.class?.includes("minor") ? "minor" : ""}`}
                aria-sort={sortState(column)}
              >
                {heading(column)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr
              key={properties.rowKey(row, index)}
              class={onRow ? "action" : ""}
              tabIndex={onRow ? 0 : undefined}
              aria-selected={properties.isSelected?.(row) ? "true" : undefined}
              onClick={onRow && (() => onRow(row))}
              onKeyDown={
                onRow &&
                ((event) => {
                  if (event.key === "Enter" && event.target === event.currentTarget) onRow(row);
                })
              }
            >
              {columns.map((column) => (
                <td
                  key={column.key}
                  class={`${column.isNumber ? "number" : ""} ${column.class ?? ""}`}
                  title={column.hint?.(row)}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
