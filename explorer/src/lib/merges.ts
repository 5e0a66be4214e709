/** The merges of a word as a tree and as steps, and the arithmetic of a rank. */

import type { Explanation } from "./contract";
import { constant } from "./derived";
import { pieceText } from "./labels";
import type { SegmentedWord } from "./views-contract";
import { mergeTexts as t } from "./texts.views.en";

/** A symbol of the tree: columns [start, end) of the word's first symbols, and its level. */
export interface MergeNode {
  text: string;
  start: number;
  end: number;
  level: number;
  /** the step that made it, from 1, and the rank of its pair; 0 and −1 for a first symbol */
  step: number;
  rank: number;
  /** it is not merged further */
  token: boolean;
}

interface Symbol {
  name: string;
  text: string;
  node: number;
}

/** The symbols after each step; the first entry is the word before any merge. */
export function stepsOf(word: SegmentedWord): { symbols: Symbol[]; at: number; rank: number }[] {
  return build(word).steps;
}
export const nodesOf = (word: SegmentedWord): MergeNode[] => build(word).nodes;

function build(word: SegmentedWord): {
  nodes: MergeNode[];
  steps: { symbols: Symbol[]; at: number; rank: number }[];
} {
  const nodes: MergeNode[] = word.symbols.map(([, text], k) => ({
    text: pieceText(text),
    start: k,
    end: k + 1,
    level: 0,
    step: 0,
    rank: -1,
    token: true,
  }));
  let symbols: Symbol[] = word.symbols.map(([name, text], node) => ({ name, text, node }));
  const steps = [{ symbols, at: -1, rank: -1 }];
  word.merges.forEach(([rank, at, name, text], k) => {
    const [left, right] = [symbols[at]!, symbols[at + 1]!];
    const [a, b] = [nodes[left.node]!, nodes[right.node]!];
    a.token = b.token = false;
    nodes.push({
      text: pieceText(text),
      start: a.start,
      end: b.end,
      level: 1 + Math.max(a.level, b.level),
      step: k + 1,
      rank,
      token: true,
    });
    const joined = { name, text, node: nodes.length - 1 };
    symbols = [...symbols.slice(0, at), joined, ...symbols.slice(at + 2)];
    steps.push({ symbols, at, rank });
  });
  return { nodes, steps };
}

/** Why a pair was merged at a step: of all neighbours it had the lowest rank. */
export function explainRank(word: SegmentedWord, step: number): Explanation {
  const steps = stepsOf(word);
  const [before, made] = [steps[step - 1]!, steps[step]!];
  const ranks = new Map(word.ranks.map(([left, right, rank]) => [`${left}\0${right}`, rank]));
  const rows = before.symbols.slice(0, -1).map((left, k) => {
    const right = before.symbols[k + 1]!;
    const rank = ranks.get(`${left.name}\0${right.name}`) ?? Infinity;
    const value = Number.isFinite(rank) ? rank : ("inf" as const);
    return {
      operands: [constant(t.none(pieceText(left.text), pieceText(right.text)), value)],
      numbers: [value],
      running: null,
      here: k === made.at,
    };
  });
  const lowest = Math.min(
    ...rows.map(({ numbers: [rank] }) => (rank === "inf" ? Infinity : Number(rank))),
  );
  const pair = [before.symbols[made.at]!, before.symbols[made.at + 1]!];
  return {
    name: t.rankOf(pieceText(pair[0]!.text), pieceText(pair[1]!.text)),
    index: [],
    place: t.place(pieceText(word.text), step),
    operation: t.operation,
    formula: "min over neighbours of rank(left, right)",
    paper: "Sennrich et al. 2016",
    columns: [t.rank],
    rows,
    steps: [{ label: t.lowest, value: lowest, operand: null }],
    result: lowest,
    value: made.rank,
    difference: Math.abs(lowest - made.rank),
  };
}
