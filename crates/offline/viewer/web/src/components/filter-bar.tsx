// The filter that all views share: text, owner, call site, thread and step. What is set is shown and can be removed.
import { useEffect, useState } from "preact/hooks";
import { shortLine } from "../names";
import { filterOf, isFiltered, placeOf, stepNumbers, useAnswer, usePage } from "../page";
import { DEFAULTS, type State } from "../state";
import { text, type TextKey } from "../texts";
import { Select, STEPS_LISTED, StepField } from "./controls";
import { useOwners } from "../palette";
import { NO_FILTER } from "./states";

/** Changes of the text are taken over when the user pauses. */
const PAUSE_MS = 250;

type FilterKey = "owner" | "thread" | "step" | "site" | "text";

export function FilterBar() {
  const page = usePage();
  const { state, store, recording } = page;
  const searchKey = state.view === "flame" || state.view === "calls" ? "search" : "text";
  // Leaks are known by their call sites.
  const hasBlocks = page.source.live && state.view !== "calls" && !(state.view === "flame" && state.kind === "leaked");
  const threads = recording.threads.map((entry) => [String(entry.thread), String(entry.thread)] as const);
  const owners = useOwners();
  const numbers = stepNumbers(recording);
  const steps = Array.from({ length: numbers.count > STEPS_LISTED ? 0 : numbers.count }, (_, index) =>
    String(numbers.first + index),
  );
  return (
    <div class="filters" role="search" aria-label={text("filter")}>
      <SearchField
        key={searchKey}
        label={text(
          searchKey === "text" ? "filter_placeholder" : state.view === "flame" ? "flame_search" : "calls_search",
        )}
        value={state[searchKey]}
        onChange={(value) => store.set({ [searchKey]: value, offset: 0 })}
      />
      {owners.length > 1 && hasBlocks && (
        <Select
          label={text("owner")}
          choices={[["", text("any_owner")], ...owners]}
          value={owners.some(([owner]) => owner === state.owner) ? state.owner : ""}
          onChange={(owner) => store.set({ owner, offset: 0 })}
        />
      )}
      {threads.length > 1 && hasBlocks && (
        <Select
          label={text("thread")}
          choices={[["", text("any_thread")], ...threads]}
          value={state.thread}
          onChange={(thread) => store.set({ thread, offset: 0 })}
        />
      )}
      {steps.length > 0 && hasBlocks && (
        <Select
          label={text("step")}
          choices={[["", text("any_step")], ...steps.map((value) => [value, text("block_step", value)] as const)]}
          value={state.step}
          onChange={(step) => store.set({ step, offset: 0 })}
        />
      )}
      {numbers.count > STEPS_LISTED && hasBlocks && (
        <StepField
          label={text("step")}
          placeholder={text("any_step")}
          first={numbers.first}
          last={numbers.last}
          value={state.step}
          onChange={(step) => store.set({ step, offset: 0 })}
        />
      )}
      {page.source.live && (
        <>
          <Chip name="owner" title="owner" value={state.owner} />
          {state.site !== "" && <SiteChip site={state.site} />}
          {searchKey !== "text" && <Chip name="text" title="filter" value={state.text} />}
          {isFiltered(state) && (
            <button type="button" onClick={() => store.set({ ...NO_FILTER, offset: 0 })}>
              {text("clear_filter")}
            </button>
          )}
        </>
      )}
    </div>
  );
}

function Chip({ name, title, value }: { name: FilterKey; title: TextKey; value: string }) {
  const { store } = usePage();
  if (value === "") return null;
  return (
    <span class="chip">
      <span title={value}>
        {text(title)}: {value}
      </span>
      <button
        type="button"
        aria-label={text("remove", text(title))}
        onClick={() => store.set({ [name]: DEFAULTS[name], offset: 0 } as Partial<State>)}
      >
        ×
      </button>
    </span>
  );
}

/** A call site is a number in the address; its line says more to people. */
function SiteChip({ site }: { site: string }) {
  const page = usePage();
  const reply = useAnswer("table/blocks", { ...placeOf(page), ...filterOf(DEFAULTS), site, limit: 1 });
  const column = reply.answer?.columns.indexOf("line") ?? -1;
  const line = reply.answer?.rows[0]?.[column];
  return <Chip name="site" title="site" value={line ? shortLine(String(line)) : site} />;
}

/** A field whose text is taken over after a pause, so that not every letter asks the server. */
export function SearchField(properties: { label: string; value: string; onChange: (value: string) => void }) {
  const [draft, setDraft] = useState(properties.value);
  useEffect(() => setDraft(properties.value), [properties.value]);
  useEffect(() => {
    if (draft === properties.value) return;
    const timer = window.setTimeout(() => properties.onChange(draft), PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [draft]);
  return (
    <input
      type="search"
      data-search
      placeholder={`${properties.label}  /`}
      aria-label={properties.label}
      value={draft}
      maxLength={400}
      spellcheck={false}
      onInput={(event) => setDraft(event.currentTarget.value)}
    />
  );
}
