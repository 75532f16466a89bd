// Light and dark. Colours are defined once, in style.css; what is drawn on canvases reads them from there.

export type ThemeName = "light" | "dark";

export interface Theme {
  name: ThemeName;
  text: string;
  muted: string;
  faint: string;
  background: string;
  surface: string;
  line: string;
  accent: string;
  danger: string;
  warning: string;
  /** Colours of stacked series, in order; each goes with its number, so nobody depends on them. */
  series: string[];
  other: string;
  growth: string;
  decrease: string;
  font: string;
}

const SERIES = 12;

let cached: Theme | null = null;

export function applyTheme(name: ThemeName): void {
  document.documentElement.dataset["theme"] = name;
  cached = null;
}

export function preferredTheme(): ThemeName {
  return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function theme(): Theme {
  if (cached) return cached;
  const style = getComputedStyle(document.documentElement);
  const value = (name: string) => style.getPropertyValue(name).trim();
  cached = {
    name: document.documentElement.dataset["theme"] === "dark" ? "dark" : "light",
    text: value("--text"),
    muted: value("--muted"),
    faint: value("--faint"),
    background: value("--background"),
    surface: value("--surface"),
    line: value("--line"),
    accent: value("--accent"),
    danger: value("--danger"),
    warning: value("--warning"),
    series: Array.from({ length: SERIES }, (_, index) => value(`--series-${index}`)),
    other: value("--series-other"),
    growth: value("--growth"),
    decrease: value("--decrease"),
    font: value("--font"),
  };
  return cached;
}

/** The colour of the series with this number. */
export function seriesColour(index: number): string {
  const { series } = theme();
  return series[index % series.length] ?? theme().other;
}

/** A colour that stays the same for a name wherever it appears. */
export function nameColour(name: string): string {
  let hash = 2166136261;
  for (let index = 0; index < name.length; index += 1) hash = Math.imul(hash ^ name.charCodeAt(index), 16777619);
  return seriesColour((hash >>> 0) % SERIES);
}

/** Black or white, whichever is easier to read on a colour given as #rrggbb. */
export function readableOn(colour: string): string {
  const match = /^#(..)(..)(..)$/.exec(colour);
  if (!match) return theme().text;
  const channel = (digits: string) => {
    const share = parseInt(digits, 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const luminance = 0.2126 * channel(match[1]!) + 0.7152 * channel(match[2]!) + 0.0722 * channel(match[3]!);
  return luminance > 0.195 ? "#101418" : "#ffffff";
}

/** Settings of the reader that outlive the page. Reports opened from disk may have no such memory. */
export function setting(name: string): string | null {
  try {
    return localStorage.getItem(`msmemscope.${name}`);
  } catch {
    return null;
  }
}

export function keepSetting(name: string, value: string): void {
  try {
    localStorage.setItem(`msmemscope.${name}`, value);
  } catch {
    // Nothing is lost but the preference.
  }
}
