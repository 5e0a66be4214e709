/**
 * Explanations of numbers that are computed from tensors: entropies, distances, norms, cosines,
 * means, differences and sums. They are computed here in float64 from the tensors of the page, so
 * that they are checked against the server's number and work in a saved page.
 */

import type { Explanation, Operand, Real } from "./contract";
import { real } from "./numbers";
import { texts } from "./texts";

const t = texts.derived;

/** A vector of a tensor: the name, the leading indices and the numbers. */
export interface Vector {
  name: string;
  lead: number[];
  numbers: ArrayLike<number>;
}

type Term = { operands: Operand[]; numbers: number[] };
type Parts = {
  name: string;
  index?: number[];
  place: string;
  operation: string;
  formula: string;
  columns: string[];
  terms: Term[];
  steps?: Explanation["steps"];
  result: number;
  /** the number that the page shows */
  value: number;
};

export const tensorAt = (name: string, index: number[], value: Real): Operand => ({
  name,
  index,
  value,
  kind: "tensor",
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

/** The sum of the last numbers of all terms. */
const total = (terms: Term[]): number =>
  terms.reduce((sum, term) => sum + term.numbers[term.numbers.length - 1]!, 0);

function explanation({ terms, steps = [], index = [], ...parts }: Parts): Explanation {
  let running = 0;
  const rows = terms.map((term) => {
    running += term.numbers[term.numbers.length - 1]!;
    return { ...term, running, here: false };
  });
  const { result, value } = parts;
  const difference = result === value ? 0 : Math.abs(result - value);
  return { ...parts, index, paper: null, rows, steps, difference };
}

/** ‖x‖ = √Σ x². */
export function normOf(
  { name, lead, numbers }: Vector,
  place: string,
  value?: number,
): Explanation {
  const terms = Array.from(numbers, (x, i) => ({
    operands: [tensorAt(name, [...lead, i], x)],
    numbers: [x * x],
  }));
  const sum = total(terms);
  const result = Math.sqrt(sum);
  return explanation({
    name: t.norm(name),
    index: lead,
    place,
    operation: t.operations.norm,
    formula: "√ Σᵢ x[i]²",
    columns: ["x²"],
    terms,
    steps: [{ label: "Σ", value: sum, operand: null }],
    result,
    value: value ?? result,
  });
}

/** a · b / (‖a‖ ‖b‖). */
export function cosineOf(a: Vector, b: Vector, place: string, value: number): Explanation {
  const terms = Array.from(a.numbers, (x, i) => ({
    operands: [
      tensorAt(a.name, [...a.lead, i], x),
      tensorAt(b.name, [...b.lead, i], b.numbers[i] ?? 0),
    ],
    numbers: [x * (b.numbers[i] ?? 0)],
  }));
  const norms = [a, b].map((one) => normOf(one, place));
  const sum = total(terms);
  const [first, second] = norms.map((one) => real(one.result)) as [number, number];
  return explanation({
    name: t.cosine(a.name, b.name),
    index: a.lead,
    place,
    operation: t.operations.cosine,
    formula: "Σᵢ a[i] · b[i] / (‖a‖ · ‖b‖)",
    columns: [t.product],
    terms,
    steps: [
      { label: "Σ", value: sum, operand: null },
      ...norms.map((one, k) => ({
        label: k ? "‖b‖" : "‖a‖",
        value: one.result,
        operand: computed(one.name, real(one.result), () => one),
      })),
    ],
    result: sum / (first * second),
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

type RowStatistic = (weights: HeadWeights, query: number) => Explanation;

/** −Σ w log₂ w of one row of weights. */
export const rowEntropy: RowStatistic = (weights, query) => {
  const terms = rowOf(weights, query).map(([operand, w]) => {
    const bits = w > 0 ? -Math.log2(w) : 0;
    return { operands: [operand], numbers: [bits, w * bits] };
  });
  const result = total(terms);
  return explanation({
    name: t.rowEntropy(weights.name),
    index: [weights.head, query],
    place: t.row(weights.head, query),
    operation: t.operations.entropy,
    formula: "−Σₖ w[k] · log₂ w[k]",
    columns: ["−log₂ w", t.product],
    terms,
    result,
    value: result,
  });
};

/** Σ w · |query − key| of one row of weights. */
export const rowDistance: RowStatistic = (weights, query) => {
  const terms = rowOf(weights, query).map(([operand, w], key) => ({
    operands: [operand],
    numbers: [Math.abs(query - key), w * Math.abs(query - key)],
  }));
  const result = total(terms);
  return explanation({
    name: t.rowDistance(weights.name),
    index: [weights.head, query],
    place: t.row(weights.head, query),
    operation: t.operations.distance,
    formula: "Σₖ w[k] · |query − k|",
    columns: ["|query − k|", t.product],
    terms,
    result,
    value: result,
  });
};

const rowOf = ({ name, head, data, offset, cols }: HeadWeights, query: number) =>
  Array.from(
    data.subarray(offset + query * cols, offset + (query + 1) * cols),
    (w, key): [Operand, number] => [tensorAt(name, [head, query, key], w), w],
  );

/** The mean of a statistic over the rows of a head. */
export function headStatistic(
  weights: HeadWeights,
  statistic: "entropy" | "distance",
  value: number,
): Explanation {
  const each = statistic === "entropy" ? rowEntropy : rowDistance;
  const rows = Array.from({ length: weights.rows }, (_, query) => each(weights, query));
  const operands = rows.map((row, query) =>
    computed(t.row(weights.head, query), real(row.result), () => each(weights, query)),
  );
  const name = statistic === "entropy" ? t.headEntropy : t.headDistance;
  return meanOf(name(weights.name), [weights.head], t.head(weights.head), operands, value);
}

/** The mean of some numbers. */
export function meanOf(
  name: string,
  index: number[],
  place: string,
  operands: Operand[],
  value: number,
): Explanation {
  const terms = operands.map((operand) => ({
    operands: [operand],
    numbers: [real(operand.value)],
  }));
  const sum = total(terms);
  return explanation({
    name,
    index,
    place,
    operation: t.operations.mean,
    formula: "Σ x / n",
    columns: [t.term],
    terms,
    steps: [
      { label: "Σ", value: sum, operand: null },
      { label: "n", value: operands.length, operand: null },
    ],
    result: sum / operands.length,
    value,
  });
}

/** a − b. */
export function differenceOf(
  name: string,
  place: string,
  a: Operand,
  b: Operand,
  value: number,
): Explanation {
  const terms = [
    { operands: [a], numbers: [real(a.value)] },
    { operands: [b], numbers: [-real(b.value)] },
  ];
  return explanation({
    name,
    place,
    operation: t.operations.difference,
    formula: "a − b",
    columns: [t.term],
    terms,
    result: total(terms),
    value,
  });
}

/** A sum of log-probabilities, and the sum divided by a length penalty. */
export function sumOf(
  name: string,
  place: string,
  operands: Operand[],
  value: number,
): Explanation {
  const terms = operands.map((operand) => ({
    operands: [operand],
    numbers: [real(operand.value)],
  }));
  return explanation({
    name,
    place,
    operation: t.operations.sum,
    formula: "Σₜ log p(tokenₜ)",
    columns: [t.term],
    terms,
    result: total(terms),
    value,
  });
}
export function quotientOf(
  name: string,
  place: string,
  numerator: Operand,
  divisor: Operand,
  value: number,
): Explanation {
  const result = real(numerator.value) / real(divisor.value);
  return explanation({
    name,
    place,
    operation: t.operations.quotient,
    formula: "sum / length penalty",
    columns: [t.quotient],
    terms: [{ operands: [numerator, divisor], numbers: [result] }],
    result,
    value,
  });
}

const MOST_TOKENS = 500; // of a larger vocabulary the largest terms are listed, the rest as one

/** −Σ p log₂ p of the next token, from its log-probabilities. */
export function outputEntropy(row: number, logps: ArrayLike<number>, value: number): Explanation {
  let terms: Term[] = Array.from(logps, (logp, id) => {
    const p = Math.exp(logp);
    const bits = p > 0 ? -logp / Math.LN2 : 0;
    return { operands: [tensorAt("out.logprobs", [row, id], logp)], numbers: [p, p * bits] };
  });
  const result = total(terms);
  if (terms.length > MOST_TOKENS) {
    const sorted = terms.sort((a, b) => b.numbers[1]! - a.numbers[1]!);
    const rest = total(sorted.slice(MOST_TOKENS));
    terms = sorted.slice(0, MOST_TOKENS);
    terms.push({
      operands: [constant(t.rest(sorted.length - MOST_TOKENS), rest)],
      numbers: [NaN, rest],
    });
  }
  return explanation({
    name: t.outputEntropy,
    index: [row],
    place: t.step(row),
    operation: t.operations.entropy,
    formula: "−Σ p · log₂ p",
    columns: ["p", "−p · log₂ p"],
    terms,
    result,
    value,
  });
}

/** 2 to the power of the entropy. */
export function perplexityOf(entropy: Explanation): Explanation {
  const bits = real(entropy.result);
  const result = 2 ** bits;
  return explanation({
    name: t.perplexity,
    index: entropy.index,
    place: entropy.place,
    operation: t.operations.perplexity,
    formula: "2^entropy",
    columns: [t.perplexity],
    terms: [{ operands: [computed(entropy.name, bits, () => entropy)], numbers: [result] }],
    result,
    value: result,
  });
}
