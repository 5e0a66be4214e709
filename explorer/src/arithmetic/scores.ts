/** Scores, masks and position encodings (score_operations.py, positional.py). */

import type { Operand } from "../lib/contract";
import { fromBase64 } from "../lib/safetensors";
import {
  computation,
  constant,
  copied,
  pairs,
  productSum,
  single,
  stage,
  term,
  type Explanations,
  type Site,
} from "./computation";
import { groupOf } from "./row-wise";
import { constantAt, valueOf } from "./store";

/** The query and the key that meet at an index. */
function meeting({ store, inputs, index: [head, query, key] }: Site): [Operand[], Operand[]] {
  const [queries, keys] = inputs as [string, string];
  const group = groupOf(store, keys, head!, store.size(queries));
  return [store.along(queries, head!, query!, null), store.along(keys, group, key!, null)];
}

const norm = (operands: Operand[]): number => Math.max(Math.hypot(...operands.map(valueOf)), 1e-12);

/** The distance from a query to a key. */
const ahead = ({ store, index: [, query, key] }: Site, positions: string[]): number =>
  store.integer(positions[1]!, key!) - store.integer(positions[0]!, query!);

/** The place in a table for a distance. */
const placeOf = ({ constants }: Site, distance: number): number =>
  (constants.places as number[])[distance - (constants.lowest as number)]!;

function isAllowed({ constants, index: [head, query, key] }: Site): boolean {
  const { shape, bits } = constants.allowed as { shape: number[]; bits: string };
  const [heads, queries, keys] = shape as [number, number, number];
  const at = ((heads > 1 ? head! : 0) * queries + query!) * keys + key!;
  return ((new Uint8Array(fromBase64(bits))[at >> 3]! >> (7 - (at & 7))) & 1) === 1;
}

/** The result of a part that runs only in Python, as a step. */
export function byPart({ constants, index }: Site): {
  value: number;
  made: ReturnType<typeof stage>;
} {
  const value = constantAt(constants.exact, index, "float64");
  return { value, made: stage(`computed by ${constants.part as string}`, value) };
}

