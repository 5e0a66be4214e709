/** Interventions, and the gates of GRU and LSTM cells (interventions.py, gates.py). */

import type { Operand } from "../lib/contract";
import {
  computation,
  constant,
  copied,
  productSum,
  sigmoid,
  single,
  stage,
  term,
  type Computation,
  type Explanations,
  type Site,
} from "./computation";
import { constantAt, valueOf } from "./store";

/** The input's and the previous state's contribution to one unit of a gate. */
function sums({ store, inputs, constants, index: [row, j] }: Site): [Operand, Operand] {
  const at = (constants.part as number) * (constants.width as number) + j!;
  return [store.one(inputs[0]!, row!, at), store.one(inputs[1]!, row!, at)];
}

function squashed(lines: Operand[][], label: string, f: (x: number) => number): Computation {
  const [terms, total] = productSum(lines);
  return computation(f(total), ["term"], terms, [stage(label, f(total))]);
}

const own = ({ store, inputs, index }: Site): Computation =>
  copied(store.one(inputs[0]!, ...index));
const inputsAt = ({ store, inputs, index }: Site): Operand[] =>
  inputs.map((name) => store.one(name, ...index));

export const interventions: Explanations = {
  ZeroedHead: (site) =>
    site.index[0] === site.constants.head ? copied(constant("set by hand", 0)) : own(site),
  MeanAblatedHead(site) {
    const { store, inputs, constants, index } = site;
    if (index[0] !== constants.head) return own(site);
    const lines = store.along(inputs[0]!, index[0]!, null, index[2]!).map((one) => [one]);
    const [terms, total] = productSum(lines);
    const stages = [stage("Σ", total), stage("rows", terms.length)];
    return computation(total / terms.length, ["term"], terms, stages);
  },
  UniformHead(site) {
    const { store, inputs, constants, index } = site;
    const [head, query, key] = index as [number, number, number];
    if (head !== constants.head) return own(site);
    const seen = store
      .along(inputs[1]!, head, query, null)
      .map((one) => Number.isFinite(valueOf(one)));
    const count = seen.filter(Boolean).length;
    const result = seen[key] ? 1 / count : 0;
    return computation(result, [], [], [stage("visible keys", count), stage("share", result)]);
  },
  RowReplacement(site) {
    const { constants, index } = site;
    if (index[0] !== constants.head || index[1] !== constants.query) return own(site);
    return copied(constant("set by hand", (constants.values as number[])[index[2]!]!));
  },
  ZeroTensor: () => copied(constant("disabled", 0)),
  PatchedTensor(site) {
    const { shape } = site.constants.given as { shape: number[] };
    if (site.index.some((at, axis) => at >= shape[axis]!)) return own(site);
    return copied(constant("patched", constantAt(site.constants.given, site.index, "float32")));
  },
};

export const gates: Explanations = {
  PreviousState({ store, inputs, constants, index: [t, j] }) {
    const last = store.size(inputs[0]!) - 1;
    const before = constants.backward ? t! + 1 : t! - 1;
    if (before >= 0 && before <= last) return copied(store.one(inputs[0]!, before, j!));
    if (inputs.length < 2) return copied(constant("zero at the start", 0));
    return copied(store.one(inputs[1]!, 0, (constants.first as number) + j!));
  },
  SigmoidGate: (site) =>
    squashed(
      sums(site).map((one) => [one]),
      "σ",
      sigmoid,
    ),
  CellCandidate: (site) =>
    squashed(
      sums(site).map((one) => [one]),
      "tanh",
      Math.tanh,
    ),
  GruCandidate(site) {
    const [ih, hh] = sums(site);
    const reset = site.store.one(site.inputs[2]!, ...site.index);
    return squashed([[ih], [reset, hh]], "tanh", Math.tanh);
  },
  GruState(site) {
    const [z, fresh, before] = inputsAt(site) as [Operand, Operand, Operand];
    const made = (1 - valueOf(z)) * valueOf(fresh);
    const old = valueOf(z) * valueOf(before);
    const terms = [term([z, fresh], [made], made), term([z, before], [old], made + old)];
    return computation(made + old, ["(1 − z) · n, z · h"], terms);
  },
  LstmCell(site) {
    const [forget, before, enter, fresh] = inputsAt(site) as [Operand, Operand, Operand, Operand];
    const [terms, total] = productSum([
      [forget, before],
      [enter, fresh],
    ]);
    return computation(total, ["product"], terms);
  },
  LstmState(site) {
    const [out, cell] = inputsAt(site) as [Operand, Operand];
    const activated = Math.tanh(valueOf(cell));
    return single(["tanh(c)", "· o"], [out, cell], [activated, valueOf(out) * activated]);
  },
  EncoderSummary({ store, inputs, index: [, j] }) {
    const [forward, backward] = inputs as [string, string];
    const half = store.size(forward, 1);
    return j! < half
      ? copied(store.one(forward, store.size(forward) - 1, j!))
      : copied(store.one(backward, 0, j! - half));
  },
};
