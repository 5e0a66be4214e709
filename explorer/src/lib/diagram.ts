/** The architecture as a diagram: columns of blocks, and arrows from the tensors' inputs. */

import type { Block, Graph, Trace } from "./contract";

export interface Edge {
  from: string;
  to: string;
  /** to the next block, from encoder to decoder, past some blocks, or to the next step */
  kind: "next" | "memory" | "skip" | "recurrent";
}

/** One layer of a column, or a block outside the layers. */
export interface Group {
  layer: number | null;
  blocks: Block[];
}

const onLeft = (block: Block): boolean => block.stack === "source" || block.stack === "encoder";

/** The two columns in order of computation; the embedding comes first. */
export function columnsOf(graph: Graph): { left: Block[]; right: Block[] } {
  const first = (block: Block): number => (block.kind === "embedding" ? 0 : 1);
  const sorted = (blocks: Block[]): Block[] => [...blocks].sort((a, b) => first(a) - first(b));
  return {
    left: sorted(graph.blocks.filter(onLeft)),
    right: sorted(graph.blocks.filter((block) => !onLeft(block))),
  };
}

/** Groups adjacent blocks of one layer; blocks outside the layers stay alone. */
export function groupsOf(blocks: Block[], depth: boolean): Group[] {
  const groups: Group[] = [];
  for (const block of blocks) {
    const last = groups[groups.length - 1];
    if (depth && block.layer !== null && last && last.layer === block.layer)
      last.blocks.push(block);
    else groups.push({ layer: depth ? block.layer : null, blocks: [block] });
  }
  return groups;
}

/** The edges between blocks, from the inputs of every tensor. */
export function edgesOf(graph: Graph, trace: Trace): Edge[] {
  const { left, right } = columnsOf(graph);
  const owner = new Map(
    graph.blocks.flatMap((block) => block.names.map((name) => [name, block.id] as const)),
  );
  const place = new Map([
    ...left.map((block, at) => [block.id, at] as const),
    ...right.map((block, at) => [block.id, at] as const),
  ]);
  const isLeft = new Set(left.map((block) => block.id));
  const edges = new Map<string, Edge>();
  for (const tensor of trace.tensors) {
    const to = owner.get(tensor.name);
    for (const input of tensor.inputs) {
      const from = owner.get(input);
      if (!from || !to || from === to) continue;
      const step = place.get(to)! - place.get(from)!;
      const kind =
        isLeft.has(from) !== isLeft.has(to)
          ? "memory"
          : step < 0
            ? "recurrent"
            : step === 1
              ? "next"
              : "skip";
      edges.set(`${from} ${to}`, { from, to, kind });
    }
  }
  return [...edges.values()];
}

/** The blocks that read a parameter: a shared one is counted once. */
export function readers(graph: Graph, parameter: string): string[] {
  return graph.blocks
    .filter((block) => block.parameters.some((one) => one.name === parameter))
    .map((block) => block.id);
}
