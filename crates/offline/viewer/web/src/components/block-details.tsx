// The life of one block: where and when it was allocated, by whom, what touched it and what lies beside it.
import { shortAddress } from "../names";
import { useAnswer, usePage, type Page } from "../page";
import type { BlockFacts, Neighbour } from "../source/answers";
import { text, textOr } from "../texts";
import { bytes, count, moment, span } from "../units";
import { Panel, Place } from "./controls";
import { Frames } from "./frames";
import { Answered } from "./states";

export function BlockDetails() {
  const page = usePage();
  const { block } = page.state;
  const reply = useAnswer("block", block === null ? null : { r: page.recording.r, block });
  if (block === null) {
    return (
      <Panel>
        <p class="muted">{text("block_none")}</p>
      </Panel>
    );
  }
  return <Answered reply={reply}>{(answer) => <Life page={page} block={answer} />}</Answered>;
}

function Life({ page, block }: { page: Page; block: BlockFacts }) {
  const time = (t: number) => moment(t - page.recording.t0, 100);
  const end = block.end ?? page.recording.t1;
  return (
    <Panel>
      <div class="heading">
        <h3>{text("block_title", block.block)}</h3>
        <span class="spacer" />
        <button type="button" class="plain" onClick={() => page.store.set({ block: null })}>
          {text("close")}
        </button>
      </div>
      <Tags block={block} />
      <dl class="facts">
        <dt>{text("block_size")}</dt>
        <dd>
          {bytes(block.bytes)} <span class="muted">({count(block.bytes)} B)</span>
        </dd>
        <dt>{text("block_address")}</dt>
        <dd class="mono">{shortAddress(block.address)}</dd>
        <dt>{text("block_allocated")}</dt>
        <dd>
          <Moment page={page} t={block.start} label={time(block.start)} />
          {Boolean(block.step) && `, ${text("block_step", block.step)}`}
        </dd>
        <dt>{text("block_freed")}</dt>
        <dd>
          {block.end === null ? (
            text("block_never_freed")
          ) : (
            <>
              <Moment page={page} t={block.end} label={time(block.end)} />
              {block.end_step ? `, ${text("block_step", block.end_step)}` : ""}
            </>
          )}
        </dd>
        <dt>{text("block_lifetime")}</dt>
        <dd>{span(end - block.start)}</dd>
        <dt>{text("owner")}</dt>
        <dd>
          <button
            type="button"
            class="link"
            title={text("filter_by_owner")}
            onClick={() => page.store.set({ owner: block.owner })}
          >
            {block.owner || "-"}
          </button>
        </dd>
        {block.operator && (
          <>
            <dt>{text("block_operator")}</dt>
            <dd>{block.operator}</dd>
          </>
        )}
        <dt>{text("block_line")}</dt>
        <dd class="mono">{block.line || "-"}</dd>
        <dt>{text("thread")}</dt>
        <dd>{block.thread}</dd>
      </dl>
      <div class="toolbar wide">
        {page.state.view !== "blocks" && (
          <button type="button" onClick={() => page.store.set(mapAround(page, block))}>
            {text("block_show_map")}
          </button>
        )}
        <button
          type="button"
          onClick={() =>
            page.store.set({ view: "table", table: "blocks", site: String(block.site), alive: "any", offset: 0 })
          }
        >
          {text("block_show_line")}
        </button>
      </div>
      <h3>{text("block_stack")}</h3>
      {block.stack.length > 0 ? <Frames frames={block.stack} /> : <p class="muted">{text("block_no_stack")}</p>}
      {block.native.length > 0 && block.native.length !== block.stack.length && (
        <details>
          <summary>{text("block_native")}</summary>
          <Frames frames={block.native} />
        </details>
      )}
      <Accesses page={page} block={block} />
      <Neighbours page={page} block={block} />
    </Panel>
  );
}

/** The window around the life of a block, with some of the time before and after. */
function mapAround(page: Page, block: BlockFacts) {
  const end = block.end ?? page.recording.t1;
  const margin = Math.max(1, (end - block.start) * 0.5);
  const t0 = Math.max(page.recording.t0, Math.round(block.start - margin));
  const t1 = Math.min(page.recording.t1, Math.round(end + margin));
  return {
    view: "blocks" as const,
    device: block.device,
    pool: block.pool,
    t0,
    t1,
    t: block.start,
    y0: null,
    y1: null,
    block: block.block,
  };
}

function Moment({ page, t, label }: { page: Page; t: number; label: string }) {
  return (
    <button type="button" class="link" onClick={() => page.store.set({ t })}>
      {label}
    </button>
  );
}

function Tags({ block }: { block: BlockFacts }) {
  const tags = block.inefficient.map((kind) => textOr(`ineff_${kind}`, kind));
  if (block.before_recording) tags.push(text("block_before"));
  if (tags.length === 0 && !block.leaked) return null;
  return (
    <p class="tags">
      {block.leaked && <span class="error">{text("block_leaked")}</span>}
      {tags.map((tag) => (
        <span key={tag}>{tag}</span>
      ))}
    </p>
  );
}

function Accesses({ page, block }: { page: Page; block: BlockFacts }) {
  if (block.accesses_total === 0) return <p class="muted wide">{text("block_no_accesses")}</p>;
  return (
    <details class="wide" open={block.accesses.length <= 12}>
      <summary>
        {text("block_accesses", count(block.accesses_total))}
        {block.accesses_total > block.accesses.length && ` (${text("block_first_of", block.accesses.length)})`}
      </summary>
      <table class="compact">
        <tbody>
          {block.accesses.map((access, index) => (
            <tr key={index}>
              <td class="number">
                <Moment page={page} t={access.t} label={moment(access.t - page.recording.t0, 100)} />
              </td>
              <td>{access.kind}</td>
              <td class="name" title={access.operator}>
                {access.operator}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

function Neighbours({ page, block }: { page: Page; block: BlockFacts }) {
  const places: [string, Neighbour | null][] = [
    [text("block_above"), block.above],
    [text("block_below"), block.below],
    [text("block_previous"), block.previous],
    [text("block_next"), block.next],
  ];
  const known = places.filter((place): place is [string, Neighbour] => place[1] !== null);
  if (known.length === 0) return null;
  return (
    <div class="wide">
      <h3>{text("block_neighbours")}</h3>
      <table class="compact">
        <tbody>
          {known.map(([title, neighbour]) => (
            <tr key={title}>
              <td>{title}</td>
              <td>
                <button type="button" class="link" onClick={() => page.store.set({ block: neighbour.block })}>
                  {text("block_title", neighbour.block)}
                </button>
              </td>
              <td class="number">{bytes(neighbour.bytes)}</td>
              <td class="name" title={`${neighbour.owner} ${neighbour.line}`}>
                <Place line={neighbour.line || neighbour.owner} class="" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
