// Pages of a table whose rows come from the server.
import { usePage } from "../page";
import { text } from "../texts";
import { count } from "../units";

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
    </nav>
  );
}
