/** Attention weights from masked scores (normaliser_operations.py). */

import {
  computation,
  copied,
  sigmoid,
  single,
  stage,
  term,
  type Explanations,
  type Site,
} from "./computation";
import { exponentials } from "./row-wise";
import { byPart } from "./scores";
import { constantAt, valueOf } from "./store";
import type { Operand } from "../lib/contract";

/** The scores of the query, and the place of the key. */
function row({ store, inputs, index }: Site): { operands: Operand[]; here: number } {
  const here = index[index.length - 1]!;
  return { operands: store.along(inputs[0]!, ...index.slice(0, -1), null), here };
}

/** log(1 + exp(x)); for a large x it is x, as in torch. */
const softplus = (x: number): number => (x > 20 ? x : Math.log1p(Math.exp(x)));
type Kernel = (score: number, largest: number) => number;
const KERNELS: Record<string, Kernel> = {
  exp: (s, largest) => Math.exp(s - largest),
  softplus,
  sigmoid,
  relu: (s) => Math.max(0, s),
  elu: (s) => (s > 0 ? s : Math.expm1(s)) + 1,
  boxcar: (s) => Number(s >= -0.5),
  epanechnikov: (s) => Math.max(0, 1 + 2 * s),
  triangular: (s) => Math.max(0, 1 - Math.sqrt(Math.max(-2 * s, 0))),
  uniform: () => 1,
};

/** τ with Σ max(0, z − τ)^(1/(α − 1)) = 1, by bisection; +∞ if no key is allowed. */
function threshold(scaled: number[], alpha: number): number {
  const largest = Math.max(...scaled);
  if (largest === -Infinity) return Infinity;
  let [low, high] = [largest - 1, largest];
  for (let k = 0; k < 80; k++) {
    const middle = (low + high) / 2;
    const total = scaled.reduce((sum, z) => sum + Math.max(0, z - middle) ** (1 / (alpha - 1)), 0);
    if (total > 1) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

export const normalisers: Explanations = {
  NormalisedWeights(site) {
    const { operands, here } = row(site);
    const lead = site.index.slice(0, -1);
    const { value, made } = byPart(site);
    const terms = operands.map((one, key) => {
      const weight = constantAt(site.constants.exact, [...lead, key], "float64");
      return term([one], [weight], null, key === here);
    });
    return computation(value, ["weight"], terms, [made]);
  },
  SoftmaxWeights(site) {
    const { operands, here } = row(site);
    const [terms, largest, total] = exponentials(operands, here);
    const own = terms[here]!.numbers[1]!;
    return computation(total ? own / total : 0, ["s − max", "exp"], terms, [
      stage("max", largest),
      stage("Σ exp", total),
      stage("exp here", own),
    ]);
  },
  UnnormalisedWeights({ store, inputs, index }) {
    const operand = store.one(inputs[0]!, ...index);
    return operand.value === -Infinity ? single(["weight"], [operand], [0]) : copied(operand);
  },
  KernelWeights(site) {
    const { operands, here } = row(site);
    const kernel = KERNELS[site.constants.kernel as string]!;
    const largest = operands.reduce((most, one) => Math.max(most, valueOf(one)), -Infinity);
    let total = 0;
    const terms = operands.map((one, i) => {
      const value = one.value === -Infinity ? 0 : kernel(valueOf(one), largest);
      return term([one], [value], (total += value), i === here);
    });
    const own = terms[here]!.numbers[0]!;
    const stages = [stage("Σ", total), stage("here", own)];
    return computation(total > 0 ? own / total : 0, ["φ(s)"], terms, stages);
  },
  EntmaxWeights(site) {
    const { operands, here } = row(site);
    const alpha = site.constants.alpha as number;
    const scaled = operands.map((one) => (alpha - 1) * valueOf(one));
    const tau = threshold(scaled, alpha);
    let total = 0;
    const terms = operands.map((one, i) => {
      const weight = Math.max(0, scaled[i]! - tau) ** (1 / (alpha - 1));
      return term([one], [scaled[i]!, weight], (total += weight), i === here);
    });
    return computation(terms[here]!.numbers[1]!, ["(α − 1) · s", "weight"], terms, [
      stage("α", alpha),
      stage("threshold τ", tau),
      stage("Σ", total),
    ]);
  },
};
