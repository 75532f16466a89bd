// The running server as a source. All addresses are relative to the page, so that it works through any tunnel.
import type { Answers, Question } from "./answers";
import { parseHarmless } from "./harmless";
import { addressOf, type DataSource, type Parameters } from "./source";

export class LiveSource implements DataSource {
  readonly live = true;

  async ask<Q extends Question>(question: Q, parameters: Parameters, signal?: AbortSignal): Promise<Answers[Q]> {
    const response = await this.get(addressOf(question, parameters), signal);
    return parseHarmless(await response.text()) as Answers[Q];
  }

  async csv(question: Question, parameters: Parameters): Promise<string> {
    return (await this.get(addressOf(question, { ...parameters, format: "csv" }))).text();
  }

  answers(): boolean {
    return true;
  }

  private async get(address: string, signal?: AbortSignal): Promise<Response> {
    const response = await fetch(`api/${address}`, { signal: signal ?? null, credentials: "omit" });
    if (!response.ok) throw new Error(await problemOf(response));
    return response;
  }
}

/** The server's own sentence, or the status where an answer has none. */
async function problemOf(response: Response): Promise<string> {
  try {
    const body = parseHarmless(await response.text()) as { error?: string };
    if (body.error) return body.error;
  } catch {
    // Not JSON: the status has to do.
  }
  return `${response.status} ${response.statusText}`;
}
