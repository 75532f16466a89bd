// Where the frames of a flame graph go: each as wide as its share of the memory, below its caller.
import type { Flame } from "../source/answers";

export interface FlameBox {
  node: number;
  depth: number;
  /** Between 0 and 1. */
  left: number;
  width: number;
}

/** How much of a node is drawn: growth and decrease both take room in a comparison. */
export function weightOf(flame: Flame, node: number): number {
  return Math.abs(flame.bytes[node] ?? 0);
}

/** The boxes of `focus` and what is below it; its callers stand above it with the whole width. */
export function layoutFlame(flame: Flame, focus: number): FlameBox[] {
  const size = flame.parent.length;
  if (size === 0) return [];
  const root = focus > 0 && focus < size ? focus : 0;
  const callers: number[] = [];
  for (let node = flame.parent[root]!; node >= 0; node = flame.parent[node]!) callers.unshift(node);
  const boxes: FlameBox[] = callers.map((node, depth) => ({ node, depth, left: 0, width: 1 }));
  const children = childrenOf(flame);
  const place = (node: number, depth: number, left: number, width: number) => {
    boxes.push({ node, depth, left, width });
    const below = children[node]!;
    const weights = below.reduce((sum, child) => sum + weightOf(flame, child), 0);
    // In a comparison children may weigh more than their parent, whose changes cancel each other.
    const whole = Math.max(weights, weightOf(flame, node));
    let position = left;
    for (const child of below) {
      const share = whole > 0 ? (weightOf(flame, child) / whole) * width : 0;
      if (share > 0) place(child, depth + 1, position, share);
      position += share;
    }
  };
  place(root, callers.length, 0, 1);
  return boxes;
}

/** The node with the same callers in a newer graph of the same question; 0, the root, if there is none. */
export function sameNode(older: Flame, newer: Flame, node: number): number {
  const key = (flame: Flame, at: number) => {
    const frame = flame.names[flame.name[at]!];
    return frame ? `${frame.function}\n${frame.file}\n${frame.line}` : "";
  };
  const path: string[] = [];
  for (let at = node; at > 0 && at < older.parent.length; at = older.parent[at]!) path.unshift(key(older, at));
  const children = childrenOf(newer);
  let found = 0;
  for (const step of path) {
    const next = children[found]!.find((child) => key(newer, child) === step);
    if (next === undefined) return 0;
    found = next;
  }
  return found;
}

function childrenOf(flame: Flame): number[][] {
  const children: number[][] = flame.parent.map(() => []);
  flame.parent.forEach((parent, node) => {
    if (parent >= 0) children[parent]!.push(node);
  });
  return children;
}

/** The nodes whose frame matches, and the memory below the outermost of them, counted once. */
export function searchFlame(flame: Flame, search: string): { nodes: Set<number>; bytes: number } {
  const nodes = new Set<number>();
  const wanted = search.trim().toLowerCase();
  if (wanted === "") return { nodes, bytes: 0 };
  const matching = flame.names.map((name) =>
    `${name.function} ${name.file}:${name.line}`.toLowerCase().includes(wanted),
  );
  const covered: boolean[] = [];
  let bytes = 0;
  flame.name.forEach((name, node) => {
    const isBelowMatch = node > 0 && covered[flame.parent[node]!]!;
    covered[node] = isBelowMatch || matching[name]!;
    if (matching[name]) nodes.add(node);
    if (matching[name] && !isBelowMatch) bytes += flame.bytes[node]!;
  });
  return { nodes, bytes };
}

export interface FrameTotal {
  name: number;
  own: number;
  total: number;
  blocks: number;
  /** The largest node of this frame. */
  node: number;
}

/** The frames of the graph with all their memory, recursion counted once, by memory of their own. */
export function frameTotals(flame: Flame): FrameTotal[] {
  const totals = new Map<number, FrameTotal>();
  flame.name.forEach((name, node) => {
    if (node === 0) return;
    const total = totals.get(name) ?? { name, own: 0, total: 0, blocks: 0, node };
    totals.set(name, total);
    total.own += flame.self_bytes[node] ?? 0;
    for (let above = flame.parent[node]!; above >= 0; above = flame.parent[above]!) {
      if (flame.name[above] === name) return;
    }
    total.total += flame.bytes[node]!;
    total.blocks += flame.blocks[node] ?? 0;
    if (weightOf(flame, node) > weightOf(flame, total.node)) total.node = node;
  });
  return [...totals.values()].sort(
    (left, right) => Math.abs(right.own) - Math.abs(left.own) || Math.abs(right.total) - Math.abs(left.total),
  );
}
