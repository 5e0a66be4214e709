/** Where the numbers come from: a running server (Live) or a page saved with its own numbers (Frozen). */

import type * as c from "./contract";
import { fromBase64, parse, type Tensor } from "./safetensors";

/** One clear line for a person, and a code for the page. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly status = 0,
  ) {
    super(message);
  }
}

/** True for a request that was given up because a newer one took its place. */
export const isAbort = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "AbortError";

export interface DataSource {
  /** A frozen page cannot trace anew: Run, edits and sweeps are off. */
  readonly frozen: boolean;
  models(signal?: AbortSignal): Promise<c.Model[]>;
  graph(model: string, signal?: AbortSignal): Promise<c.Graph>;
  tokenize(model: string, text: string, side: c.Side, signal?: AbortSignal): Promise<c.Tokenized>;
  trace(request: c.TraceRequest, signal?: AbortSignal): Promise<c.Trace>;
  tensors(trace: c.Trace, names: string[], signal?: AbortSignal): Promise<Map<string, Tensor>>;
  explain(trace: c.Trace, name: string, index: number[]): Promise<c.Explanation>;
  neighbours(
    trace: c.Trace,
    side: c.Side,
    position: number,
    n?: number,
    signal?: AbortSignal,
  ): Promise<c.Neighbours>;
  space(trace: c.Trace, side: c.Side, signal?: AbortSignal): Promise<c.Space>;
  output(
    trace: c.Trace,
    row: number,
    n?: number,
    word?: string,
    signal?: AbortSignal,
  ): Promise<c.OutputRow>;
  alignment(trace: c.Trace, attention: string, signal?: AbortSignal): Promise<c.Alignment>;
  walk(trace: c.Trace, side: c.Side, position: number, signal?: AbortSignal): Promise<c.Walk>;
  beam(trace: c.Trace, width: number, signal?: AbortSignal): Promise<c.BeamTree>;
  causes(trace: c.Trace, signal?: AbortSignal): Promise<c.Causes>;
  wall(trace: c.Trace, signal?: AbortSignal): Promise<c.WallHead[]>;
  sweep(
    model: string,
    source: string,
    target: string | null,
    signal?: AbortSignal,
  ): Promise<c.Sweep>;
  /** The trace as a file. */
  exported(
    trace: c.Trace,
    format: c.ExportFormat,
    names?: string[],
    signal?: AbortSignal,
  ): Promise<Blob>;
}

type Query = Record<string, string | number | string[] | undefined>;

function query(values: Query): string {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [String(value)]) parts.append(key, one);
  }
  const text = parts.toString();
  return text ? `?${text}` : "";
}

/** The answers that are plain reads of a trace: both sources share their addresses. */
abstract class Reads implements DataSource {
  abstract readonly frozen: boolean;
  abstract models(signal?: AbortSignal): Promise<c.Model[]>;
  abstract graph(model: string, signal?: AbortSignal): Promise<c.Graph>;
  abstract tokenize(
    model: string,
    text: string,
    side: c.Side,
    signal?: AbortSignal,
  ): Promise<c.Tokenized>;
  abstract trace(request: c.TraceRequest, signal?: AbortSignal): Promise<c.Trace>;
  abstract tensors(
    trace: c.Trace,
    names: string[],
    signal?: AbortSignal,
  ): Promise<Map<string, Tensor>>;
  abstract sweep(
    model: string,
    source: string,
    target: string | null,
    signal?: AbortSignal,
  ): Promise<c.Sweep>;
  abstract exported(
    trace: c.Trace,
    format: c.ExportFormat,
    names?: string[],
    signal?: AbortSignal,
  ): Promise<Blob>;
  /** One read of a trace: `what` and its query, e.g. "walk", {side, position}. */
  protected abstract read<T>(
    trace: c.Trace,
    what: string,
    values: Query,
    signal?: AbortSignal,
  ): Promise<T>;

  private explained = new Map<string, Promise<c.Explanation>>();

