/** The tree of a beam search: layout, paths, status texts and drawing. */

import type { BeamNode, BeamTree } from "./contract";
import type { Drawing, Mark } from "./drawing";
import { pieceText } from "./labels";
import { real, short } from "./numbers";
import { texts } from "./texts";

const NODE = { width: 136, height: 40, across: 40, down: 8, top: 26 };

export interface Spot {
  node: BeamNode;
  x: number;
  y: number;
}

/** One column per step, the best hypothesis on top. */
export function layout(
  tree: BeamTree,
  expanded: (step: number) => boolean,
): { spots: Spot[]; width: number; height: number; steps: number } {
  const rows: number[] = [];
  const spots = tree.nodes
    .filter((node) => expanded(node.step) || node.status !== "pruned")
    .map((node) => {
      const row = (rows[node.step] = (rows[node.step] ?? -1) + 1);
      return {
        node,
        x: node.step * (NODE.width + NODE.across),
        y: NODE.top + row * (NODE.height + NODE.down),
      };
    });
  const most = Math.max(...rows.map((row) => row + 1), 1);
  const width = rows.length * (NODE.width + NODE.across) - NODE.across;
  return { spots, width, height: NODE.top + most * (NODE.height + NODE.down), steps: rows.length };
}

/** The nodes from the first token to this one. */
export function pathOf(tree: BeamTree, number: number): BeamNode[] {
  const path: BeamNode[] = [];
  for (let at: number | null = number; at !== null; at = path[0]!.parent) {
    const node: BeamNode | undefined = tree.nodes[at];
    if (!node) return [];
    path.unshift(node);
  }
  return path;
}
export const childrenOf = (tree: BeamTree, number: number | null): BeamNode[] =>
  tree.nodes.filter((node) => node.parent === number);
export const textOf = (tree: BeamTree, number: number): string =>
  pathOf(tree, number)
    .map((node) => pieceText(node.text))
    .join(" ");

/** Tokens to force so that greedy search follows this path: all but the most probable ones. */
export const forcedOf = (tree: BeamTree, number: number): { step: number; token: number }[] =>
  pathOf(tree, number)
    .filter((node) => childrenOf(tree, node.parent)[0]?.number !== node.number)
    .map((node) => ({ step: node.step, token: node.id }));

const linkOf = (from: Spot, to: Spot): [number, number][] => [
  [from.x + NODE.width, from.y + NODE.height / 2],
  [to.x, to.y + NODE.height / 2],
];
/** The status of a node as text. */
export function statusOf(tree: BeamTree, node: BeamNode): string {
  const t = texts.decode;
  const place = tree.outputs.indexOf(node.number);
  if (node.status === "finished") return place < 0 ? t.statuses.finished! : t.output(place + 1);
  if (node.status === "pruned" && node.pruned_by !== null)
    return t.prunedBy(short(real(node.margin)), textOf(tree, node.pruned_by));
  return t.statuses[node.status] ?? node.status;
}

const COLOURS: Record<BeamNode["status"], string> = {
  expanded: "var(--line-strong)",
  finished: "var(--accent)",
  pruned: "var(--line)",
  stopped: "var(--line-strong)",
};

export function drawingOf(
  tree: BeamTree,
  expanded: (step: number) => boolean,
  title: string,
): Drawing {
  const { spots, width, height, steps } = layout(tree, expanded);
  const at = new Map(spots.map((spot) => [spot.node.number, spot]));
  const [left, top] = [16, 40];
  const marks: Mark[] = [
    { kind: "text", x: left, y: 24, text: title, colour: "var(--ink)", size: 14, bold: true },
  ];
  for (let step = 0; step < steps; step++)
    marks.push({
      kind: "text",
      x: left + step * (NODE.width + NODE.across),
      y: top + 14,
      text: texts.decode.step(step),
      colour: "var(--soft)",
      size: 11,
    });
  for (const spot of spots) {
    const from = spot.node.parent === null ? null : at.get(spot.node.parent);
    const pruned = spot.node.status === "pruned";
    if (from)
      marks.push({
        kind: "line",
        points: linkOf(from, spot).map(([x, y]) => [x + left, y + top] as [number, number]),
        colour: pruned ? "var(--line)" : "var(--line-strong)",
        dashed: pruned,
      });
  }
  for (const { node, x, y } of spots) {
    const ink = node.status === "pruned" ? "var(--soft)" : "var(--ink)";
    marks.push({
      kind: "rect",
      x: x + left,
      y: y + top,
      width: NODE.width,
      height: NODE.height,
      fill: "var(--panel)",
      stroke: COLOURS[node.status],
      round: 6,
    });
    marks.push({
      kind: "text",
      x: x + left + 8,
      y: y + top + 16,
      text: pieceText(node.text),
      colour: ink,
      bold: node.status !== "pruned",
    });
    marks.push({
      kind: "text",
      x: x + left + 8,
      y: y + top + 32,
      text: `${short(real(node.total))} · ${texts.decode.short[node.status] ?? ""}`,
      colour: "var(--soft)",
      size: 11,
    });
  }
  return { width: width + 2 * left, height: height + top + 8, background: "var(--panel)", marks };
}
