// Names from recordings, shortened for narrow places. The whole name is always a hover or a title away.

/** `/long/path/train.py:31 f` as `train.py:31 f`; other texts stay as they are. */
export function shortLine(line: string): string {
  const number = /:\d+(?=\s|$)/.exec(line);
  if (!number) return line;
  return baseName(line.slice(0, number.index)) + line.slice(number.index);
}

/** The script of a command, otherwise its program. */
export function programName(command: string): string {
  const words = command.split(/\s+/);
  return baseName(words.find((word) => word.endsWith(".py")) ?? words[0] ?? "");
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** A place as text: file, line and function, as far as they are known. */
export function placeText(
  file: string | null | undefined,
  line: number | null | undefined,
  name?: string | null,
): string {
  if (!file) return name ?? "";
  return `${file}${line ? `:${line}` : ""}${name ? ` ${name}` : ""}`;
}

/** What a span is called in the middle of a chart: operators without their module, functions before their files. */
export function shortSpan(name: string): string {
  const call = /^(.*)\((\d+)\): (.+)$/.exec(name);
  if (call) return `${call[3]}  ${baseName(call[1]!)}:${call[2]}`;
  return name.replace(/^torch\._ops\./, "");
}

export function shortAddress(address: string): string {
  return address.replace(/^0x0*(?=.)/, "0x");
}
