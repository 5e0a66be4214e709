/** Lookups, sums, copies, concatenation, activations (element_wise.py, activations.py). */

import {
  computation,
  constant,
  copied,
  erf,
  productSum,
  sigmoid,
  single,
  stage,
  type Explanations,
} from "./computation";
import { valueOf } from "./store";

const geluTanh = (x: number): number =>
  x * 0.5 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const FUNCTIONS: Record<string, (x: number) => number> = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => x * 0.5 * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": geluTanh,
  silu: (x) => x * sigmoid(x),
};

export const elementWise: Explanations = {
  TableLookup({ store, inputs, weights, constants, index: [row, j] }) {
    const id = store.integer(inputs[0]!, row!);
    const scale = constant("scale", constants.scale as number);
    const [terms, total] = productSum([[store.one(weights[0]!, id, j!), scale]]);
    return computation(total, ["product"], terms, [stage("id", id)]);
  },
  SinusoidalWave({ store, inputs, constants, index: [row, j] }) {
    const rates = constants.rates as number[];
    const [at, cosine] = constants.halves
      ? [j! % rates.length, j! >= rates.length]
      : [Math.floor(j! / 2), j! % 2 === 1];
    const position = store.integer(inputs[0]!, row!);
    const angle = position * rates[at]!;
    const result = cosine ? Math.cos(angle) : Math.sin(angle);
    return computation(
      result,
      [],
      [],
      [
        stage("position", position),
        stage("rate", rates[at]!),
        stage("angle", angle),
        stage(cosine ? "cos" : "sin", result),
      ],
    );
  },
  Addition({ store, inputs, index }) {
    const [terms, total] = productSum(inputs.map((name) => [store.one(name, ...index)]));
    return computation(total, ["term"], terms);
  },
  Copy: ({ store, inputs, index }) => copied(store.one(inputs[0]!, ...index)),
  SingleHead: ({ store, inputs, index }) => copied(store.one(inputs[0]!, ...index.slice(1))),
  ConcatenatedHeads({ store, inputs, index: [row, j] }) {
    const dim = store.size(inputs[0]!, 2);
    return copied(store.one(inputs[0]!, Math.floor(j! / dim), row!, j! % dim));
  },
  Concatenation({ store, inputs, index: [row, j] }) {
    let [part, start] = [0, 0];
    while (j! >= start + store.size(inputs[part]!, 1)) start += store.size(inputs[part++]!, 1);
    const name = inputs[part]!;
    return copied(store.one(name, store.size(name) > 1 ? row! : 0, j! - start));
  },
  TanhActivation({ store, inputs, index }) {
    const operand = store.one(inputs[0]!, ...index);
    return single(["tanh"], [operand], [Math.tanh(valueOf(operand))]);
  },
  Activation({ store, inputs, constants, index }) {
    const operand = store.one(inputs[0]!, ...index);
    const name = constants.function as string;
    return single([name], [operand], [FUNCTIONS[name]!(valueOf(operand))]);
  },
  GatedActivation({ store, inputs, constants, index: [row, j] }) {
    const half = Math.floor(store.size(inputs[0]!, 1) / 2);
    const [gate, inner] = [j!, j! + half].map((i) => store.one(inputs[0]!, row!, i)) as [
      ReturnType<typeof store.one>,
      ReturnType<typeof store.one>,
    ];
    const name = constants.function as string;
    const gated = FUNCTIONS[name]!(valueOf(gate));
    return single([`${name}(gate)`, "· inner"], [gate, inner], [gated, gated * valueOf(inner)]);
  },
  GivenTensor: ({ store, name, index }) => copied(constant("given", store.value(name, index))),
};
