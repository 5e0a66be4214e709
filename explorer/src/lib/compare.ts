/** Two traces side by side: which tensors both have, a matrix of each, and their difference cell by cell. */

import type { Trace } from "./contract";
import { slice, type Tensor } from "./safetensors";

export interface Grid {
  data: Float32Array;
  rows: number;
  cols: number;
}

/** The tensors that both have with the same axes, numbers of their own left out: what is one number is no picture. */
export function comparable(one: Trace, other: Trace): string[] {
  const axes = new Map(other.tensors.map((tensor) => [tensor.name, tensor.axes.join()]));
  return one.tensors
    .filter((tensor) => tensor.axes.length && axes.get(tensor.name) === tensor.axes.join())
    .map((tensor) => tensor.name);
}

/** A tensor as a matrix: of one head, where it has heads; a vector is one row. */
export function matrixOf(tensor: Tensor, head: number): Grid {
  const { data, offset, rows, cols } = slice(tensor, [head]);
  return { data: data.slice(offset, offset + rows * cols), rows, cols };
}

/** other − one; what is −∞ in both differs by nothing. Null where they are of different sizes. */
export function differenceOf(one: Grid, other: Grid): Grid | null {
  if (one.rows !== other.rows || one.cols !== other.cols) return null;
  return {
    ...other,
    data: other.data.map((value, k) => (value === one.data[k] ? 0 : value - one.data[k]!)),
  };
}

/** The cell that differs most. */
export function largest({ data, cols }: Grid): { i: number; j: number; value: number } {
  let best = 0;
  for (let k = 1; k < data.length; k++) if (Math.abs(data[k]!) > Math.abs(data[best]!)) best = k;
  return { i: Math.floor(best / cols), j: best % cols, value: data[best] ?? 0 };
}
