/**
 * The arithmetic of a saved page: what `Trace.explain` and the table of a weight answer on a live
 * page. A script of its own (arithmetic.js), which only a saved page contains.
 */

import type { WeightTable } from "../lib/api";
import type { Explanation, Operand, TensorInfo, Trace } from "../lib/contract";
import { fromBase64, parse, type Tensor } from "../lib/safetensors";
import type { Explanations } from "./computation";
import { elementWise } from "./element-wise";
import { gates, interventions } from "./gates";
import { normalisers } from "./normalisers";
import { rowWise } from "./row-wise";
import { scores } from "./scores";
import { MissingNumbers, plain, Store, valueOf, type ArithmeticData } from "./store";

const EXPLANATIONS: Explanations = {
  ...elementWise,
  ...rowWise,
  ...scores,
  ...normalisers,
  ...interventions,
  ...gates,
};
const ROWS = 21; // of the table of a weight; as many columns

/** The numbers of a file: the bytes of each word are in four planes. */
async function unpacked(text: string): Promise<Map<string, Tensor>> {
  const inflated = new Blob([fromBase64(text)])
    .stream()
    .pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(inflated).arrayBuffer());
  const words = planes.length / 4;
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < 4; plane++)
    for (let k = 0, at = plane; k < words; k++, at += 4) bytes[at] = planes[plane * words + k]!;
  return parse(bytes.buffer);
}

export class Arithmetic {
  private constructor(
    private readonly trace: Trace,
    private readonly store: Store,
  ) {}

  static async open(
    trace: Trace,
    data: ArithmeticData,
    tensors: Map<string, Tensor>,
  ): Promise<Arithmetic> {
    const numbers = new Map([...(await unpacked(data.numbers)), ...tensors]);
    return new Arithmetic(trace, new Store(data, numbers));
  }

  private info(name: string): TensorInfo {
    const found = this.trace.tensors.find((one) => one.name === name);
    if (!found) throw new Error(`unknown tensor ${name}`);
    return found;
  }

  /** How one number is computed, from its operands. */
  explain(name: string, index: number[]): Explanation {
    const {
      store,
      store: { data },
    } = this;
    const [info, step] = [this.info(name), data.steps[name]!];
    const explain = EXPLANATIONS[step.explained_as];
    if (!explain) throw new MissingNumbers(step.explained_as, 0, 0);
    const { inputs, constants, paper } = step;
    const value = store.value(name, index);
    const site = { store, name, inputs, weights: info.parameters, constants, index };
    const { result, columns, terms, stages } = explain(site);
    const operand = (one: Operand): Operand => ({ ...one, value: plain(valueOf(one)) });
    return {
      name,
      index,
      place: this.place(info, index),
      operation: info.operation,
      formula: info.formula,
      paper,
      columns,
      rows: terms.map((term) => ({
        operands: term.operands.map(operand),
        numbers: term.numbers.map(plain),
        running: term.running === null ? null : plain(term.running),
        here: term.here,
      })),
      steps: stages.map((one) => ({
        label: one.label,
        value: plain(one.value),
        operand: one.operand && operand(one.operand),
      })),
      result: plain(result),
      value: plain(value),
      difference: plain(result === value ? 0 : Math.abs(result - value)),
    };
  }

  /** An index with the names of its axes and the tokens there. */
  private place({ axes }: TensorInfo, index: number[]): string {
    const text = (axis?: string): boolean => axis === "source" || axis === "target";
    const parts = axes.map((axis, at) => {
      let title = axis;
      if (axes.length === 3 && axes[0] === "head" && text(axis))
        title = at === 2 ? "key" : text(axes[2]) ? "query" : axis;
      return `${title} ${index[at]}${this.word(axis, index[at]!)}`;
    });
    return parts.join(", ") || "the whole output";
  }

  private word(axis: string, i: number): string {
    const { tokens } = this.trace;
    const label =
      axis === "vocabulary"
        ? this.store.data.labels.target?.[i]
        : axis === "source" || axis === "target"
          ? tokens[axis][i]?.text
          : undefined;
    return label === undefined ? "" : ` “${label}”`;
  }

  /** The part of a parameter's table around one weight; of a partial table its row. */
  weightTable(name: string, index: number[]): WeightTable {
    const {
      store,
      store: { data },
    } = this;
    const shape = store.tensor(name).shape.map((_, axis) => store.size(name, axis));
    const flat = shape.length < 2;
    const place = (flat ? [0, index[0]!] : index.slice(-2)) as [number, number];
    const sizes = (flat ? [1, shape[0]!] : shape.slice(-2)) as [number, number];
    const most = [data.rows[name] ? 1 : ROWS, ROWS];
    const [starts, counts] = [
      place.map((at, k) => Math.max(0, Math.min(at - (most[k]! >> 1), sizes[k]! - most[k]!))),
      sizes.map((size, k) => Math.min(size, most[k]!)),
    ] as [[number, number], [number, number]];
    const lead = index.slice(0, -2);
    const numbers = Array.from({ length: counts[0] }, (_, i) =>
      Array.from({ length: counts[1] }, (_, j) => {
        const at = [starts[0] + i, starts[1] + j];
        return store.value(name, flat ? [at[1]!] : [...lead, ...at]);
      }),
    );
    const side = data.tables[name];
    return {
      name,
      shape,
      used_by: this.trace.tensors
        .filter((one) => one.parameters.includes(name))
        .map((one) => one.name),
      first: starts,
      at: [place[0] - starts[0], place[1] - starts[1]],
      numbers,
      row_labels: side ? data.labels[side]!.slice(starts[0], starts[0] + counts[0]) : null,
    };
  }
}

window.regardArithmetic = { open: Arithmetic.open };
