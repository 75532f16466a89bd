// Flame graphs of memory: at the peak, at the cursor, kept in the window, leaked, or the difference of two moments or
// two recordings. Python and native frames are in one stack. The list below has the same numbers and works without a
// mouse.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { frameTotals, layoutFlame, sameNode, searchFlame, type FlameBox } from "../canvas/flame-layout";
import { fitText, font, Surface, type Pen, type Point } from "../canvas/surface";
import { momentText } from "../canvas/time";
import { Panel, Segmented, Select, STEPS_LISTED, StepField } from "../components/controls";
import { DataTable } from "../components/data-table";
import { Frames } from "../components/frames";
import { Answered, Empty, NoMemory } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { baseName, placeText } from "../names";
import { filterOf, placeOf, recordingTitle, stepNumbers, useAnswer, usePage, type Page } from "../page";
import type { Flame, Frame } from "../source/answers";
import type { State } from "../state";
import { blocksText, text, textOr, type TextKey } from "../texts";
import { nameColour, readableOn } from "../theme";
import { bytes, bytesChange, count, percent } from "../units";

const ROW = 20;
const LISTED = 40;
const KINDS = ["peak", "time", "window", "leaked", "difference"] as const;

export function FlameView() {
  const page = usePage();
  const { state, store } = page;
  const parameters = {
    ...placeOf(page),
    ...filterOf(state),
    kind: state.kind,
    t: state.kind === "time" ? page.cursor : null,
    t0: page.window[0],
    t1: page.window[1],
    r2: state.kind === "difference" ? state.r2 : null,
    invert: state.invert,
  };
  const reply = useAnswer("flame", page.pool ? parameters : null);
  if (!page.pool) return <NoMemory />;
  const choose = async (kind: State["kind"]) => {
    const isUnasked = kind === "difference" && state.t0 === null && state.r2 === null && page.recording.steps > 1;
    // Before the first and after the last step there is little to compare: two steps say more.
    const ends = isUnasked && page.source.live ? await endsOfSteps(page) : {};
    store.set({ kind, focus: null, ...ends }, true);
  };
  return (
    <>
      <div class="toolbar">
        <Segmented
          label={text("flame_kind")}
          choices={KINDS.filter((kind) =>
            page.source.answers("flame", { ...placeOf(page), kind, invert: state.invert }),
          ).map((kind) => [kind, text(`flame_${kind}`)] as const)}
          value={state.kind}
          onChange={(kind) => void choose(kind)}
        />
        {state.kind === "difference" && <DifferenceChoice page={page} />}
        <span class="spacer" />
        <button
          type="button"
          aria-pressed={state.invert}
          title={text("flame_invert_title")}
          onClick={() => store.set({ invert: !state.invert, focus: null })}
        >
          {state.invert ? "✓ " : ""}
          {text("flame_invert")}
        </button>
      </div>
      <p class="muted toolbar">{explanation(page)}</p>
      <Answered reply={reply}>{(flame) => <Graph flame={flame} />}</Answered>
    </>
  );
}

/** The ends of the first and the last step as a window, if there are two of them. */
async function endsOfSteps(page: Page): Promise<Partial<State>> {
  const { bars } = await page.source.ask("steps/bars", { ...placeOf(page), bars: 1 });
  const all = bars[0];
  return all && all.end > all.first_end ? { t0: all.first_end, t1: all.end } : {};
}

function explanation(page: Page): string {
  const { kind, r2 } = page.state;
  const start = momentText(page, page.window[0]);
  const end = momentText(page, page.window[1]);
  if (kind === "peak") return text("flame_peak_text", momentText(page, page.poolFacts?.peak_t ?? page.cursor));
  if (kind === "time") return text("flame_time_text", momentText(page, page.cursor));
  const other = kind === "difference" && r2 !== null ? page.session.recordings[r2] : undefined;
  if (other) return text("flame_difference_runs", recordingTitle(other), recordingTitle(page.recording));
  return text(`flame_${kind}_text` as TextKey, start, end);
}

/** What is compared: the ends of the window, which steps set quickly, or two recordings. */
function DifferenceChoice({ page }: { page: Page }) {
  const { state, store, session, recording, window } = page;
  const others = session.recordings.filter((candidate) => candidate.r !== recording.r);
  const choose = (change: Partial<State>) => store.set({ ...change, focus: null });
  const StepEnd = stepNumbers(recording).count > STEPS_LISTED ? NumberedStepEnd : ListedStepEnd;
  return (
    <>
      {others.length > 0 && (
        <Select
          label={text("flame_compare_with")}
          isLabelShown
          choices={[
            ["", text("flame_compare_window")],
            ...others.map((other) => [String(other.r), recordingTitle(other)] as const),
          ]}
          value={state.r2 === null ? "" : String(state.r2)}
          onChange={(value) => choose({ r2: value === "" ? null : Number(value) })}
        />
      )}
      {recording.steps > 1 && state.r2 === null && (
        <>
          <StepEnd
            isLabelShown
            moment={state.t0}
            onChoose={(end) => choose({ t0: end, t1: Math.max(end + 1, window[1]) })}
          />
          <StepEnd moment={state.t1} onChoose={(end) => choose({ t1: end, t0: Math.min(window[0], end - 1) })} />
        </>
      )}
    </>
  );
}

