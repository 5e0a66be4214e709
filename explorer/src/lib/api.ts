/** The interface of a data source: a running server, or the data inside a saved page. */

import type * as c from "./contract";
import type { Tensor } from "./safetensors";
import type { PositionEncodings, Tokenization } from "./views-contract";

/** An error with one line for the user and a code for the page. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly status = 0,
  ) {
    super(message);
  }
}

/** True for a request that was cancelled because a newer one replaced it. */
export const isAbort = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "AbortError";

export type Query = Record<string, string | number | string[] | undefined>;

export function queryString(values: Query): string {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [String(value)]) parts.append(key, one);
  }
  const text = parts.toString();
  return text ? `?${text}` : "";
}

type Signal = AbortSignal | undefined;

export type DerivedNumber = "cosine" | "pca" | "lens" | "lens-rank";

/** Rows and columns of a parameter around one weight; `first` is the index of the first of each. */
export interface WeightTable {
  name: string;
  shape: number[];
  /** the tensors that are computed with it */
  used_by: string[];
  first: [number, number];
  /** the row and the column of the weight, counted from the first ones */
  at: [number, number];
  numbers: number[][];
  /** the tokens of the rows of an embedding table */
  row_labels: string[] | null;
}

/** What every page reads from. The views of a trace have the same addresses in both sources. */
export abstract class DataSource {
  /** A saved page cannot compute a new trace: Run, edits and ablation are disabled. */
  abstract readonly offline: boolean;
  abstract models(signal?: Signal): Promise<c.Model[]>;
  abstract graph(model: string, signal?: Signal): Promise<c.Graph>;
  abstract tokenize(
    model: string,
    text: string,
    side: c.Side,
    signal?: Signal,
  ): Promise<c.Tokenized>;
  abstract trace(request: c.TraceRequest, signal?: Signal): Promise<c.Trace>;
  /** The training film of a model. */
  abstract film(model: string, signal?: Signal): Promise<c.Film>;
  abstract filmMarkers(model: string, signal?: Signal): Promise<c.FilmMarker[]>;
  /** The trace of a snapshot, scored on the finished model's output if no target is given. */
  abstract frame(request: c.TraceRequest, signal?: Signal): Promise<c.Trace>;
  /** The same, if it is loaded already: the slider then shows it without waiting. */
  abstract readyFrame(request: c.TraceRequest): c.Trace | null;
  /** Loads for one trace the tensors and views that were requested for another one. */
  abstract prefetch(like: c.Trace, trace: c.Trace): Promise<void>;
  abstract tensors(trace: c.Trace, names: string[], signal?: Signal): Promise<Map<string, Tensor>>;
  abstract ablateHeads(
    model: string,
    source: string,
    target: string | null,
    signal?: Signal,
    checkpoint?: number | null,
  ): Promise<c.HeadAblation>;
  abstract exportFile(
    trace: c.Trace,
    format: c.ExportFormat,
    names?: string[],
    signal?: Signal,
  ): Promise<Blob>;
  /** What the softmax of one step reads; null if the page has only the most probable tokens. */
  abstract logits(trace: c.Trace, row: number, signal?: Signal): Promise<Float32Array | null>;
  /** One view of a trace, e.g. "residual-stream" with {side, position}. */
  protected abstract view<T>(
    trace: c.Trace,
    name: string,
    values: Query,
    signal?: Signal,
  ): Promise<T>;

  private explanations = new Map<string, Promise<c.Explanation>>();

  /** Cached: a click requests the explanation before the page redraws, and the drawer reuses it. */
  explain(trace: c.Trace, name: string, index: number[]): Promise<c.Explanation> {
    const key = `${trace.id} ${name} ${index.join(",")}`;
    let explanation = this.explanations.get(key);
    if (!explanation) {
      if (this.explanations.size > 500) this.explanations.clear();
      const values = { tensor: name, index: index.join(",") };
      explanation = this.view<c.Explanation>(trace, "explain", values);
      this.explanations.set(key, explanation);
      explanation.catch(() => this.explanations.delete(key));
    }
    return explanation;
  }
  /**
   * A cosine of two embeddings, a coordinate of the PCA, a probability or a rank of the logit lens.
   * `shown` is the number on the page; a server knows it.
   */
  explainDerived(
    trace: c.Trace,
    what: DerivedNumber,
    values: Query,
    _shown: number,
  ): Promise<c.Explanation> {
    return this.view(trace, `explain-${what}`, values);
  }
  /** The part of a parameter's table around one weight. */
  weightTable(
    trace: c.Trace,
    name: string,
    index: number[],
    signal?: Signal,
  ): Promise<WeightTable> {
    return this.view(trace, "weight-table", { name, index: index.join(",") }, signal);
  }
  neighbours(
    trace: c.Trace,
    side: c.Side,
    position: number,
    n = 10,
    signal?: Signal,
  ): Promise<c.Neighbours> {
    return this.view(trace, "neighbours", { side, position, n }, signal);
  }
  embeddingSpace(trace: c.Trace, side: c.Side, signal?: Signal): Promise<c.EmbeddingSpace> {
    return this.view(trace, "embedding-space", { side }, signal);
  }
  output(
    trace: c.Trace,
    row: number,
    n = 20,
    word?: string,
    signal?: Signal,
  ): Promise<c.OutputRow> {
    return this.view(trace, "output", { row, n, word: word || undefined }, signal);
  }
  tokenization(trace: c.Trace, side: c.Side, signal?: Signal): Promise<Tokenization> {
    return this.view(trace, "tokenization", { side }, signal);
  }
  positions(trace: c.Trace, side: c.Side, signal?: Signal): Promise<PositionEncodings> {
    return this.view(trace, "positions", { side }, signal);
  }
  alignment(trace: c.Trace, attention: string, signal?: Signal): Promise<c.Alignment> {
    return this.view(trace, "alignment", { attention }, signal);
  }
  residualStream(
    trace: c.Trace,
    side: c.Side,
    position: number,
    signal?: Signal,
  ): Promise<c.ResidualStream> {
    return this.view(trace, "residual-stream", { side, position }, signal);
  }
  beamTree(trace: c.Trace, beam: number, signal?: Signal): Promise<c.BeamTree> {
    return this.view(trace, "beam-tree", { beam }, signal);
  }
  occlusion(trace: c.Trace, signal?: Signal): Promise<c.Occlusion> {
    return this.view(trace, "occlusion", {}, signal);
  }
  async headStats(trace: c.Trace, signal?: Signal): Promise<c.HeadStats[]> {
    const { heads, patterns } = await this.view<c.HeadStatistics>(trace, "heads", {}, signal);
    return heads.map((one) => ({ ...one, rows: patterns[one.kind]?.[one.pattern] ?? [] }));
  }
}
