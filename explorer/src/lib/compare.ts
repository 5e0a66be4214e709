/** Comparing two traces: their common tensors, a matrix of each, and the difference. */

import type { Trace } from "./contract";
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
