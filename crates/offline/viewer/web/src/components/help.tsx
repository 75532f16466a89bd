// What keys and mouse do, opened with `?`.
import { useEffect, useRef } from "preact/hooks";
import { text, type TextKey } from "../texts";

const KEYS: [string[], TextKey][] = [
  [["W", "S"], "help_zoom"],
  [["A", "D"], "help_pan"],
  [["←", "→"], "help_arrows"],
  [["[", "]"], "help_steps"],
  [["R"], "help_reset"],
  [["P"], "help_peak"],
  [["/"], "help_search"],
  [["1", "–", "0"], "help_views"],
  [["Esc"], "help_escape"],
  [["?"], "help_this"],
];

const MOUSE: [TextKey, TextKey][] = [
  ["mouse_wheel", "help_wheel"],
  ["mouse_drag", "help_drag"],
  ["mouse_click", "help_click"],
];

export function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.querySelector("button")?.focus();
    return () => before?.focus();
  }, []);
  return (
    <div class="overlay" onClick={(event) => event.target === event.currentTarget && onClose()}>
      <div class="dialog" role="dialog" aria-modal="true" aria-label={text("help_title")} ref={dialog}>
        <header>
          <h2>{text("help_title")}</h2>
          <button type="button" onClick={onClose} onKeyDown={(event) => event.key === "Tab" && event.preventDefault()}>
            {text("close")}
          </button>
        </header>
        <dl>
          {KEYS.map(([keys, what]) => (
            <>
              <dt>
                {keys.map((key) => (
                  <>
                    <kbd>{key}</kbd>{" "}
                  </>
                ))}
              </dt>
              <dd>{text(what)}</dd>
            </>
          ))}
          {MOUSE.map(([gesture, what]) => (
            <>
              <dt>
                <kbd>{text(gesture)}</kbd>
              </dt>
              <dd>{text(what)}</dd>
            </>
          ))}
        </dl>
      </div>
    </div>
  );
}
