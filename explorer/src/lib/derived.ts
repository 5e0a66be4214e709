/**
 * Explanations of numbers that are computed from tensors: entropies, distances, norms, cosines,
 * means, differences and sums. They are computed here in float64 from the tensors of the page, so
 * that they are checked against the server's number and work in a saved page.
 */

import type { Explanation, Operand } from "./contract";
import { computed, explainSum, step, tensorAt } from "./explanation";
import { real } from "./numbers";
import { texts } from "./texts";

export { computed, constant, tensorAt } from "./explanation";

const t = texts.derived;

/** A vector of a tensor: the name, the leading indices and the numbers. */
export interface Vector {
  name: string;
  lead: number[];
  numbers: ArrayLike<number>;
}

const operandsOf = ({ name, lead, numbers }: Vector): Operand[] =>
  Array.from(numbers, (x, i) => tensorAt(name, [...lead, i], x));

/** ‖x‖ = √Σ x². */
export const normOf = (vector: Vector, place: string, value?: number): Explanation =>
  explainSum({
    name: t.norm(vector.name),
    index: vector.lead,
    place,
    operation: t.operations.norm,
    formula: "√ Σᵢ x[i]²",
    columns: ["x²"],
    terms: operandsOf(vector).map((x) => [x]),
    numbers: ([x]) => [x! * x!],
    finish: (sum) => ({ result: Math.sqrt(sum), steps: [step("Σ", sum)] }),
    value,
  });

/** A number that has an explanation as an operand. */
export const operandOf = (made: Explanation): Operand =>
  computed(made.name, real(made.result), () => made);

/** a · b / (‖a‖ ‖b‖). */
export function cosineOf(a: Vector, b: Vector, place: string, value: number): Explanation {
  const others = operandsOf(b);
  const norms = [a, b].map((one) => operandOf(normOf(one, place)));
  const product = norms.reduce((made, norm) => made * real(norm.value), 1); // 0: no direction
  return explainSum({
    name: t.cosine(a.name, b.name),
    index: a.lead,
    place,
    operation: t.operations.cosine,
    formula: "Σᵢ a[i] · b[i] / (‖a‖ · ‖b‖)",
    columns: [t.product],
    terms: operandsOf(a).map((x, i) => [x, others[i]!]),
    numbers: ([x, y]) => [x! * y!],
    finish: (sum) => ({
      result: product ? sum / product : 0,
      steps: [
        step("Σ", sum),
        ...norms.map((norm, k) => step(k ? "‖b‖" : "‖a‖", real(norm.value), norm)),
      ],
    }),
    value,
  });
}

/** The weights of one head. */
export interface HeadWeights {
  /** the tensor, e.g. dec.0.self.weights */
  name: string;
  head: number;
  data: Float32Array;
  offset: number;
  rows: number;
  cols: number;
}

/** A sum over one row of weights: each weight times a number, in bits or in positions. */
const rowSum =
  (
    name: (tensor: string) => string,
    operation: string,
    formula: string,
    factor: string,
    numberOf: (weight: number, query: number, key: number) => number,
  ) =>
  (weights: HeadWeights, query: number): Explanation => {
    const from = weights.offset + query * weights.cols;
    const numbers = weights.data.subarray(from, from + weights.cols);
    return explainSum({
      name: name(weights.name),
      index: [weights.head, query],
      place: t.row(weights.head, query),
      operation,
      formula,
      columns: [factor, t.product],
      terms: operandsOf({ name: weights.name, lead: [weights.head, query], numbers }).map((w) => [
        w,
      ]),
      numbers: ([w], key) => {
        const number = numberOf(w!, query, key);
        return [number, w! * number];
      },
    });
  };

/** −Σ w log₂ w of one row of weights. */
export const rowEntropy = rowSum(
  t.rowEntropy,
  t.operations.entropy,
  "−Σₖ w[k] · log₂ w[k]",
  "−log₂ w",
  (w) => (w > 0 ? -Math.log2(w) : 0),
);

