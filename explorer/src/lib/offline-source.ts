/** Data inside a saved page: it works from disk and computes nothing new. */

import type { Arithmetic } from "../arithmetic/main";
import type { ArithmeticData, MissingNumbers } from "../arithmetic/store";
import { ApiError, DataSource, queryString, type DerivedNumber, type Query } from "./api";
import type * as c from "./contract";
import { explainFromTables, type Tables } from "./offline-tables";
import { fromBase64, parse, type Tensor } from "./safetensors";
import { ServerSource } from "./server-source";
import { savedTexts } from "./texts.arithmetic.en";

/** The contents of `<script type="application/json" id="offline-data">` in a saved page. */
export interface OfflineData {
  version: 1;
  model: c.Model;
  graph: c.Graph;
  request: c.TraceRequest;
  trace: c.Trace;
  /** base64 of one safetensors file with every tensor of the trace */
  tensors: string;
  /** views by address, e.g. "residual-stream?side=source&position=3" */
  views?: Record<string, unknown>;
  /** the vectors of the tokens that the page shows */
  tables?: Tables | null;
  /** the program of the trace and the weights it reads */
  arithmetic?: ArithmeticData;
  /** the address it was saved from, e.g. "#/attention?h=1" */
  hash?: string;
}

const missing = (what: string): ApiError =>
  new ApiError(
    "offline",
    `This saved page does not contain ${what}. Run \`regard explore\` on the model to compute it.`,
  );

export class OfflineSource extends DataSource {
  readonly offline = true;
  private allTensors: Map<string, Tensor> | null = null;

  constructor(readonly data: OfflineData) {
    super();
  }

  async models(): Promise<c.Model[]> {
    return [this.data.model];
  }
  async graph(): Promise<c.Graph> {
    return this.data.graph;
  }
  async tokenize(): Promise<c.Tokenized> {
    throw missing("the tokenizer");
  }
  async trace(): Promise<c.Trace> {
    return this.data.trace;
  }
  async film(): Promise<c.Film> {
    throw missing("the training film");
  }
  async filmMarkers(): Promise<c.FilmMarker[]> {
    return [];
  }
  async frame(): Promise<c.Trace> {
    return this.data.trace;
  }
  readyFrame(): c.Trace | null {
    return null;
  }
  async prefetch(): Promise<void> {}
  private get every(): Map<string, Tensor> {
    return (this.allTensors ??= parse(fromBase64(this.data.tensors)));
  }
  async tensors(_trace: c.Trace, names: string[]): Promise<Map<string, Tensor>> {
    const all = this.every;
    return new Map(names.flatMap((name) => (all.has(name) ? [[name, all.get(name)!]] : [])));
  }
  async logits(trace: c.Trace, row: number): Promise<Float32Array | null> {
    const names = ["out.tempered", "out.logits"];
    const found = await this.tensors(trace, names);
    const tensor = names.map((name) => found.get(name)).find(Boolean);
    const size = tensor?.shape[1] ?? 0;
    return tensor ? tensor.data.subarray(row * size, (row + 1) * size) : null;
  }
  async ablateHeads(): Promise<c.HeadAblation> {
    throw missing("the head ablation");
  }
  async exportFile(trace: c.Trace, format: c.ExportFormat): Promise<Blob> {
    if (format === "json")
      return new Blob([JSON.stringify(trace, null, 1)], { type: "application/json" });
    if (format === "safetensors") return new Blob([fromBase64(this.data.tensors)]);
    if (format === "html")
      return new Blob(["<!doctype html>\n", document.documentElement.outerHTML], {
        type: "text/html",
      });
    throw missing(`the ${format} export`);
  }
  override async explainDerived(
    trace: c.Trace,
    what: DerivedNumber,
    values: Query,
    shown: number,
  ): Promise<c.Explanation> {
    return (
      explainFromTables(this.data.tables, what, values, shown) ??
      (await this.view<c.Explanation>(trace, `explain-${what}`, values))
    );
  }
  private opened: Promise<Arithmetic> | null = null;
  /** An explanation or the table of a weight, computed from the numbers in the file. */
  private async arithmetic<T>(make: (of: Arithmetic) => T): Promise<T> {
    const { arithmetic, trace } = this.data;
    const script = window.regardArithmetic;
    if (!arithmetic || !script) throw missing("the arithmetic of this number");
    this.opened ??= script.open(trace, arithmetic, this.every);
    try {
      return make(await this.opened);
    } catch (error) {
      const { missing: name, bytes, limit } = error as MissingNumbers;
      if (!name) throw error;
      throw new ApiError("offline", savedTexts.missing(name, bytes, limit));
    }
  }
  protected async view<T>(_trace: c.Trace, name: string, values: Query): Promise<T> {
    if (name === "explain" || name === "weight-table") {
      const index = String(values.index ?? "")
        .split(",")
        .filter(Boolean)
        .map(Number);
      return this.arithmetic((of) =>
        name === "explain"
          ? of.explain(String(values.tensor), index)
          : of.weightTable(String(values.name), index),
      ) as Promise<T>;
    }
    const found = this.data.views?.[decodeURIComponent(name + queryString(values))];
    if (found === undefined)
      throw missing(
        name.startsWith("explain") ? "the arithmetic of this number" : `the view ${name}`,
      );
    return found as T;
  }
}

/** The data source this page was opened with. */
export function openSource(): DataSource {
  const block = document.getElementById("offline-data");
  return block?.textContent
    ? new OfflineSource(JSON.parse(block.textContent) as OfflineData)
    : new ServerSource();
}