export const scores: Explanations = {
  DotProduct(site) {
    const [terms, total] = productSum(pairs(...meeting(site)));
    return computation(total, ["product"], terms);
  },
  ScoreScaling({ store, inputs, constants, index }) {
    const factor = constant("factor", constants.factor as number);
    const [terms, total] = productSum([[store.one(inputs[0]!, ...index), factor]]);
    return computation(total, ["product"], terms);
  },
  BilinearQuery({ store, inputs, weights, index: [head, row, j] }) {
    const queries = store.along(inputs[0]!, head!, row!, null);
    const [terms, total] = productSum(pairs(queries, store.along(weights[0]!, head!, null, j!)));
    return computation(total, ["product"], terms);
  },
  AdditiveScore(site) {
    const { store, weights, index } = site;
    const [queries, keys] = meeting(site);
    const vector = store.along(weights[0]!, index[0]!, null);
    let total = 0;
    const terms = queries.map((q, i) => {
      const [k, v] = [keys[i]!, vector[i]!];
      const hidden = Math.tanh(valueOf(q) + valueOf(k));
      const product = valueOf(v) * hidden;
      return term([q, k, v], [hidden, product], (total += product));
    });
    return computation(total, ["tanh(q + k)", "· v"], terms);
  },
  CosineScore(site) {
    const [queries, keys] = meeting(site);
    const [terms, total] = productSum(pairs(queries, keys));
    const [one, other, scale] = [norm(queries), norm(keys), site.constants.scale as number];
    const cosine = total / one / other;
    return computation(cosine * scale, ["product"], terms, [
      stage("Σ", total),
      stage("‖q‖", one),
      stage("‖k‖", other),
      stage("cosine", cosine),
      stage("scale", scale),
    ]);
  },
  GaussianScore(site) {
    const bandwidth = site.constants.bandwidth as number;
    let total = 0;
    const terms = pairs(...meeting(site)).map(([q, k]) => {
      const difference = (valueOf(q!) - valueOf(k!)) / bandwidth;
      return term(
        [q!, k!],
        [difference, difference * difference],
        (total += difference * difference),
      );
    });
    return computation(-total / 2, ["(q − k) / bandwidth", "squared"], terms, [
      stage("bandwidth", bandwidth),
      stage("Σ", total),
    ]);
  },
  ComputedScore(site) {
    const { value, made } = byPart(site);
    const terms = pairs(...meeting(site)).map((both) => term(both, both.map(valueOf)));
    return computation(value, ["q", "k"], terms, [made]);
  },
  MaskedScores(site) {
    const { store, inputs, index } = site;
    const operand = store.one(inputs[0]!, ...index);
    const result = isAllowed(site) ? valueOf(operand) : -Infinity;
    return {
      ...single(["masked"], [operand], [result]),
      stages: [stage("query", index[1]!), stage("key", index[2]!)],
    };
  },
  RotatedVectors({ store, inputs, constants, index }) {
    const [head, row, i] = index as [number, number, number];
    const [rotated, rates] = [constants.rotated as number, constants.rates as number[]];
    if (i >= rotated) return copied(store.one(inputs[0]!, ...index));
    const half = Math.floor(rotated / 2);
    const [pair, second, other] = constants.halves
      ? [i % half, i >= half, (i + half) % rotated]
      : [Math.floor(i / 2), i % 2 === 1, i + 1 - 2 * (i % 2)];
    const position = store.integer(inputs[1]!, row);
    const angle = position * rates[pair]!;
    const sine = second ? Math.sin(angle) : -Math.sin(angle);
    const [terms, total] = productSum([
      [store.one(inputs[0]!, ...index), constant("cos", Math.cos(angle))],
      [store.one(inputs[0]!, head, row, other), constant(second ? "sin" : "−sin", sine)],
    ]);
    return computation(total, ["product"], terms, [
      stage("position", position),
      stage("rate", rates[pair]!),
      stage("angle", angle),
    ]);
  },
  AlibiBias(site) {
    const slope = (site.constants.slopes as number[])[site.index[0]!]!;
    const distance = Math.abs(ahead(site, site.inputs));
    const [terms, total] = productSum([
      [constant("−slope", -slope), constant("distance", distance)],
    ]);
    return computation(total, ["product"], terms);
  },
  TableBias(site) {
    const distance = ahead(site, site.inputs);
    const bucket = placeOf(site, distance);
    const number = site.store.one(site.weights[0]!, site.index[0]!, bucket);
    const [terms, total] = productSum([
      [number, constant("scale", site.constants.scale as number)],
    ]);
    const stages = [stage("key − query", distance), stage("bucket", bucket)];
    return computation(total, ["product"], terms, stages);
  },
  ShawBias(site) {
    const { store, inputs, weights, constants, index } = site;
    const distance = ahead(site, inputs.slice(1));
    const lines = pairs(
      store.along(inputs[0]!, index[0]!, index[1]!, null),
      store.along(weights[0]!, placeOf(site, distance), null),
    );
    const [terms, total] = productSum(lines);
    const scale = constants.scale as number;
    return computation(total * scale, ["product"], terms, [
      stage("key − query", distance),
      stage("Σ", total),
      stage("1 / √dim", scale),
    ]);
  },
  ComputedPosition(site) {
    const { value, made } = byPart(site);
    const position = site.store.integer(site.inputs[0]!, site.index[0]!);
    return computation(value, [], [], [stage("position", position), made]);
  },
  ComputedRotation(site) {
    const { store, inputs, index } = site;
    const { value, made } = byPart(site);
    const operands = store.along(inputs[0]!, ...index.slice(0, -1), null);
    const here = index[index.length - 1];
    const terms = operands.map((one, i) => term([one], [valueOf(one)], null, i === here));
    const position = store.integer(inputs[1]!, index[1]!);
    return computation(value, ["value"], terms, [stage("position", position), made]);
  },
  ComputedBias(site) {
    const { store, inputs, index } = site;
    const [head, query, key] = index as [number, number, number];
    const { value, made } = byPart(site);
    const operands = [
      store.one(inputs[0]!, ...index),
      ...store.along(inputs[1]!, head, query, null),
    ];
    const terms = operands.map((one) => term([one], [valueOf(one)]));
    const places = [store.integer(inputs[2]!, query), store.integer(inputs[3]!, key)] as const;
    const stages = [stage("query", places[0]), stage("key", places[1]), made];
    return computation(value, ["operand"], terms, stages);
  },
};
