/** One row of attention as a flow of numbers: its stages, its vectors, and its largest weights. */

import type { Explanation, Operand } from "./contract";
import { explainSum, step, tensorAt } from "./explanation";
import { texts } from "./texts";
import { headTexts } from "./texts.heads.en";

const STAGES = ["dots", "scores", "energy", "bias", "biased", "masked", "tempered", "weights"];

export interface Stage {
  suffix: string;
  /** the tensor and the leading indices of the row */
  name: string;
  lead: number[];
  numbers: number[];
}

export interface FlowVector {
  label: string;
  symbol: string;
  numbers: ArrayLike<number>;
  /** how a dimension is explained */
  open: (dimension: number) => { name: string; index: number[] } | Explanation;
}

export type PartOf = (suffix: string) => {
  data: Float32Array;
  offset: number;
  rows: number;
  cols: number;
  lead: number[];
} | null;

/** The numbers of a row of a matrix. */
export function rowOf(part: NonNullable<ReturnType<PartOf>>, row: number): Float32Array {
  const start = part.offset + row * part.cols;
  return part.data.subarray(start, start + part.cols);
}

/** The stages of a row. One that changes no number of the matrix, such as no mask, is left out. */
export function stagesOf(attention: string, part: PartOf, query: number): Stage[] {
  const found: Stage[] = [];
  let before: NonNullable<ReturnType<PartOf>> | null = null;
  for (const suffix of STAGES) {
    const now = part(suffix);
    if (!now) continue;
    if (suffix !== "weights" && before && sameMatrix(before, now)) continue;
    if (suffix !== "bias") before = now;
    const lead = [...now.lead, query];
    const numbers = Array.from(rowOf(now, query));
    found.push({ suffix, name: `${attention}.${suffix}`, lead, numbers });
  }
  return found;
}

function sameMatrix(
  a: NonNullable<ReturnType<PartOf>>,
  b: NonNullable<ReturnType<PartOf>>,
): boolean {
  if (a.rows !== b.rows || a.cols !== b.cols) return false;
  for (let k = 0; k < a.rows * a.cols; k++)
    if (a.data[a.offset + k] !== b.data[b.offset + k]) return false;
  return true;
}

/** The first tensor of a list that the attention has: rotated vectors before plain ones. */
export const firstOf = (part: PartOf, suffixes: string[]): string | null =>
  suffixes.find((suffix) => part(suffix)) ?? null;
export const QUERIES = ["q.rotated", "q", "mapped", "query"];
export const KEYS = ["k.rotated", "k", "key"];
export const VALUES = ["v", "value"];

/** The positions of the largest weights in the order of the text, and those of the others. */
export function largest(weights: ArrayLike<number>, most: number): [number[], number[]] {
  const order = Array.from(weights, (_, at) => at);
  if (order.length <= most + 2) return [order, []];
  const bySize = [...order].sort((a, b) => weights[b]! - weights[a]! || a - b);
  const ascending = (a: number, b: number): number => a - b;
  return [bySize.slice(0, most).sort(ascending), bySize.slice(most).sort(ascending)];
}

/** tanh(q[d] + k[d]): what additive attention weighs with v. */
export const tanhOf = (query: Operand, key: Operand): Explanation =>
  explainSum({
    name: headTexts.derived.tanh,
    index: query.index.slice(-1),
    place: `${query.name} + ${key.name}`,
    operation: "tanh",
    formula: "tanh(q + k)",
    columns: [texts.derived.term],
    terms: [[query], [key]],
    numbers: (values) => values,
    finish: (sum) => ({ result: Math.tanh(sum), steps: [step("q + k", sum)] }),
  });

/** The vector of a token in a tensor, as numbers that open their explanation. */
export function vectorOf(
  attention: string,
  part: PartOf,
  suffix: string | null,
  row: number,
  label: string,
  symbol: string,
): FlowVector | null {
  const matrix = suffix ? part(suffix) : null;
  if (!matrix || row >= matrix.rows) return null;
  return {
    label,
    symbol: suffix!.endsWith(".rotated") ? `${symbol}′` : symbol,
    numbers: rowOf(matrix, row),
    open: (dimension) => ({
      name: `${attention}.${suffix}`,
      index: [...matrix.lead, row, dimension],
    }),
  };
}

/** tanh(q + k) of a pair as a vector. */
export function tanhVector(query: FlowVector, key: FlowVector, label: string): FlowVector {
  const operand = (vector: FlowVector, dimension: number): Operand => {
    const { name, index } = vector.open(dimension) as { name: string; index: number[] };
    return tensorAt(name, index, vector.numbers[dimension]!);
  };
  return {
    label,
    symbol: "tanh(q + k)",
    numbers: Array.from(query.numbers, (q, d) => Math.tanh(q + key.numbers[d]!)),
    open: (dimension) => tanhOf(operand(query, dimension), operand(key, dimension)),
  };
}
