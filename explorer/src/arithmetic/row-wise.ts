/** Projections, weighted sums, norms, log-probabilities, the score of an output (row_wise.py). */

import type { Operand } from "../lib/contract";
import {
  computation,
  constant,
  pairs,
  productSum,
  single,
  stage,
  term,
  type Computation,
  type Explanations,
  type Site,
  type Term,
} from "./computation";
import { valueOf, type Store } from "./store";

/** One output of a linear layer. */
function unit({ store, inputs, weights }: Site, row: number, at: number): Computation {
  const [weight, bias] = weights;
  const lines = pairs(store.along(inputs[0]!, row, null), store.along(weight!, at, null));
  const [terms, total] = productSum(lines);
  const stages = [stage("Σ", total)];
  if (!bias) return computation(total, ["product"], terms, stages);
  const operand = store.one(bias, at);
  const result = total + valueOf(operand);
  return computation(result, ["product"], terms, [...stages, stage("+ bias", result, operand)]);
}

/** The group of keys or values that serves a head (grouped-query attention). */
export const groupOf = (store: Store, name: string, head: number, heads: number): number =>
  Math.floor((head * store.size(name)) / heads);

function squares(numbers: Operand[], mean: number, here: number): [Term[], number] {
  let running = 0;
  const terms = numbers.map((one, i) => {
    const apart = valueOf(one) - mean;
    return term([one], [apart, apart * apart], (running += apart * apart), i === here);
  });
  return [terms, running];
}

/** exp(x − max) of each operand with its running sum; the maximum; the sum. */
export function exponentials(operands: Operand[], here: number): [Term[], number, number] {
  const largest = operands.reduce((most, one) => Math.max(most, valueOf(one)), -Infinity);
  let total = 0;
  const terms = operands.map((one, i) => {
    const difference = Number.isFinite(valueOf(one)) ? valueOf(one) - largest : -Infinity;
    return term(
      [one],
      [difference, Math.exp(difference)],
      (total += Math.exp(difference)),
      i === here,
    );
  });
  return [terms, largest, total];
}

export const rowWise: Explanations = {
  LinearProjection: (site) => unit(site, site.index[0]!, site.index[1]!),
  HeadProjection(site) {
    const { store, weights, constants, index } = site;
    const [head, row, i] = index;
    const dim = Math.floor(store.size(weights[0]!) / (constants.heads as number));
    return unit(site, row!, head! * dim + i!);
  },
  WeightedSum({ store, inputs, index: [head, query, j] }) {
    const [weights, values] = inputs as [string, string];
    const group = groupOf(store, values, head!, store.size(weights));
    const lines = pairs(
      store.along(weights, head!, query!, null),
      store.along(values, group, null, j!),
    );
    const [terms, total] = productSum(lines);
    return computation(total, ["product"], terms);
  },
  LayerNormalisation({ store, inputs, weights, constants, index: [row, j] }) {
    const numbers = store.along(inputs[0]!, row!, null);
    const mean = numbers.reduce((sum, one) => sum + valueOf(one), 0) / numbers.length;
    const [terms, running] = squares(numbers, mean, j!);
    const [variance, eps] = [running / numbers.length, constants.eps as number];
    const normal = (valueOf(numbers[j!]!) - mean) / Math.sqrt(variance + eps);
    const [gain, shift] = weights.map((name) => store.one(name, j!)) as [Operand, Operand];
    const scaled = normal * valueOf(gain);
    const result = scaled + valueOf(shift);
    return computation(result, ["x − mean", "squared"], terms, [
      stage("mean", mean),
      stage("variance", variance),
      stage("eps", eps),
      stage("normalised", normal),
      stage("· gain", scaled, gain),
      stage("+ shift", result, shift),
    ]);
  },
  RMSNormalisation({ store, inputs, weights, constants, index: [row, j] }) {
    const numbers = store.along(inputs[0]!, row!, null);
    const [terms, running] = squares(numbers, 0, j!);
    const [square, eps] = [running / numbers.length, constants.eps as number];
    const normal = valueOf(numbers[j!]!) / Math.sqrt(square + eps);
    const gain = store.one(weights[0]!, j!);
    const result = normal * valueOf(gain);
    return computation(result, ["x", "squared"], terms, [
      stage("mean square", square),
      stage("eps", eps),
      stage("normalised", normal),
      stage("· gain", result, gain),
    ]);
  },
  LogProbability({ store, inputs, index: [row, here] }) {
    const [terms, largest, total] = exponentials(store.along(inputs[0]!, row!, null), here!);
    const log = Math.log(total);
    return computation(terms[here!]!.numbers[0]! - log, ["l − max", "exp"], terms, [
      stage("max", largest),
      stage("Σ exp", total),
      stage("log Σ exp", log),
    ]);
  },
  TemperatureScaling({ store, inputs, constants, index }) {
    const operand = store.one(inputs[0]!, ...index);
    const temperature = constant("temperature", constants.temperature as number);
    const result = valueOf(operand) / valueOf(temperature);
    return single(["quotient"], [operand, temperature], [result]);
  },
  ChosenLogProb({ store, inputs, index: [row] }) {
    const token = store.integer(inputs[1]!, row!);
    const operand = store.one(inputs[0]!, row!, token);
    return {
      ...single(["value"], [operand], [valueOf(operand)]),
      stages: [stage("token", token)],
    };
  },
  SequenceLogProb({ store, inputs, constants }) {
    const counted = store.along(inputs[0]!, null).slice(constants.given as number);
    const [terms, total] = productSum(counted.map((one) => [one]));
    return computation(total, ["term"], terms);
  },
  LengthPenalised({ store, inputs, constants }) {
    const operand = store.one(inputs[0]!);
    const penalty = constant("penalty", constants.penalty as number);
    return single(["quotient"], [operand, penalty], [valueOf(operand) / valueOf(penalty)]);
  },
};
