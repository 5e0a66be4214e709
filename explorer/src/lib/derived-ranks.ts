/** Explanations of quotients of norms and of rank correlations. */

import type { Explanation, Operand } from "./contract";
import { normOf, operandOf, quotientOf, type Vector } from "./derived";
import { explainSum, step } from "./explanation";
import { real } from "./numbers";
import { numberTexts as t } from "./texts.numbers.en";

/** The norm of a contribution divided by that of the residual stream before it. */
export const ratioOf = (added: Vector, before: Vector, place: string, value: number): Explanation =>
  quotientOf(
    t.ratio(added.name, before.name),
    place,
    operandOf(normOf(added, place)),
    operandOf(normOf(before, place)),
    value,
    t.ratioOperation,
    t.ratioFormula,
  );

/** Ranks from 1; equal numbers have their mean rank. */
export function ranksOf(numbers: number[]): number[] {
  const order = numbers.map((_, at) => at).sort((a, b) => numbers[a]! - numbers[b]!);
  const ranks = new Array<number>(numbers.length);
  for (let from = 0, to = 0; from < order.length; from = to) {
    while (to < order.length && numbers[order[to]!] === numbers[order[from]!]) to++;
    for (let k = from; k < to; k++) ranks[order[k]!] = (from + 1 + to) / 2;
  }
  return ranks;
}

const MOST_CELLS = 400;

/** Spearman's rank correlation of pairs of numbers; of many pairs, the largest terms are listed. */
export function correlationOf(pairs: [Operand, Operand][], value: number): Explanation {
  const [first, second] = [0, 1].map((side) =>
    ranksOf(pairs.map((pair) => real(pair[side]!.value))),
  );
  const mean = (pairs.length + 1) / 2;
  const squares = [first!, second!].map((ranks) =>
    ranks.reduce((sum, rank) => sum + (rank - mean) ** 2, 0),
  );
  return explainSum({
    name: t.correlation,
    place: t.allCells(pairs.length),
    operation: t.correlationOperation,
    formula: t.correlationFormula,
    paper: "Spearman 1904",
    columns: t.correlationColumns,
    terms: pairs,
    numbers: (_, at) => {
      const [a, b] = [first![at]!, second![at]!];
      return [a, b, (a - mean) * (b - mean)];
    },
    finish: (sum) => ({
      result: sum / Math.sqrt(squares[0]! * squares[1]!),
      steps: [
        step(t.meanRank, mean),
        step("Σ", sum),
        step(t.squares("a"), squares[0]!),
        step(t.squares("b"), squares[1]!),
      ],
    }),
    value,
    most: MOST_CELLS,
  });
}
