// Call stacks as text, with the lines of the source where the file is there.
import { useState } from "preact/hooks";
import { baseName } from "../names";
import { usePage, useAnswer } from "../page";
import type { Frame } from "../source/answers";
import { text } from "../texts";

export function Frames({ frames }: { frames: readonly Frame[] }) {
  return (
    <ol class="frames">
      {groupFrames(frames).map((group, index) =>
        group.length === 1 ? (
          <FrameLine key={index} frame={group[0]!} />
        ) : (
          <li key={index}>
            <details>
              <summary>{text("frames_in", group.length, baseName(group[0]!.file))}</summary>
              <ol class="frames">
                {group.map((frame, position) => (
                  <FrameLine key={position} frame={frame} />
                ))}
              </ol>
            </details>
          </li>
        ),
      )}
    </ol>
  );
}

/** Neighbouring frames of one library without lines say little: they are folded into one entry. */
export function groupFrames(frames: readonly Frame[]): Frame[][] {
  const groups: Frame[][] = [];
  for (const frame of frames) {
    const last = groups[groups.length - 1];
    const isMore = last && !frame.line && !last[0]!.line && frame.file !== "" && last[0]!.file === frame.file;
    if (isMore) last.push(frame);
    else groups.push([frame]);
  }
  return groups;
}

function FrameLine({ frame }: { frame: Frame }) {
  const [isOpen, setOpen] = useState(false);
  const { source } = usePage();
  const hasSource = Boolean(frame.source) && source.answers("source");
  return (
    <li>
      {frame.language && <span class="language">{frame.language}</span>}
      <div class="function">{frame.function || "?"}</div>
      {frame.file && (
        <div class="file mono">
          {hasSource ? (
            <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
              {frame.file}:{frame.line}
            </button>
          ) : (
            <>
              {frame.file}
              {frame.line ? `:${frame.line}` : ""}
            </>
          )}
        </div>
      )}
      {isOpen && <SourceLines file={frame.file} line={frame.line} />}
    </li>
  );
}

export function SourceLines({ file, line }: { file: string; line: number }) {
  const { recording } = usePage();
  const reply = useAnswer("source", { r: recording.r, file, line, context: 5 });
  if (reply.problem) return <p class="muted">{text("flame_source_none")}</p>;
  const { answer } = reply;
  if (!answer) return <p class="muted">{text("loading")}</p>;
  return (
    <div class="code" role="region" aria-label={text("source")} tabIndex={0}>
      {answer.lines.map((content, index) => {
        const number = answer.first_line + index;
        return (
          <div key={number} class={number === answer.line ? "here" : ""}>
            <span>{number}</span>
            {content}
          </div>
        );
      })}
    </div>
  );
}
