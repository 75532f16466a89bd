// Owners: who holds the memory in use at the cursor, as a treemap to see and a tree of rows to read.
import { useCallback, useMemo, useState } from "preact/hooks";
import { fitText, font, Surface, useRoom, type Pen, type Point } from "../canvas/surface";
import { momentText } from "../canvas/time";
import { squarify, type Rectangle } from "../canvas/treemap";
import { Panel } from "../components/controls";
import { Minimap } from "../components/minimap";
import { Answered, Empty, NoMemory, withCommands } from "../components/states";
import { AtPointer } from "../components/tooltip";
import { filterOf, placeOf, useAnswer, usePage } from "../page";
import { useOwnerColours } from "../palette";
import type { OwnerNode } from "../source/answers";
import { blocksText, text } from "../texts";
import { readableOn } from "../theme";
import { bytes, count, percent } from "../units";

/** Room for everything above and below the treemap. */
const AROUND = 390;
const LOWEST = 360;
const HEADER = 20;
const DEEPEST = 4;

interface Tile extends Rectangle {
  node: OwnerNode;
  depth: number;
  isLeaf: boolean;
}

export function OwnersView() {
  const page = usePage();
  const { state } = page;
  const reply = useAnswer(
    "owners",
    page.pool ? { ...placeOf(page), ...filterOf({ ...state, owner: "" }), t: page.cursor } : null,
  );
  if (!page.pool) return <NoMemory />;
  return (
    <Answered reply={reply}>
      {(answer) =>
        answer.total_bytes === 0 ? (
          <>
            <Empty>{text("owners_empty")}</Empty>
            <Minimap />
          </>
        ) : (
          <OwnerCharts tree={answer.tree} total={answer.total_bytes} t={page.source.live ? page.cursor : answer.t} />
        )
      }
    </Answered>
  );
}

function OwnerCharts({ tree, total, t }: { tree: OwnerNode; total: number; t: number }) {
  const page = usePage();
  const { state, store } = page;
  const path = useMemo(() => pathTo(tree, state.owner), [tree, state.owner]);
  const root = path[path.length - 1]!;
  return (
    <>
      <div class="heading">
        <h3 data-figure="total">{bytes(total)}</h3>
        <span class="muted">{text("owners_text", bytes(total), momentText(page, t))}</span>
      </div>
      <div class="columns">
        <Panel>
          <nav class="crumbs" aria-label={text("owner")}>
            {path.map((node, depth) => (
              <>
                {depth > 0 && <span class="muted">›</span>}
                <button type="button" class="link" onClick={() => store.set({ owner: node.owner })}>
                  {node.name || text("all_memory")}
                </button>
              </>
            ))}
          </nav>
          <Treemap root={root} onChoose={(owner) => store.set({ owner })} />
          <div class="wide">
            <Minimap />
          </div>
          {tree.children.length === 1 && tree.children[0]!.children.length === 0 && (
            <p class="muted wide">{withCommands(text("owners_hint"))}</p>
          )}
        </Panel>
        <aside>
          <OwnerTable tree={tree} total={total} />
        </aside>
      </div>
    </>
  );
}

/** The nodes from the root to an owner; only the root if it holds nothing at this moment. */
function pathTo(tree: OwnerNode, owner: string): OwnerNode[] {
  const path = [tree];
  if (owner === "") return path;
  for (let node: OwnerNode | undefined = tree; node;) {
    node = node.children.find((child) => owner === child.owner || owner.startsWith(child.owner + "@"));
    if (node) path.push(node);
  }
  return path;
}

function tilesOf(root: OwnerNode, area: Rectangle): Tile[] {
  const tiles: Tile[] = [];
  const place = (node: OwnerNode, box: Rectangle, depth: number) => {
    const children = node.children.filter((child) => child.bytes > 0);
    const isLeaf = children.length === 0 || depth >= DEEPEST || box.width < 40 || box.height < 40;
    if (depth > 0) tiles.push({ ...box, node, depth, isLeaf });
    if (isLeaf) return;
    const own =
      node.self_bytes > 0 ? [{ ...node, name: text("owner_itself"), bytes: node.self_bytes, children: [] }] : [];
    const parts = [...children, ...own].sort((left, right) => right.bytes - left.bytes);
    const inner =
      depth > 0 ? { x: box.x + 3, y: box.y + HEADER, width: box.width - 6, height: box.height - HEADER - 3 } : box;
    const boxes = squarify(
      parts.map((part) => part.bytes),
      inner,
    );
    parts.forEach((part, index) => place(part, boxes[index]!, depth + 1));
  };
  place(root, area, root.children.length === 0 ? 1 : 0);
  return tiles;
}

