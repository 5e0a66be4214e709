/**
 * Explanations of numbers that need vectors of the model's tables: cosines of embeddings,
 * coordinates of the PCA, probabilities of the logit lens. The server explains them from the whole
 * tables; a saved page does it here, from the vectors of the tokens it shows.
 */

import type { Explanation, Operand } from "./contract";
import { constant, explainSum, parameterAt, step } from "./explanation";
import { numberTexts as t } from "./texts.numbers.en";
import { texts } from "./texts";

type Numbers = ArrayLike<number>;

/** A row of a table: the parameter, the token and its numbers. */
export interface TableRow {
  table: string;
  id: number;
  label: string;
  numbers: Numbers;
}

const operandsOf = ({ table, id, numbers }: TableRow): Operand[] =>
  Array.from(numbers, (x, i) => parameterAt(table, [id, i], x));
const normOf = (numbers: Numbers): number =>
  Math.sqrt(Array.from(numbers).reduce((s, x) => s + x * x, 0));

/** a · b / (‖a‖ ‖b‖) of two embeddings. */
export function embeddingCosine(
  side: string,
  a: TableRow,
  b: TableRow,
  value: number,
): Explanation {
  const others = operandsOf(b);
  const norms = [normOf(a.numbers), normOf(b.numbers)] as const;
  const product = norms[0] * norms[1];
  return explainSum({
    name: t.cosine,
    index: [a.id, b.id],
    place: `${side}: ${t.and(a.label, b.label)}`,
    operation: texts.derived.operations.cosine,
    formula: "Σᵢ a[i] · b[i] / (‖a‖ · ‖b‖)",
    columns: [texts.derived.product],
    terms: operandsOf(a).map((x, i) => [x, others[i]!]),
    numbers: ([x, y]) => [x! * y!],
    finish: (sum) => ({
      result: product ? sum / product : 0,
      steps: [step("Σ", sum), step("‖a‖", norms[0]), step("‖b‖", norms[1])],
    }),
    value,
  });
}

/** The coordinate of a token on a principal component. */
export const pcaCoordinate = (
  side: string,
  row: TableRow,
  axis: number,
  centre: Numbers,
  direction: Numbers,
  value: number,
): Explanation =>
  explainSum({
    name: t.coordinate("xy"[axis]!),
    index: [row.id, axis],
    place: `${side}: ${t.one(row.label)}, ${t.component(axis + 1)}`,
    operation: t.principal,
    formula: "Σᵢ (E[token, i] − mean[i]) · axis[i]",
    paper: "Pearson 1901",
    columns: [texts.derived.product],
    terms: operandsOf(row).map((x, i) => [
      x,
      constant(t.mean, centre[i]!),
      constant(t.axis, direction[i]!),
    ]),
    numbers: ([x, mean, part]) => [(x! - mean!) * part!],
    value,
  });

/** The probability of a token read from a state of the residual stream (logit lens). */
export function lensProbability(
  tensor: string,
  row: number,
  state: Numbers,
  output: TableRow,
  bias: Operand | null,
  normaliser: number,
  value: number,
): Explanation {
  const weights = operandsOf(output);
  return explainSum({
    name: t.lens(tensor),
    index: [row, output.id],
    place: `${texts.derived.step(row)}, ${t.one(output.label)}`,
    operation: t.lensOperation,
    formula: "exp(Σᵢ state[i] · E[token, i] − log Σ exp(logits))",
    paper: "nostalgebraist 2020",
    columns: [texts.derived.product],
    terms: weights.map((weight, i) => [constant(t.state, state[i]!), weight]),
    numbers: ([x, weight]) => [x! * weight!],
    finish: (sum) => {
      const logit = sum + (bias ? Number(bias.value) : 0);
      return {
        result: Math.exp(logit - normaliser),
        steps: [
          step("Σ", sum),
          ...(bias ? [step("+ bias", logit, bias)] : []),
          step("log Σ exp(logits)", normaliser),
        ],
      };
    },
    value,
  });
}