/** Σ w · |query − key| of one row of weights. */
export const rowDistance = rowSum(
  t.rowDistance,
  t.operations.distance,
  "Σₖ w[k] · |query − k|",
  "|query − k|",
  (_, query, key) => Math.abs(query - key),
);

/** The mean of a statistic over the rows of a head. */
export function headStatistic(
  weights: HeadWeights,
  statistic: "entropy" | "distance",
  value: number,
): Explanation {
  const each = statistic === "entropy" ? rowEntropy : rowDistance;
  const operands = Array.from({ length: weights.rows }, (_, query) =>
    computed(t.row(weights.head, query), real(each(weights, query).result), () =>
      each(weights, query),
    ),
  );
  const name = statistic === "entropy" ? t.headEntropy : t.headDistance;
  return meanOf(name(weights.name), [weights.head], t.head(weights.head), operands, value);
}

/** The mean of some numbers. */
export const meanOf = (
  name: string,
  index: number[],
  place: string,
  operands: Operand[],
  value: number,
): Explanation =>
  explainSum({
    name,
    index,
    place,
    operation: t.operations.mean,
    formula: "Σ x / n",
    columns: [t.term],
    terms: operands.map((one) => [one]),
    numbers: (x) => x,
    finish: (sum) => ({
      result: sum / operands.length,
      steps: [step("Σ", sum), step("n", operands.length)],
    }),
    value,
  });

/** a − b. */
export const differenceOf = (
  name: string,
  place: string,
  a: Operand,
  b: Operand,
  value: number,
): Explanation =>
  explainSum({
    name,
    place,
    operation: t.operations.difference,
    formula: "a − b",
    columns: [t.term],
    terms: [[a], [b]],
    numbers: ([x], at) => [at ? -x! : x!],
    value,
  });

/** A sum of log-probabilities, and the sum divided by a length penalty. */
export const sumOf = (
  name: string,
  place: string,
  operands: Operand[],
  value: number,
): Explanation =>
  explainSum({
    name,
    place,
    operation: t.operations.sum,
    formula: "Σₜ log p(tokenₜ)",
    columns: [t.term],
    terms: operands.map((one) => [one]),
    numbers: (x) => x,
    value,
  });
export const quotientOf = (
  name: string,
  place: string,
  numerator: Operand,
  divisor: Operand,
  value: number,
  operation: string = t.operations.quotient,
  formula = "sum / length penalty",
): Explanation =>
  explainSum({
    name,
    place,
    operation,
    formula,
    columns: [t.quotient],
    terms: [[numerator, divisor]],
    numbers: ([a, b]) => [a! / b!],
    value,
  });

const MOST_TERMS = 500;

/** −Σ p log₂ p of the next token, from its log-probabilities. */
export const outputEntropy = (row: number, logps: ArrayLike<number>, value: number): Explanation =>
  explainSum({
    name: t.outputEntropy,
    index: [row],
    place: t.step(row),
    operation: t.operations.entropy,
    formula: "−Σ p · log₂ p",
    columns: ["p", "−p · log₂ p"],
    terms: operandsOf({ name: "out.logprobs", lead: [row], numbers: logps }).map((one) => [one]),
    numbers: ([logp]) => {
      const p = Math.exp(logp!);
      return [p, p > 0 ? (p * -logp!) / Math.LN2 : 0];
    },
    value,
    most: MOST_TERMS,
  });

/** 2 to the power of the entropy. */
export const perplexityOf = (entropy: Explanation): Explanation =>
  perplexityFrom(operandOf(entropy), entropy.index);
export const perplexityFrom = (bits: Operand, index: number[]): Explanation =>
  explainSum({
    name: t.perplexity,
    index,
    place: t.step(index[0] ?? 0),
    operation: t.operations.perplexity,
    formula: "2^entropy",
    columns: [t.perplexity],
    terms: [[bits]],
    numbers: ([x]) => [2 ** x!],
  });