interface StepEndProperties {
  isLabelShown?: boolean;
  /** The end of the step, if it is one. */
  moment: number | null;
  onChoose: (end: number) => void;
}

/** The end of one of few steps. */
function ListedStepEnd({ isLabelShown = false, moment, onChoose }: StepEndProperties) {
  const page = usePage();
  const rows = useAnswer("steps", { ...placeOf(page), limit: STEPS_LISTED, brief: true }).answer?.rows ?? [];
  if (rows.length < 2) return null;
  return (
    <Select
      label={text("flame_steps")}
      isLabelShown={isLabelShown}
      choices={[["", "…"], ...rows.map((row) => [String(row.end), text("block_step", row.step)] as const)]}
      value={rows.some(({ end }) => end === moment) ? String(moment) : ""}
      onChange={(value) => value && onChoose(Number(value))}
    />
  );
}

/** The end of one of many steps, by its number. */
function NumberedStepEnd({ isLabelShown = false, moment, onChoose }: StepEndProperties) {
  const page = usePage();
  const place = placeOf(page);
  const { first, last } = stepNumbers(page.recording);
  const near = useAnswer("steps", moment === null ? null : { ...place, around: moment, limit: 3, brief: true }).answer;
  const choose = async (value: string) => {
    const asked = { ...place, number: Number(value), limit: 1, brief: true };
    const [row] = value ? (await page.source.ask("steps", asked)).rows : [];
    if (row) onChoose(row.end);
  };
  return (
    <StepField
      label={text("flame_steps")}
      isLabelShown={isLabelShown}
      placeholder="…"
      first={first}
      last={last}
      value={String(near?.rows.find(({ end }) => end === moment)?.step ?? "")}
      onChange={(value) => void choose(value)}
    />
  );
}

function Graph({ flame }: { flame: Flame }) {
  const page = usePage();
  const { state, store } = page;
  const [hover, setHover] = useState<Point | null>(null);
  const [width, setWidth] = useState(0);
  // A job that is followed makes new graphs: the focus stays on its frame, wherever that is now.
  const older = useRef({ flame, revision: page.revision });
  useEffect(() => {
    const { flame: before, revision } = older.current;
    older.current = { flame, revision: page.revision };
    if (before === flame || revision === page.revision || state.focus === null) return;
    const found = sameNode(before, flame, state.focus);
    if (found !== state.focus) store.set({ focus: found || null });
  }, [flame]);
  const focus = state.focus ?? 0;
  const boxes = useMemo(() => layoutFlame(flame, focus), [flame, focus]);
  const found = useMemo(() => searchFlame(flame, state.search), [flame, state.search]);
  const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0);
  const height = (depth + 1) * ROW + 2;
  const draw = useCallback(
    (pen: Pen) => {
      for (const box of boxes)
        drawBox(
          pen,
          flame,
          box,
          state.search.trim() !== "" && !found.nodes.has(box.node),
          box.node === focus && focus > 0,
        );
    },
    [boxes, found, flame, page.appearance],
  );
  const isDifference = flame.kind === "difference";
  const total = flame.bytes[0] ?? flame.total_bytes;
  const show = isDifference ? bytesChange : bytes;
  if (flame.complete && (flame.parent.length < 2 || (!isDifference && total === 0))) {
    const key = `flame_empty_${flame.kind}`;
    return (
      <Empty>{textOr(key, text("flame_empty"))}</Empty>
    );
  }
  const at = (point: Point) =>
    boxes.find(
      (box) =>
        box.depth === Math.floor(point.y / ROW) &&
        point.x / width >= box.left &&
        point.x / width < box.left + box.width,
    );
  const hit = hover && width > 0 ? at(hover) : undefined;
  const choose = (node: number) => store.set({ focus: node === focus || node === 0 ? null : node });
  const chosen = flame.names[flame.name[focus] ?? 0];
  return (
    <div class="columns">
      <div>
        <Panel>
          <div class="heading">
            <h3 data-figure="total">{show(total)}</h3>
            <span class="muted">{blocksText(flame.blocks[0] ?? 0, count(flame.blocks[0] ?? 0))}</span>
            {state.search.trim() !== "" && (
              <span>{text("flame_matches", count(found.nodes.size), percent(found.bytes, total))}</span>
            )}
            <span class="spacer" />
            {focus > 0 && (
              <button type="button" onClick={() => store.set({ focus: null })}>
                {text("flame_reset")}
              </button>
            )}
          </div>
          <Surface
            height={height}
            label={text("chart_flame", text(`flame_${flame.kind}` as TextKey), show(total))}
            draw={draw}
            onWidth={setWidth}
            onHover={setHover}
            onClick={(point) => {
              const box = at(point);
              if (box) choose(box.node);
            }}
            cursor={hit ? "pointer" : "default"}
          />
          <p class="muted wide">
            {text("flame_hint")} {flame.pruned_bytes > 0 && text("flame_pruned", bytes(flame.pruned_bytes))}
          </p>
        </Panel>
        <FrameList flame={flame} onChoose={choose} focus={focus} />
      </div>
      <aside>
        <Panel title={text("block_stack")}>
          <Frames frames={focus > 0 && chosen ? stackOf(flame, focus, state.invert) : heaviest(flame, state.invert)} />
        </Panel>
      </aside>
      {hit && (
        <AtPointer>
          <b>{flame.names[flame.name[hit.node]!]?.function}</b>
          <div class="mono muted">{place(flame.names[flame.name[hit.node]!])}</div>
          <div>
            {show(flame.bytes[hit.node]!)} ({percent(flame.bytes[hit.node]!, total)}),{" "}
            {blocksText(flame.blocks[hit.node] ?? 0, count(flame.blocks[hit.node] ?? 0))}
            {isDifference && changeText(flame, hit.node)}
          </div>
        </AtPointer>
      )}
    </div>
  );
}

