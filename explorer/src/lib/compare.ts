/** Comparing two traces: their common tensors, a matrix of each, and the difference. */

import type { AttentionInfo, HeadStats, Model, Trace } from "./contract";
import { slice, type Tensor } from "./safetensors";

export interface Grid {
  data: Float32Array;
  rows: number;
  cols: number;
}

/** Tensors that both traces have with the same axes; scalars are left out. */
export function comparable(one: Trace, other: Trace): string[] {
  const axes = new Map(other.tensors.map((tensor) => [tensor.name, tensor.axes.join()]));
  return one.tensors
    .filter((tensor) => tensor.axes.length && axes.get(tensor.name) === tensor.axes.join())
    .map((tensor) => tensor.name);
}

/** A model of another family that reads and writes the same tokens. */
export const counterpartOf = (model: Model | null, models: Model[]): Model | null =>
  models.find(
    (one) => model && one.family !== model.family && one.tokenizers === model.tokenizers,
  ) ?? null;

export const hasAlignment = (trace: Trace): boolean =>
  trace.attentions.some((one) => one.kind === "cross");

/** A head as `attention.head`, and the attention and the number of such an id. */
export const headId = (attention: string, head: number): string => `${attention}.${head}`;
export function headOf(
  trace: Trace,
  id: string,
): { attention: AttentionInfo; head: number } | null {
  const at = id.lastIndexOf(".");
  const head = Number(id.slice(at + 1));
  const attention = trace.attentions.find((one) => one.name === id.slice(0, at));
  return attention && head < attention.heads ? { attention, head } : null;
}

/** The most focused head of the cross-attention: the one that most resembles an alignment. */
export function focusedHead(heads: HeadStats[]): string {
  const crosses = heads.filter((one) => one.kind === "cross");
  const [best] = (crosses.length ? crosses : heads)
    .slice()
    .sort((one, other) => one.entropy - other.entropy);
  return best ? headId(best.attention, best.head) : "";
}

/** Rows of numbers as a matrix. */
export const gridOf = (matrix: number[][]): Grid => ({
  data: Float32Array.from(matrix.flat()),
  rows: matrix.length,
  cols: matrix[0]?.length ?? 0,
});

/** A tensor as a matrix: of one head where it has heads; a vector is one row. */
export function matrixOf(tensor: Tensor, head: number): Grid {
  const { data, offset, rows, cols } = slice(tensor, [head]);
  return { data: data.slice(offset, offset + rows * cols), rows, cols };
}

/** other − one, with −∞ − −∞ = 0. Null if the shapes differ. */
export function differenceOf(one: Grid, other: Grid): Grid | null {
  if (one.rows !== other.rows || one.cols !== other.cols) return null;
  return {
    ...other,
    data: other.data.map((value, k) => (value === one.data[k] ? 0 : value - one.data[k]!)),
  };
}

/** The cell with the largest difference. */
export function largest({ data, cols }: Grid): { i: number; j: number; value: number } {
  let best = 0;
  for (let k = 1; k < data.length; k++) if (Math.abs(data[k]!) > Math.abs(data[best]!)) best = k;
  return { i: Math.floor(best / cols), j: best % cols, value: data[best] ?? 0 };
}
