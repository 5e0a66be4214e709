/** The arithmetic of one number: terms, steps after them, the result (see operation.py). */

import type { Operand } from "../lib/contract";
import { valueOf, type Constants, type Store } from "./store";

export interface Term {
  operands: Operand[];
  numbers: number[];
  running: number | null;
  here: boolean;
}

export interface Stage {
  label: string;
  value: number;
  operand: Operand | null;
}

export interface Computation {
  result: number;
  columns: string[];
  terms: Term[];
  stages: Stage[];
}

/** What an explanation reads. */
export interface Site {
  store: Store;
  /** the explained tensor */
  name: string;
  inputs: string[];
  weights: string[];
  constants: Constants;
  index: number[];
}

export type Explain = (site: Site) => Computation;
export type Explanations = Record<string, Explain>;

export const computation = (
  result: number,
  columns: string[] = [],
  terms: Term[] = [],
  stages: Stage[] = [],
): Computation => ({ result, columns, terms, stages });

export const term = (
  operands: Operand[],
  numbers: number[],
  running: number | null = null,
  here = false,
): Term => ({ operands, numbers, running, here });

export const stage = (label: string, value: number, operand: Operand | null = null): Stage => ({
  label,
  value,
  operand,
});

export const constant = (name: string, value: number): Operand => ({
  name,
  index: [],
  value,
  kind: "constant",
});

/** Products of operands, line by line, and their running sum. */
export function productSum(lines: Operand[][]): [Term[], number] {
  let running = 0;
  const terms = lines.map((operands) => {
    const product = operands.reduce((made, one) => made * valueOf(one), 1);
    return term(operands, [product], (running += product));
  });
  return [terms, running];
}

export const pairs = (a: Operand[], b: Operand[]): Operand[][] => a.map((one, i) => [one, b[i]!]);

/** A copied number. */
export const copied = (operand: Operand): Computation =>
  computation(valueOf(operand), ["value"], [term([operand], [valueOf(operand)])]);

/** One term whose numbers follow from its operands; the last number is the result. */
export function single(columns: string[], operands: Operand[], numbers: number[]): Computation {
  return computation(numbers[numbers.length - 1]!, columns, [term(operands, numbers)]);
}

export const sigmoid = (x: number): number =>
  x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x));

/** The error function: its series of positive terms (Abramowitz & Stegun 7.1.6). */
export function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [sum, part] = [0, x];
  for (let n = 0; Math.abs(part) > 1e-18 * Math.abs(sum) && n < 300; n++) {
    sum += part;
    part *= (2 * x * x) / (2 * n + 3);
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
