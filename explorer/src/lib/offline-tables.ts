/** The vectors in a saved page that explain cosines, coordinates and logit-lens probabilities. */

import type { DerivedNumber, Query } from "./api";
import type { Explanation } from "./contract";
import { embeddingCosine, lensProbability, pcaCoordinate, type TableRow } from "./derived-tables";
import { parameterAt } from "./explanation";
import { fromBase64 } from "./safetensors";

/** Rows of a table as base64 of float32, and the tokens they belong to. */
interface Rows {
  table: string;
  ids: number[];
  labels: string[];
  vectors: string;
}

export interface Tables {
  embeddings: Record<string, Rows & { centre: number[]; axes: number[][] }>;
  /** the output table, and by tensor and row the states and the logarithms of Σ exp(logits) */
  lens: {
    output: Rows;
    bias: { name: string; values: number[] } | null;
    states: Record<string, string>;
    normalisers: Record<string, number[]>;
  } | null;
}

const floats = (text: string): Float32Array => new Float32Array(fromBase64(text));

function rowOf({ table, ids, labels, vectors }: Rows, id: number): TableRow | null {
  const at = ids.indexOf(id);
  if (at < 0) return null;
  const all = floats(vectors);
  const width = all.length / ids.length;
  return { table, id, label: labels[at]!, numbers: all.subarray(at * width, (at + 1) * width) };
}

/** The explanation of a number; null if the saved page does not have its vectors. */
export function explainFromTables(
  tables: Tables | null | undefined,
  what: DerivedNumber,
  values: Query,
  shown: number,
): Explanation | null {
  const side = String(values.side);
  const embeddings = tables?.embeddings[side];
  if (what === "cosine" && embeddings) {
    const [a, b] = [values.first, values.second].map((id) => rowOf(embeddings, Number(id)));
    return a && b ? embeddingCosine(side, a, b, shown) : null;
  }
  if (what === "pca" && embeddings) {
    const [row, axis] = [rowOf(embeddings, Number(values.token)), Number(values.axis)];
    const direction = embeddings.axes[axis];
    if (!row || !direction) return null;
    return pcaCoordinate(side, row, axis, embeddings.centre, direction, shown);
  }
  const lens = tables?.lens;
  if (what !== "lens" || !lens) return null;
  const [tensor, at] = [String(values.tensor), Number(values.row)];
  const [states, normaliser] = [lens.states[tensor], lens.normalisers[tensor]?.[at]];
  const output = rowOf(lens.output, Number(values.token));
  if (!states || normaliser === undefined || !output) return null;
  const width = output.numbers.length;
  const state = floats(states).subarray(at * width, (at + 1) * width);
  const place = lens.output.ids.indexOf(output.id);
  const bias = lens.bias && parameterAt(lens.bias.name, [output.id], lens.bias.values[place]!);
  return lensProbability(tensor, at, state, output, bias, normaliser, shown);
}
