// Small controls that several views share.
import type { ComponentChildren } from "preact";
import { shortLine } from "../names";
import { usePage } from "../page";
import { text } from "../texts";
import { seriesColour, readableOn, theme } from "../theme";

/** One of a few choices, all of them visible. */
export function Segmented<T extends string>(properties: {
  label: string;
  choices: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}) {
  return (
    <span class="segmented" role="group" aria-label={properties.label}>
      {properties.choices.map(([value, title]) => (
        <button
          key={value}
          type="button"
          aria-pressed={value === properties.value}
          onClick={() => properties.onChange(value)}
        >
          {title}
        </button>
      ))}
    </span>
  );
}

/** One of many choices. */
export function Select<T extends string>(properties: {
  label: string;
  isLabelShown?: boolean;
  choices: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}) {
  return (
    <label class="field">
      <span class={properties.isLabelShown ? "" : "hidden"}>{properties.label}</span>
      <select value={properties.value} onChange={(event) => properties.onChange(event.currentTarget.value as T)}>
        {properties.choices.map(([value, title]) => (
          <option key={value} value={value} selected={value === properties.value}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

/** More steps than these are asked for by their number. */
export const STEPS_LISTED = 200;

/** The number of a step; nothing if it is empty. */
export function StepField(properties: {
  label: string;
  isLabelShown?: boolean;
  placeholder: string;
  first: number;
  last: number;
  value: string;
  onChange: (value: string) => void;
}) {
  const { first, last } = properties;
  return (
    <label class="field">
      <span class={properties.isLabelShown ? "" : "hidden"}>{properties.label}</span>
      <input
        type="number"
        min={first}
        max={last}
        placeholder={properties.placeholder}
        title={`${first}-${last}`}
        value={properties.value}
        onChange={({ currentTarget: field }) => field.validity.valid && properties.onChange(field.value)}
      />
    </label>
  );
}

/** The number and colour of a series, so that it is found again without seeing colours. */
export function Swatch({ index, isOther }: { index: number; isOther?: boolean }) {
  const colour = isOther ? theme().other : seriesColour(index);
  return (
    <span class="swatch" style={{ background: colour, color: readableOn(colour) }} aria-hidden="true">
      {isOther ? "…" : index + 1}
    </span>
  );
}

/** A place in the source: short on screen, whole in its title. */
export function Place({ line, class: name }: { line: string; class?: string }) {
  return (
    <span class={name ?? "mono"} title={line}>
      {shortLine(line)}
    </span>
  );
}

export function Panel({
  title,
  children,
  class: name,
}: {
  title?: string;
  children: ComponentChildren;
  class?: string;
}) {
  return (
    <section class={`panel ${name ?? ""}`}>
      {title && <h3>{title}</h3>}
      {children}
    </section>
  );
}

/** Back to the whole recording. */
export function WholeRecording() {
  const { state, store } = usePage();
  return (
    <button type="button" disabled={state.t0 === null} onClick={() => store.set({ t0: null, t1: null })}>
      {text("whole")} <kbd>R</kbd>
    </button>
  );
}
