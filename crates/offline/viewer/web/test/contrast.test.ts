// Everything that is read has the contrast that WCAG AA asks of text, in both themes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const STYLE = readFileSync("src/style.css", "utf8");

function colours(selector: string): Record<string, string> {
  const block = STYLE.slice(STYLE.indexOf(`${selector} {`)).split("}")[0]!;
  return Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((match) => [match[1]!, match[2]!]));
}

function luminance(colour: string): number {
  const channels = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16) / 255);
  const [red, green, blue] = channels.map((share) =>
    share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(first: string, second: string): number {
  const [low, high] = [luminance(first), luminance(second)].sort((left, right) => left - right);
  return (high! + 0.05) / (low! + 0.05);
}

for (const selector of [":root", ':root[data-theme="dark"]']) {
  test(`text can be read on ${selector}`, () => {
    const found = colours(selector);
    const pairs: [string, string[]][] = [
      ["text", ["background", "surface", "raised", "hover", "accent-soft", "danger-soft", "warning-soft", "info-soft"]],
      ["muted", ["background", "surface", "raised", "hover"]],
      ["accent", ["background", "surface", "accent-soft", "hover"]],
      ["danger", ["surface", "danger-soft"]],
      ["warning", ["surface", "warning-soft"]],
      ["info", ["surface", "info-soft"]],
    ];
    for (const [text, grounds] of pairs) {
      for (const ground of grounds) {
        const value = contrast(found[text]!, found[ground]!);
        assert.ok(value >= 4.5, `${text} on ${ground}: ${value.toFixed(2)}`);
      }
    }
    for (let index = 0; index < 12; index += 1) {
      const band = found[`series-${index}`]!;
      const best = Math.max(contrast(band, "#101418"), contrast(band, "#ffffff"));
      assert.ok(best >= 4.5, `label in band ${index}: ${best.toFixed(2)}`);
    }
  });
}
