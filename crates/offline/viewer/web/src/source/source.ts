// Where the views get their data from. There are two sources: the running server, and answers embedded in the page,
// which is how the self-contained report works. Views cannot tell them apart.
import type { Answers, Question } from "./answers";
import { original } from "./harmless";

/** Parameters of a question; what is null, undefined or empty is left out. */
export type Parameters = Record<string, string | number | boolean | null | undefined>;

export interface DataSource {
  /** True if answers are computed on demand, for any window and filter. */
  readonly live: boolean;
  ask<Q extends Question>(question: Q, parameters: Parameters, signal?: AbortSignal): Promise<Answers[Q]>;
  /** The rows of a table as csv. */
  csv(question: Question, parameters: Parameters): Promise<string>;
  /** Whether this question can be answered at all, or with these parameters. */
  answers(question: Question, parameters?: Parameters): boolean;
}

/** The parameters in one order, so that equal questions have equal addresses. */
export function queryText(parameters: Parameters): string {
  const pairs = Object.entries(parameters)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [name, typeof value === "boolean" ? (value ? "1" : "0") : original(String(value))] as const)
    .sort(([left], [right]) => (left < right ? -1 : left > right ? 1 : 0));
  return pairs.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join("&");
}

export function addressOf(question: Question, parameters: Parameters): string {
  const query = queryText(parameters);
  return query ? `${question}?${query}` : question;
}
