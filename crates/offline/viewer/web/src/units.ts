// Numbers the way the terminal reports write them (crates/front/cli/src/units.rs): the same figure reads the same everywhere.

const BYTE_UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const COUNT_UNITS = ["M", "G", "T", "P", "E"];

/** Bytes with a binary unit, at most eight characters wide; negative numbers keep their sign. */
export function bytes(number: number): string {
  if (number < 0) return "-" + bytes(-number);
  if (number < 1024) return `${Math.round(number)} B`;
  let value = number / 1024;
  let unit = 0;
  // 1023.5 would be printed as 1024: that is one of the next unit.
  while (value >= 1023.5 && unit + 1 < BYTE_UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  // 99.95 would be printed as 100.0, one character more than there is room for.
  return `${rounded(value, value < 99.95 ? 1 : 0)} ${BYTE_UNITS[unit]}`;
}

/** Rounded as in the terminal: halves go to the even digit. Of one digit, only a quarter is a half exactly. */
function rounded(value: number, digits: 0 | 1): string {
  const isDown = digits === 1 ? value % 1 === 0.25 : value % 2 === 0.5;
  return (isDown ? Math.floor(value) + (digits === 1 ? 0.2 : 0) : value).toFixed(digits);
}

/** A change of bytes, always with its sign, except none. */
export function bytesChange(number: number): string {
  return number > 0 ? "+" + bytes(number) : bytes(number);
}

/** A count with its thousands separated. */
export function count(number: number): string {
  const digits = Math.round(Math.abs(number)).toString();
  const grouped = digits.replace(/\B(?=(\d{3})+$)/g, ",");
  return number < 0 ? "-" + grouped : grouped;
}

/** A count for narrow places, at most seven characters wide. */
export function shortCount(number: number): string {
  if (number < 1_000_000) return count(number);
  let value = number / 1e6;
  let unit = 0;
  while (value >= 999.5 && unit + 1 < COUNT_UNITS.length) {
    value /= 1e3;
    unit += 1;
  }
  return `${value.toFixed(value < 99.95 ? 1 : 0)} ${COUNT_UNITS[unit]}`;
}

/** A duration as in the reports. */
export function seconds(nanoseconds: number): string {
  if (nanoseconds < 10_000_000) return `${(nanoseconds / 1e6).toFixed(2)} ms`;
  if (nanoseconds < 1_000_000_000) return `${(nanoseconds / 1e6).toFixed(0)} ms`;
  if (nanoseconds < 120_000_000_000) return `${(nanoseconds / 1e9).toFixed(1)} s`;
  return `${Math.floor(nanoseconds / 60e9)} min ${Math.floor(nanoseconds / 1e9) % 60} s`;
}

const TIME_UNITS: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** A moment since the start of the recording, fine enough to tell neighbours `resolution_ns` apart. */
export function moment(nanoseconds: number, resolutionNs = 1): string {
  if (nanoseconds === 0) return "0";
  const sign = nanoseconds < 0 ? "-" : "";
  const size = Math.abs(nanoseconds);
  const [scale, unit] = TIME_UNITS.find(([scale]) => size >= scale) ?? [1, "ns"];
  const wanted = Math.max(0, Math.ceil(Math.log10(scale / Math.max(resolutionNs, 1e-9))));
  const possible = Math.round(Math.log10(scale));
  return `${sign}${(size / scale).toFixed(Math.min(wanted, possible))} ${unit}`;
}

/** A span of time with three significant digits. */
export function span(nanoseconds: number): string {
  const size = Math.abs(nanoseconds);
  return moment(nanoseconds, size === 0 ? 1 : 10 ** (Math.floor(Math.log10(size)) - 2));
}

/** An address as the tables and files write it. */
export function address(text: string | number): string {
  return typeof text === "number" ? "0x" + text.toString(16) : text;
}

/** A share of a whole. */
export function percent(part: number, whole: number): string {
  if (whole <= 0) return "-";
  const value = (part / whole) * 100;
  return `${value.toFixed(value !== 0 && Math.abs(value) < 9.95 ? 1 : 0)} %`;
}