  /** What is asked once is kept: a click asks before the page is drawn anew, the drawer finds it under way. */
  explain(trace: c.Trace, name: string, index: number[]): Promise<c.Explanation> {
    const key = `${trace.id} ${name} ${index.join(",")}`;
    let answer = this.explained.get(key);
    if (!answer) {
      if (this.explained.size > 500) this.explained.clear();
      answer = this.read<c.Explanation>(trace, "explain", { tensor: name, index: index.join(",") });
      this.explained.set(key, answer);
      answer.catch(() => this.explained.delete(key));
    }
    return answer;
  }
  neighbours(
    trace: c.Trace,
    side: c.Side,
    position: number,
    n = 10,
    signal?: AbortSignal,
  ): Promise<c.Neighbours> {
    return this.read(trace, "neighbours", { side, position, n }, signal);
  }
  space(trace: c.Trace, side: c.Side, signal?: AbortSignal): Promise<c.Space> {
    return this.read(trace, "space", { side }, signal);
  }
  output(
    trace: c.Trace,
    row: number,
    n = 20,
    word?: string,
    signal?: AbortSignal,
  ): Promise<c.OutputRow> {
    return this.read(trace, "output", { row, n, word: word || undefined }, signal);
  }
  alignment(trace: c.Trace, attention: string, signal?: AbortSignal): Promise<c.Alignment> {
    return this.read(trace, "alignment", { attention }, signal);
  }
  walk(trace: c.Trace, side: c.Side, position: number, signal?: AbortSignal): Promise<c.Walk> {
    return this.read(trace, "walk", { side, position }, signal);
  }
  beam(trace: c.Trace, width: number, signal?: AbortSignal): Promise<c.BeamTree> {
    return this.read(trace, "beam", { width }, signal);
  }
  causes(trace: c.Trace, signal?: AbortSignal): Promise<c.Causes> {
    return this.read(trace, "causes", {}, signal);
  }
  async wall(trace: c.Trace, signal?: AbortSignal): Promise<c.WallHead[]> {
    return (await this.read<{ heads: c.WallHead[] }>(trace, "wall", {}, signal)).heads;
  }
}

/** A busy server is asked again after these pauses, in milliseconds; then the page says so. */
const BUSY = [400, 1200, 3000];

function pause(milliseconds: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      failed(new DOMException("given up", "AbortError"));
    });
  });
}

/** A running `regard explore`. */
export class Live extends Reads {
  readonly frozen = false;
  private asked = new Map<string, c.TraceRequest>();
  private kept = new Map<string, Map<string, Promise<Tensor | undefined>>>();

  constructor(private readonly root = "./") {
    super();
  }

  private async fetch(path: string, init: RequestInit = {}, patience = BUSY): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(this.root + path, init);
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new ApiError(
        "unreachable",
        "The server does not answer. Is `regard explore` still running?",
      );
    }
    if (response.ok) return response;
    const [wait, ...less] = patience;
    if (response.status === 429 && wait !== undefined) {
      await pause(wait, init.signal);
      return this.fetch(path, init, less);
    }
    let code = `http-${response.status}`;
    let message = `The server answered ${response.status} ${response.statusText}.`;
    try {
      const body = (await response.json()) as { error?: { code: string; message: string } };
      if (body.error) ({ code, message } = body.error);
    } catch {
      // Not JSON: the status line says enough.
    }
    throw new ApiError(code, message, response.status);
  }

  private async json<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await (await this.fetch(path, { signal: signal ?? null })).json()) as T;
  }

  private async post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    const headers = { "content-type": "application/json" };
    const response = await this.fetch(path, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      signal: signal ?? null,
    });
    return (await response.json()) as T;
  }

  async models(signal?: AbortSignal): Promise<c.Model[]> {
    return (await this.json<{ models: c.Model[] }>("api/models", signal)).models;
  }
  graph(model: string, signal?: AbortSignal): Promise<c.Graph> {
    return this.json(`api/models/${encodeURIComponent(model)}/graph`, signal);
  }
  tokenize(model: string, text: string, side: c.Side, signal?: AbortSignal): Promise<c.Tokenized> {
    return this.post("api/tokenize", { model, text, side }, signal);
  }
  async trace(request: c.TraceRequest, signal?: AbortSignal): Promise<c.Trace> {
    const trace = await this.post<c.Trace>("api/trace", request, signal);
    this.asked.set(trace.id, request);
    return trace;
  }

  /** A read of a trace; one the server has dropped is posted again, once, and the read repeated. */
  private async again(trace: c.Trace, path: string, signal?: AbortSignal): Promise<Response> {
    try {
      return await this.fetch(`api/trace/${trace.id}/${path}`, { signal: signal ?? null });
    } catch (error) {
      const request = this.asked.get(trace.id);
      if (!(error instanceof ApiError) || error.status !== 410 || !request) throw error;
      const fresh = await this.trace(request, signal);
      return await this.fetch(`api/trace/${fresh.id}/${path}`, { signal: signal ?? null });
    }
  }

  protected async read<T>(
    trace: c.Trace,
    what: string,
    values: Query,
    signal?: AbortSignal,
  ): Promise<T> {
    return (await (await this.again(trace, what + query(values), signal)).json()) as T;
  }

  /** Tensors are kept, and views that ask for the same one share its request: none of them gives it up for the others. */
  async tensors(trace: c.Trace, names: string[]): Promise<Map<string, Tensor>> {
    let kept = this.kept.get(trace.id);
    if (!kept) {
      if (this.kept.size >= 4) this.kept.delete(this.kept.keys().next().value!);
      this.kept.set(trace.id, (kept = new Map()));
    }
    const wanted = names.filter((name) => !kept.has(name));
    if (wanted.length) {
      const file = this.again(trace, "tensors" + query({ name: wanted })).then(async (response) =>
        parse(await response.arrayBuffer()),
      );
      for (const name of wanted)
        kept.set(
          name,
          file.then((all) => all.get(name)),
        );
      file.catch(() => wanted.forEach((name) => kept.delete(name)));
    }
    const found = await Promise.all(
      names.map(async (name) => [name, await kept.get(name)] as const),
    );
    return new Map(found.flatMap(([name, tensor]) => (tensor ? [[name, tensor] as const] : [])));
  }
  sweep(
    model: string,
    source: string,
    target: string | null,
    signal?: AbortSignal,
  ): Promise<c.Sweep> {
    return this.post("api/sweep", { model, source, target }, signal);
  }
  async exported(
    trace: c.Trace,
    format: c.ExportFormat,
    names: string[] = [],
    signal?: AbortSignal,
  ): Promise<Blob> {
    return (
      await this.again(
        trace,
        "export" +
          query({ format, name: names, hash: format === "html" ? location.hash : undefined }),
        signal,
      )
    ).blob();
  }
}

