/** An explanation as a sum of terms: `explainSum` builds every one that the page makes itself. */

import type { Explanation, Operand, Real } from "./contract";
import { real } from "./numbers";
import { texts } from "./texts";

export const tensorAt = (name: string, index: number[], value: Real): Operand => ({
  name,
  index,
  value,
  kind: "tensor",
});
export const parameterAt = (name: string, index: number[], value: Real): Operand => ({
  ...tensorAt(name, index, value),
  kind: "parameter",
});
export const constant = (name: string, value: Real): Operand => ({
  name,
  index: [],
  value,
  kind: "constant",
});
/** A number with an explanation of its own, made when it is opened. */
export const computed = (name: string, value: number, open: () => Explanation): Operand => ({
  ...constant(name, value),
  open,
});

type Step = Explanation["steps"][number];
export const step = (label: string, value: number, operand: Operand | null = null): Step => ({
  label,
  value,
  operand,
});

export interface Sum {
  name: string;
  index?: number[];
  place: string;
  operation: string;
  formula: string;
  paper?: string;
  columns: string[];
  /** the operands of each term */
  terms: Operand[][];
  /** the numbers of a term from the values of its operands; the last one is added */
  numbers: (values: number[], at: number) => number[];
  /** the result, and the steps that lead from the sum to it; by default the sum itself */
  finish?: (sum: number) => { result: number; steps?: Step[] };
  /** the number that the page shows; by default the result */
  value?: number;
  /** of more terms, only the largest are listed, and the others as one */
  most?: number;
}

type Term = { operands: Operand[]; numbers: number[] };
const last = (term: Term): number => term.numbers[term.numbers.length - 1]!;
const total = (terms: Term[]): number => terms.reduce((sum, term) => sum + last(term), 0);

export function explainSum({ terms, numbers, finish, most = Infinity, ...head }: Sum): Explanation {
  let shown: Term[] = terms.map((operands, at) => ({
    operands,
    numbers: numbers(
      operands.map((one) => real(one.value)),
      at,
    ),
  }));
  const sum = total(shown);
  const { result, steps = [] } = finish?.(sum) ?? { result: sum };
  if (shown.length > most) {
    const sorted = [...shown].sort((a, b) => Math.abs(last(b)) - Math.abs(last(a)));
    const rest = total(sorted.slice(most));
    shown = sorted.slice(0, most);
    const name = texts.derived.rest(sorted.length - most);
    shown.push({
      operands: [constant(name, rest)],
      numbers: head.columns.map((_, k) => (k < head.columns.length - 1 ? NaN : rest)),
    });
  }
  let running = 0;
  const rows = shown.map((term) => ({ ...term, running: (running += last(term)), here: false }));
  const value = head.value ?? result;
  const difference = result === value ? 0 : Math.abs(result - value);
  const { index = [], paper = null } = head;
  return { ...head, index, paper, rows, steps, result, value, difference };
}
