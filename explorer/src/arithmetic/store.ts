/** The numbers of a saved page by name: tensors of the trace, weights of the model, constants. */

import type { Operand, Real } from "../lib/contract";
import { fromBase64, type Tensor } from "../lib/safetensors";

/** What `regard.explore.offline_arithmetic` writes. */
export interface ArithmeticData {
  steps: Record<string, Step>;
  /** ids and positions */
  integers: Record<string, number[]>;
  /** the tokens of both vocabularies */
  labels: Record<string, string[]>;
  /** the side whose tokens are the rows of a parameter */
  tables: Record<string, string>;
  /** the rows of tables that are not whole */
  rows: Record<string, number[]>;
  /** the sizes in bytes of numbers that are not in the file */
  missing: Record<string, number>;
  weights_mb: number;
  /** base64 of zlib of a safetensors file, ordered by byte planes */
  numbers: string;
}

/** How a tensor is computed. */
export interface Step {
  explained_as: string;
  inputs: string[];
  paper: string | null;
  constants: Constants;
}

export type Constants = Record<string, unknown>;

/** Numbers that are not in the file; the page words the error. */
export class MissingNumbers extends Error {
  constructor(
    readonly missing: string,
    readonly bytes: number,
    readonly limit: number,
  ) {
    super(`${missing} is not in this file`);
  }
}

export type Index = (number | null)[];

export class Store {
  constructor(
    readonly data: ArithmeticData,
    readonly numbers: Map<string, Tensor>,
  ) {}

  isTensor(name: string): boolean {
    return name in this.data.steps;
  }

  tensor(name: string): Tensor {
    const found = this.numbers.get(name);
    if (!found)
      throw new MissingNumbers(name, this.data.missing[name] ?? 0, this.data.weights_mb * 1e6);
    return found;
  }

  /** The size of an axis. */
  size(name: string, axis = 0): number {
    const rows = axis === 0 && this.data.rows[name];
    if (rows) return this.data.labels[this.data.tables[name] ?? ""]?.length ?? rows.length;
    return this.tensor(name).shape[axis]!;
  }

  integer(name: string, at: number): number {
    return this.data.integers[name]![at]!;
  }

  /** Where a number lies. A partial table has only some of its rows. */
  private place(name: string, index: number[]): number {
    const { shape } = this.tensor(name);
    const rows = this.data.rows[name];
    let at = 0;
    for (let axis = 0; axis < shape.length; axis++) {
      let i = index[axis]!;
      if (rows && axis === 0 && (i = rows.indexOf(i)) < 0)
        throw new MissingNumbers(`${name}[${index[0]}]`, 0, this.data.weights_mb * 1e6);
      at = at * shape[axis]! + i;
    }
    return at;
  }

  value(name: string, index: number[]): number {
    return this.tensor(name).data[this.place(name, index)]! + 0; // −0 marks masked weights
  }

  one(name: string, ...index: number[]): Operand {
    const value = this.value(name, index);
    return { name, index, value, kind: this.isTensor(name) ? "tensor" : "parameter" };
  }

  /** The numbers along the axis that is null. */
  along(name: string, ...index: Index): Operand[] {
    const axis = index.indexOf(null);
    const at = (i: number): number[] => index.map((one, k) => (k === axis ? i : one!));
    return Array.from({ length: this.size(name, axis) }, (_, i) => this.one(name, ...at(i)));
  }
}

/** An operand's value as a number. */
export const valueOf = (operand: Operand): number => operand.value as number;

/** An array among the constants of a step. */
export interface ArrayConstant {
  shape: number[];
  numbers: string;
}

const decoded = new WeakMap<ArrayConstant, ArrayLike<number>>();

/** The number of an array constant at an index, of float32 or float64. */
export function constantAt(of: unknown, index: number[], kind: "float32" | "float64"): number {
  const array = of as ArrayConstant;
  let numbers = decoded.get(array);
  if (!numbers) {
    const bytes = fromBase64(array.numbers);
    numbers = kind === "float32" ? new Float32Array(bytes) : new Float64Array(bytes);
    decoded.set(array, numbers);
  }
  return numbers[index.reduce((at, i, axis) => at * array.shape[axis]! + i, 0)]!;
}

/** A number for JSON, as the server writes it: not finite ones as text. */
export const plain = (x: number): Real =>
  Number.isFinite(x) ? x : Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