/** What a frame held before and after, for comparisons. */
function changeText(flame: Flame, node: number): string {
  const before = flame.before_bytes?.[node] ?? 0;
  return `, ${bytes(before)} → ${bytes(before + flame.bytes[node]!)}`;
}

function drawBox(pen: Pen, flame: Flame, box: FlameBox, isDim: boolean, isFocus: boolean): void {
  const { context, theme } = pen;
  const left = box.left * pen.width;
  const width = box.width * pen.width;
  if (width < 0.3) return;
  const frame = flame.names[flame.name[box.node]!];
  const change = flame.bytes[box.node]!;
  const colour =
    flame.kind === "difference"
      ? change > 0
        ? theme.growth
        : change < 0
          ? theme.decrease
          : theme.other
      : box.node === 0
        ? theme.other
        : nameColour(frame?.file || frame?.function || "");
  const y = box.depth * ROW;
  context.globalAlpha = isDim ? 0.3 : 1;
  context.fillStyle = colour;
  context.fillRect(left, y, width > 2 ? width - 1 : width, ROW - 1);
  if (isFocus) {
    context.strokeStyle = theme.text;
    context.strokeRect(left + 0.5, y + 0.5, width - 2, ROW - 2);
  }
  if (width > 26) {
    context.fillStyle = readableOn(colour);
    context.textAlign = "left";
    const sign = flame.kind === "difference" ? (change > 0 ? "+ " : change < 0 ? "− " : "") : "";
    const name = box.node === 0 ? text("all_memory") : (frame?.function ?? "");
    const file = frame?.file ? `  ${shortPlace(frame)}` : "";
    context.font = font(12, 500);
    context.fillText(fitText(context, sign + name + file, width - 9), left + 4, y + ROW / 2);
    context.font = font();
  }
  context.globalAlpha = 1;
}

function place(frame: Frame | undefined): string {
  return placeText(frame?.file, frame?.line);
}

function shortPlace(frame: Frame | undefined): string {
  return placeText(frame?.file && baseName(frame.file), frame?.line);
}

/** The frames from this one outwards, innermost first. */
function stackOf(flame: Flame, node: number, isInverted: boolean): Frame[] {
  const frames: Frame[] = [];
  for (let current = node; current > 0; current = flame.parent[current]!) {
    const frame = flame.names[flame.name[current]!];
    if (frame) frames.push(frame);
  }
  return isInverted ? frames.reverse() : frames;
}

/** The stack that holds most by itself: where to look first. */
function heaviest(flame: Flame, isInverted: boolean): Frame[] {
  let best = 0;
  flame.self_bytes.forEach((own, node) => {
    if (Math.abs(own) > Math.abs(flame.self_bytes[best] ?? 0)) best = node;
  });
  return stackOf(flame, best, isInverted);
}

function FrameList({ flame, focus, onChoose }: { flame: Flame; focus: number; onChoose: (node: number) => void }) {
  const totals = useMemo(() => frameTotals(flame).slice(0, LISTED), [flame]);
  const show = flame.kind === "difference" ? bytesChange : bytes;
  return (
    <Panel title={text("flame_frames")} class="wide">
      <DataTable
        label={text("flame_frames")}
        isCompact
        columns={[
          { key: "own", title: text("flame_own"), isNumber: true, cell: (row) => show(row.own) },
          { key: "total", title: text("flame_total"), isNumber: true, cell: (row) => show(row.total) },
          { key: "blocks", title: text("facts_blocks"), isNumber: true, cell: (row) => count(row.blocks) },
          {
            key: "frame",
            title: text("flame_frame"),
            class: "name",
            cell: (row) => {
              const frame = flame.names[row.name];
              return (
                <>
                  {frame?.function} <span class="muted mono">{shortPlace(frame)}</span>
                </>
              );
            },
            hint: (row) => place(flame.names[row.name]),
          },
        ]}
        rows={totals}
        rowKey={(row) => row.name}
        onRow={(row) => onChoose(row.node)}
        isSelected={(row) => row.node === focus}
      />
    </Panel>
  );
}