function Treemap({ root, onChoose }: { root: OwnerNode; onChoose: (owner: string) => void }) {
  const { appearance } = usePage();
  const [width, setWidth] = useState(0);
  const height = useRoom(AROUND, LOWEST);
  const [hover, setHover] = useState<Point | null>(null);
  const ownerColour = useOwnerColours();
  const tiles = useMemo(() => tilesOf(root, { x: 0, y: 0, width, height }), [root, width, height, appearance]);
  const draw = useCallback(
    (pen: Pen) => {
      for (const tile of tiles) drawTile(pen, tile, ownerColour(tile.node.owner));
    },
    [tiles, ownerColour, appearance],
  );
  const at = (point: Point) =>
    [...tiles]
      .reverse()
      .find(
        (tile) =>
          point.x >= tile.x && point.x < tile.x + tile.width && point.y >= tile.y && point.y < tile.y + tile.height,
      );
  const hit = hover ? at(hover) : undefined;
  return (
    <>
      <Surface
        height={height}
        label={text("chart_owners")}
        draw={draw}
        onWidth={setWidth}
        onHover={setHover}
        onClick={(point) => {
          const tile = at(point);
          if (tile) onChoose(tile.node.owner);
        }}
        cursor="pointer"
      />
      {hit && (
        <AtPointer>
          <b>{hit.node.owner || text("all_memory")}</b>
          <div>
            {bytes(hit.node.bytes)} ({percent(hit.node.bytes, root.bytes)}),{" "}
            {blocksText(hit.node.blocks, count(hit.node.blocks))}
          </div>
        </AtPointer>
      )}
    </>
  );
}

function drawTile(pen: Pen, tile: Tile, colour: string): void {
  const { context, theme } = pen;
  context.fillStyle = tile.isLeaf ? colour : theme.background;
  context.fillRect(tile.x, tile.y, tile.width, tile.height);
  context.strokeStyle = theme.surface;
  context.lineWidth = 2;
  context.strokeRect(tile.x, tile.y, tile.width, tile.height);
  context.lineWidth = 1;
  if (!tile.isLeaf) {
    context.strokeStyle = theme.line;
    context.strokeRect(tile.x + 1.5, tile.y + 1.5, tile.width - 3, tile.height - 3);
  }
  if (tile.height < 16) return;
  context.textAlign = "left";
  context.fillStyle = tile.isLeaf ? readableOn(colour) : theme.text;
  context.font = font(12, 600);
  const room = tile.width - 14;
  const isTwoLines = tile.isLeaf && tile.height > 40;
  const label = isTwoLines ? tile.node.name : `${tile.node.name}  ${bytes(tile.node.bytes)}`;
  context.fillText(fitText(context, label, room), tile.x + 7, tile.y + 12);
  context.font = font(12);
  if (isTwoLines) context.fillText(fitText(context, bytes(tile.node.bytes), room), tile.x + 7, tile.y + 29);
}

function OwnerTable({ tree, total }: { tree: OwnerNode; total: number }) {
  const { state, store } = usePage();
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const rows: { node: OwnerNode; depth: number }[] = [];
  const collect = (node: OwnerNode, depth: number) => {
    for (const child of [...node.children].sort((left, right) => right.bytes - left.bytes)) {
      rows.push({ node: child, depth });
      if (!closed.has(child.owner)) collect(child, depth + 1);
    }
  };
  collect(tree, 0);
  const toggle = (owner: string) => {
    const next = new Set(closed);
    if (!next.delete(owner)) next.add(owner);
    setClosed(next);
  };
  return (
    <Panel>
      <table class="compact" aria-label={text("owners")}>
        <thead>
          <tr>
            <th scope="col">{text("owner")}</th>
            <th scope="col" class="number">
              {text("bytes")}
            </th>
            <th scope="col" class="number">
              {text("share")}
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ node, depth }) => (
            <tr
              key={node.owner}
              aria-selected={node.owner === state.owner ? "true" : undefined}
              data-owner={node.owner}
            >
              <td class="name" style={{ paddingLeft: `${4 + depth * 14}px` }} title={node.owner}>
                {node.children.length > 0 ? (
                  <button
                    type="button"
                    class="tree-toggle"
                    aria-expanded={!closed.has(node.owner)}
                    aria-label={text("expand", node.name)}
                    onClick={() => toggle(node.owner)}
                  >
                    {closed.has(node.owner) ? "▸" : "▾"}
                  </button>
                ) : (
                  <span class="tree-toggle" />
                )}
                <button type="button" class="link" onClick={() => store.set({ owner: node.owner })}>
                  {node.name}
                </button>
              </td>
              <td class="number">{bytes(node.bytes)}</td>
              <td class="number">{percent(node.bytes, total)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}
