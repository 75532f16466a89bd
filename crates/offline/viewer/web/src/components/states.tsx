// What a view shows while there is nothing to show: why, and what can be done about it.
import type { ComponentChildren } from "preact";
import { isFiltered, usePage, type Reply } from "../page";
import { DEFAULTS } from "../state";
import { text } from "../texts";

/** Text in which `commands` look like commands. */
export function withCommands(children: ComponentChildren): ComponentChildren {
  if (typeof children !== "string") return children;
  return children.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}

export function Empty({ children }: { children: ComponentChildren }) {
  const { state, store } = usePage();
  return (
    <div class="empty">
      <p>{withCommands(children)}</p>
      {isFiltered(state) && (
        <p>
          <button type="button" onClick={() => store.set(NO_FILTER)}>
            {text("clear_filter")}
          </button>
        </p>
      )}
    </div>
  );
}

/** There is no pool to speak of: not yet, or not at all. */
export function NoMemory() {
  const { recording } = usePage();
  if (recording.live && !recording.live.is_last) return <Empty>{text("live_waiting")}</Empty>;
  return recording.state === "ready" || recording.state === "failed" ? <Empty>{text("no_memory")}</Empty> : <Loading />;
}

export const NO_FILTER = {
  owner: DEFAULTS.owner,
  thread: DEFAULTS.thread,
  step: DEFAULTS.step,
  site: DEFAULTS.site,
  text: DEFAULTS.text,
};

export function Loading({ children }: { children?: ComponentChildren }) {
  return (
    <div class="loading" role="status">
      {children ?? text("loading")}
    </div>
  );
}

export function Problem({ message }: { message: string }) {
  return (
    <div class="notice error" role="alert">
      {message}
    </div>
  );
}

/** Shows an answer when it is there; until then, or if there is none, says so. */
export function Answered<T>({ reply, children }: { reply: Reply<T>; children: (answer: T) => ComponentChildren }) {
  if (reply.problem) return <Problem message={reply.problem} />;
  if (!reply.answer) return <Loading />;
  return <div class={reply.current ? "" : "stale"}>{children(reply.answer)}</div>;
}
