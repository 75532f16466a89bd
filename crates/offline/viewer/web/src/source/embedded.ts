// Answers inside the page itself: the self-contained report. It holds one answer per question, for the whole
// recording, so windows and sizes of the screen do not count when looking for it.
import type { Answers, Question } from "./answers";
import { parseHarmless } from "./harmless";
import { addressOf, type DataSource, type Parameters } from "./source";

export const EMBEDDED_ID = "msmemscope-data";

/** Parameters that only say how much of an answer is wanted, and in which order; and filters, which a report has not. */
const EXTENT = new Set([
  "around",
  "bars",
  "brief",
  "owner",
  "thread",
  "step",
  "site",
  "text",
  "t0",
  "t1",
  "width",
  "height",
  "y0",
  "y1",
  "offset",
  "limit",
  "minimum",
  "series",
  "sort",
  "descending",
]);

export interface EmbeddedAnswers {
  version: number;
  answers: Record<string, unknown>;
}

export class EmbeddedSource implements DataSource {
  readonly live = false;

  constructor(private readonly data: EmbeddedAnswers) {}

  /** The source of this page, if it carries data. */
  static of(page: Document): EmbeddedSource | null {
    const text = page.getElementById(EMBEDDED_ID)?.textContent;
    return text ? new EmbeddedSource(parseHarmless(text) as EmbeddedAnswers) : null;
  }

  async ask<Q extends Question>(question: Q, parameters: Parameters): Promise<Answers[Q]> {
    const answer = this.find(question, parameters);
    if (answer === undefined)
      throw new Error("This report does not contain the answer; open the recording with `msmemscope view`.");
    return paged(sorted(answer, parameters), parameters) as Answers[Q];
  }

  async csv(question: Question, parameters: Parameters): Promise<string> {
    const table = (await this.ask(question, parameters)) as Answers["table/blocks"];
    const field = (cell: unknown) =>
      /[",\n\r]/.test(String(cell ?? "")) ? `"${String(cell).replace(/"/g, '""')}"` : String(cell ?? "");
    return [table.columns, ...table.rows].map((row) => row.map(field).join(",") + "\n").join("");
  }

  answers(question: Question, parameters?: Parameters): boolean {
    if (parameters) return this.find(question, parameters) !== undefined;
    return Object.keys(this.data.answers).some((key) => key === question || key.startsWith(question + "?"));
  }

  /** The answer with the same parameters, otherwise with the most of them. */
  private find(question: Question, parameters: Parameters): unknown {
    const wanted = Object.fromEntries(Object.entries(parameters).filter(([name]) => !EXTENT.has(name)));
    const exact = this.data.answers[addressOf(question, wanted)];
    if (exact !== undefined) return exact;
    // The moment is a cursor's: what is known for the peak is better than nothing, and says its own time.
    const { t: _moment, ...timeless } = wanted;
    return this.data.answers[addressOf(question, timeless)];
  }
}

type Row = Record<string, unknown> | unknown[];

/** As many rows as are asked for; there are no more than those in the report. */
function paged(answer: unknown, { offset, limit, around }: Parameters): unknown {
  const { rows, total } = answer as { rows?: Row[]; total?: number };
  if (!rows || total === undefined || typeof limit !== "number") return answer;
  const first = typeof around === "number" ? firstAround(rows, around, limit) : Number(offset ?? 0);
  return {
    ...(answer as object),
    rows: rows.slice(first, first + limit),
    total: rows.length,
    left_out: total - rows.length,
  };
}

/** Where the page begins of which half the rows end before a moment. */
function firstAround(rows: Row[], moment: number, limit: number): number {
  const later = rows.findIndex((row) => ((row as Record<string, unknown>)["end"] as number) >= moment);
  return Math.max(0, (later < 0 ? rows.length : later) - Math.floor(limit / 2));
}

/** The rows of a table in the order asked for; what the report does not have as a column stays as it is. */
function sorted(answer: unknown, { sort, descending }: Parameters): unknown {
  const { rows, columns } = answer as { rows?: Row[]; columns?: string[] };
  if (!rows || typeof sort !== "string") return answer;
  const index = columns?.indexOf(sort) ?? -1;
  const value = (row: Row) => (Array.isArray(row) ? row[index] : row[sort]) as string | number | null | undefined;
  const order = (left: Row, right: Row) => {
    const [first, second] = [value(left) ?? Infinity, value(right) ?? Infinity];
    return first < second ? -1 : first > second ? 1 : 0;
  };
  return {
    ...(answer as object),
    rows: [...rows].sort((left, right) => (descending ? order(right, left) : order(left, right))),
  };
}