/** What a one-file page carries in `<script type="application/json" id="frozen">`. */
export interface FrozenBlock {
  version: 1;
  model: c.Model;
  graph: c.Graph;
  request: c.TraceRequest;
  trace: c.Trace;
  /** base64 of one safetensors file with every tensor the page may show */
  tensors: string;
  /** other reads by address, e.g. "walk?side=source&position=3" or "explain?tensor=enc.0.self.weights&index=0,1,2" */
  reads?: Record<string, unknown>;
  /** the view it was saved from, e.g. "#/attention?h=1" */
  hash?: string;
}

const offline = (what: string): ApiError =>
  new ApiError(
    "frozen",
    `This saved page holds no ${what}. Open the model with \`regard explore\` to compute it.`,
  );

/** A page saved with its numbers: works from disk, computes nothing new. */
export class Frozen extends Reads {
  readonly frozen = true;
  private all: Map<string, Tensor> | null = null;

  constructor(readonly block: FrozenBlock) {
    super();
  }

  async models(): Promise<c.Model[]> {
    return [this.block.model];
  }
  async graph(): Promise<c.Graph> {
    return this.block.graph;
  }
  async tokenize(): Promise<c.Tokenized> {
    throw offline("tokenizer");
  }
  async trace(): Promise<c.Trace> {
    return this.block.trace;
  }
  async tensors(_trace: c.Trace, names: string[]): Promise<Map<string, Tensor>> {
    const all = (this.all ??= parse(fromBase64(this.block.tensors)));
    return new Map(
      names.flatMap((name) => (all.has(name) ? [[name, all.get(name)!] as const] : [])),
    );
  }
  async sweep(): Promise<c.Sweep> {
    throw offline("sweep");
  }
  async exported(trace: c.Trace, format: c.ExportFormat): Promise<Blob> {
    if (format === "json")
      return new Blob([JSON.stringify(trace, null, 1)], { type: "application/json" });
    if (format === "safetensors") return new Blob([fromBase64(this.block.tensors)]);
    if (format === "html")
      return new Blob(["<!doctype html>\n", document.documentElement.outerHTML], {
        type: "text/html",
      });
    throw offline(`${format} export`);
  }
  protected async read<T>(_trace: c.Trace, what: string, values: Query): Promise<T> {
    const found = this.block.reads?.[decodeURIComponent(what + query(values))];
    if (found === undefined)
      throw offline(what === "explain" ? "arithmetic for this number" : what);
    return found as T;
  }
}

/** The source this page was opened with. */
export function openSource(): DataSource {
  const block = document.getElementById("frozen");
  return block?.textContent ? new Frozen(JSON.parse(block.textContent) as FrozenBlock) : new Live();
}
