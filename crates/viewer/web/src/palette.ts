// One colour per owner in all views: that of its band in the timeline. Owners beyond those get one by their name.
import { useMemo } from "preact/hooks";
import { placeOf, useAnswer, usePage } from "./page";
import { nameColour, seriesColour } from "./theme";

export const SERIES = 12;

export function useOwnerColours(): (owner: string) => string {
  const page = usePage();
  const reply = useAnswer("curve", page.pool ? { ...placeOf(page), by: "owner", width: 2, series: SERIES } : null);
  const { answer } = reply;
  return useMemo(() => {
    const ranks = new Map((answer?.series ?? []).map((series, index) => [series.key, index]));
    return (owner: string) => {
      const rank = ranks.get(owner);
      return rank === undefined ? nameColour(owner) : seriesColour(rank);
    };
  }, [answer, page.appearance]);
}
