/**
 * Where the hypotheses of a beam search are drawn, so that the tree fits the width: one column per
 * step if all columns fit, otherwise one row per step. Pruned hypotheses of a step are one chip
 * until the step is expanded.
 */

import type { BeamNode, BeamTree } from "./contract";

const GAP = { across: 26, down: 8 };
const NODE = { least: 78, most: 150, height: 40 };
const HEAD = 24; // height of the step's title
const SIDE = 42; // width of the step's title beside a row
const ROW_GAP = 26;

export interface BeamSpot {
  node: BeamNode;
  x: number;
  y: number;
}
/** A chip in place of the pruned hypotheses of a step, or the one that hides them again. */
export interface PrunedChip {
  step: number;
  count: number;
  open: boolean;
  x: number;
  y: number;
}

export interface BeamLayout {
  vertical: boolean;
  spots: BeamSpot[];
  chips: PrunedChip[];
  titles: { step: number; x: number; y: number }[];
  width: number;
  height: number;
  node: { width: number; height: number };
}

/** `expanded` are steps whose pruned hypotheses are shown; `selected` is always shown. */
export function beamLayout(
  tree: BeamTree,
  available: number,
  expanded: (step: number) => boolean,
  selected: number,
): BeamLayout {
  const steps: { shown: BeamNode[]; pruned: number; open: boolean }[] = [];
  for (const node of tree.nodes) {
    const step = (steps[node.step] ??= { shown: [], pruned: 0, open: expanded(node.step) });
    if (node.status === "pruned") step.pruned++;
    if (node.status !== "pruned" || step.open || node.number === selected) step.shown.push(node);
  }
  const cells = (step: (typeof steps)[number]): number =>
    step.shown.length + (step.pruned > 0 ? 1 : 0);
  const most = Math.max(1, ...steps.map(cells));
  const columnWidth = Math.floor((available + GAP.across) / steps.length) - GAP.across;
  const vertical = columnWidth < NODE.least;
  // Of a wide row, cells continue on the next line, so that nothing is wider than the page.
  const fits = (size: number): number =>
    Math.floor((available - SIDE + GAP.down) / (size + GAP.down));
  const perLine = Math.max(1, Math.min(most, Math.max(fits(120), Math.min(5, fits(NODE.least)))));
  const width = Math.max(
    40,
    Math.min(
      NODE.most,
      vertical ? Math.floor((available - SIDE + GAP.down) / perLine) - GAP.down : columnWidth,
    ),
  );
  const spots: BeamSpot[] = [];
  const chips: PrunedChip[] = [];
  const titles: BeamLayout["titles"] = [];
  let top = 0;
  let bottom = 0;
  steps.forEach((step, at) => {
    const place = (k: number): { x: number; y: number } =>
      vertical
        ? {
            x: SIDE + (k % perLine) * (width + GAP.down),
            y: top + Math.floor(k / perLine) * (NODE.height + GAP.down),
          }
        : { x: at * (width + GAP.across), y: HEAD + k * (NODE.height + GAP.down) };
    titles.push({ step: at, x: vertical ? 0 : at * (width + GAP.across), y: vertical ? top : 0 });
    step.shown.forEach((node, k) => spots.push({ node, ...place(k) }));
    if (step.pruned)
      chips.push({
        step: at,
        count: step.pruned,
        open: step.open,
        ...place(step.shown.length),
      });
    const lines = vertical ? Math.ceil(cells(step) / perLine) : cells(step);
    const tall = lines * (NODE.height + GAP.down);
    if (vertical) top += tall + ROW_GAP;
    bottom = Math.max(bottom, vertical ? top - ROW_GAP : HEAD + tall);
  });
  const used = vertical
    ? SIDE + Math.min(most, perLine) * (width + GAP.down) - GAP.down
    : steps.length * (width + GAP.across) - GAP.across;
  return {
    vertical,
    spots,
    chips,
    titles,
    width: used,
    height: bottom,
    node: { width, height: NODE.height },
  };
}

/** The curve from a hypothesis to its continuation. */
export function beamCurve({ vertical, node }: BeamLayout, from: BeamSpot, to: BeamSpot): string {
  if (vertical) {
    const [a, b] = [from.x + node.width / 2, from.y + node.height];
    const [c, d] = [to.x + node.width / 2, to.y];
    const bend = Math.min(ROW_GAP, (d - b) / 2);
    return `M${a} ${b}C${a} ${b + bend} ${c} ${d - bend} ${c} ${d}`;
  }
  const [a, b] = [from.x + node.width, from.y + node.height / 2];
  const [c, d] = [to.x, to.y + node.height / 2];
  return `M${a} ${b}C${a + GAP.across / 2} ${b} ${c - GAP.across / 2} ${d} ${c} ${d}`;
}
