// Pages of a table whose rows come from the server.
import { usePage } from "../page";
import { text } from "../texts";
import { count } from "../units";

/** Of more pages than these, the one with a certain row can be asked for. */
const FEW_PAGES = 5;

export function Pager({
  total,
  rows,
  pageRows,
  isExact,
}: {
  total: number;
  rows: number;
  pageRows: number;
  isExact?: boolean;
}) {
  const { state, store } = usePage();
  const { offset } = state;
  if (total <= pageRows && offset === 0) return null;
  const whole = isExact === false ? text("table_at_least", count(total)) : count(total);
  return (
    <nav class="pager">
      <button
        type="button"
        disabled={offset === 0}
        onClick={() => store.set({ offset: Math.max(0, offset - pageRows) })}
      >
        {text("table_previous")}
      </button>
      <span>{text("table_of", count(rows === 0 ? 0 : offset + 1), count(offset + rows), whole)}</span>
      <button type="button" disabled={offset + rows >= total} onClick={() => store.set({ offset: offset + pageRows })}>
        {text("table_next")}
      </button>
      {total > pageRows * FEW_PAGES && (
        <label class="field">
          {text("table_row")}
          <input
            type="number"
            min={1}
            max={total}
            value=""
            placeholder={count(offset + 1)}
            onChange={({ currentTarget: field }) => {
              const row = Number(field.value);
              if (field.value !== "" && field.validity.valid) store.set({ offset: row - 1 - ((row - 1) % pageRows) });
            }}
          />
        </label>
      )}
    </nav>
  );
}
