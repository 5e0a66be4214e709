/** Explanations whose terms already have their numbers. */

import type { Explanation, Operand } from "./contract";
import { explainSum, type Sum } from "./explanation";

export type Term = { operands: Operand[]; numbers: number[] };

type Parts = Omit<Sum, "terms" | "numbers" | "finish"> & {
  terms: Term[];
  steps?: Explanation["steps"];
  result: number;
};

export const explanation = ({ terms, steps = [], result, ...head }: Parts): Explanation =>
  explainSum({
    ...head,
    terms: terms.map((term) => term.operands),
    numbers: (_, at) => terms[at]!.numbers,
    finish: () => ({ result, steps }),
  });
