// One colour per owner or call site in all views: that of its band in the timeline. Those beyond get one by their name.
import { useMemo } from "preact/hooks";
import { OTHER } from "./canvas/stack";
import { shortLine } from "./names";
import { dividedBy, placeOf, useAnswer, usePage } from "./page";
import { nameColour, seriesColour } from "./theme";

export const SERIES = 12;

/** The bands of the timeline of the whole recording. */
function useBands(by: "owner" | "site") {
  const page = usePage();
  const reply = useAnswer("curve", page.pool ? { ...placeOf(page), by, width: 2, series: SERIES } : null);
  return useMemo(
    () => new Map((reply.answer?.series ?? []).map((series, index) => [series.key, { index, label: series.label }])),
    [reply.answer, page.appearance],
  );
}

/** The owners with most memory, as choices. */
export function useOwners(): (readonly [string, string])[] {
  const bands = useBands("owner");
  return [...bands].filter(([key]) => key !== OTHER).map(([key, { label }]) => [key, label] as const);
}

export function useOwnerColours(): (owner: string) => string {
  const bands = useBands("owner");
  return useMemo(
    () => (owner: string) => {
      const band = bands.get(owner);
      return band ? seriesColour(band.index) : nameColour(owner);
    },
    [bands],
  );
}

export interface BlockLook {
  colour: string;
  /** What it belongs to. */
  name: string;
}

/** How blocks are told apart: by owner, or by call site where nobody knows owners. */
export function useBlockLooks(): (owner: string, site: number) => BlockLook {
  const { recording, poolFacts } = usePage();
  const by = dividedBy(recording, poolFacts);
  const bands = useBands(by);
  return useMemo(
    () => (owner: string, site: number) => {
      const key = by === "site" ? String(site) : owner;
      const band = bands.get(key);
      const name = by === "site" ? shortLine(band?.label ?? "") : owner;
      return { colour: band ? seriesColour(band.index) : nameColour(key), name };
    },
    [bands, by],
  );
}
