/** The appendix: places of the hypotheses of a beam search, by step and rank. */

import type { BeamNode, BeamTree } from "../../lib/contract";
import { real } from "../../lib/numbers";

export interface Placed {
  node: BeamNode;
  step: number;
  rank: number;
  /** on the path to the output */
  best: boolean;
}

/** The best hypotheses of each step: all that were kept, and the best of the pruned ones. */
export function placed(tree: BeamTree, rows: number): Placed[] {
  const nodes = new Map(tree.nodes.map((node) => [node.number, node]));
  const path = new Set<number>();
  for (let at: number | null = tree.outputs[0] ?? null; at !== null;) {
    path.add(at);
    at = nodes.get(at)?.parent ?? null;
  }
  const steps = [...new Set(tree.nodes.map((node) => node.step))].sort((a, b) => a - b);
  return steps.flatMap((step) => {
    const all = tree.nodes
      .filter((node) => node.step === step)
      .sort((a, b) => real(b.total) - real(a.total));
    const kept = all.filter((node) => node.status !== "pruned" || path.has(node.number));
    const rest = all.filter((node) => !kept.includes(node));
    return [...kept, ...rest]
      .slice(0, Math.max(rows, kept.length))
      .sort((a, b) => real(b.total) - real(a.total))
      .map((node, rank) => ({ node, step, rank, best: path.has(node.number) }));
  });
}
