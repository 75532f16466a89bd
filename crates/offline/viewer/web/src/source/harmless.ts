// Names in recordings may hold control characters and characters that turn the direction of writing, which could make
// a page say something else than it means. They are replaced by visible ones on the way in, and put back on the way
// out.

// Escapes in JSON for control characters (tab and newline are harmless), and the characters themselves.
const ESCAPED = /\\u00[01][0-9a-f]|\\[bf]|\\u00[789][0-9a-f]|\\u20[026]|\\u061c|\\ufeff/i;
const UNESCAPED = /[\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
const DANGEROUS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const VISIBLE = /‹([0-9A-F]{2,4})›/g;

/** The text with every dangerous character as its number in visible brackets. */
export function harmless(text: string): string {
  return text.replace(
    DANGEROUS,
    (character) => `‹${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}›`,
  );
}

/** The text as the recording has it. */
export function original(text: string): string {
  return text.replace(VISIBLE, (whole, digits: string) => {
    const character = String.fromCharCode(parseInt(digits, 16));
    return harmless(character) === whole ? character : whole;
  });
}

/** Reads JSON; all strings in it come out harmless. */
export function parseHarmless(json: string): unknown {
  if (!ESCAPED.test(json) && !UNESCAPED.test(json)) return JSON.parse(json);
  return JSON.parse(json, (_, value: unknown) => (typeof value === "string" ? harmless(value) : value));
}
