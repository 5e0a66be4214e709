/** Data from a running `regard explore`. */

import { ApiError, DataSource, isAbort, queryString, type Query } from "./api";
import type * as c from "./contract";
import { parse, type Tensor } from "./safetensors";

/** Pauses in milliseconds before the retries of a request to a busy server. */
const RETRY_DELAYS = [400, 1200, 3000];
/** Traces whose tensors stay in memory: all frames of a film, unless they are large. */
const CACHED_TRACES = 64;
const LEAST_TRACES = 4;
const CACHED_BYTES = 192 * 2 ** 20;
const CACHED_FRAMES = 600;
const CACHED_VIEWS = 4000;

interface TensorCache extends Map<string, Promise<Tensor | undefined>> {
  bytes?: number;
}

function pause(milliseconds: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    });
  });
}

async function errorOf(response: Response): Promise<ApiError> {
  let code = `http-${response.status}`;
  let message = `The server returned ${response.status} ${response.statusText}.`;
  try {
    const body = (await response.json()) as { error?: { code: string; message: string } };
    if (body.error) ({ code, message } = body.error);
  } catch {
    // Not JSON: report the status line.
  }
  return new ApiError(code, message, response.status);
}

export class ServerSource extends DataSource {
  readonly offline = false;
  private requests = new Map<string, c.TraceRequest>();
  private tensorCaches = new Map<string, TensorCache>();
  /** traces of snapshots by request, and their views by address */
  private frames = new Map<string, Promise<c.Trace>>();
  private readyFrames = new Map<string, c.Trace>();
  private views = new Map<string, Promise<unknown>>();
  private viewPaths = new Map<string, Set<string>>();

  constructor(private readonly root = "./") {
    super();
  }

  private async fetch(
    path: string,
    init: RequestInit = {},
    delays = RETRY_DELAYS,
  ): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(this.root + path, init);
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new ApiError("unreachable", "Cannot reach the server. Is `regard explore` running?");
    }
    if (response.ok) return response;
    const [delay, ...remaining] = delays;
    if (response.status === 429 && delay !== undefined) {
      await pause(delay, init.signal);
      return this.fetch(path, init, remaining);
    }
    throw await errorOf(response);
  }

  private async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await (await this.fetch(path, { signal: signal ?? null })).json()) as T;
  }

  private async post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    const response = await this.fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: signal ?? null,
    });
    return (await response.json()) as T;
  }

  async models(signal?: AbortSignal): Promise<c.Model[]> {
    return (await this.get<{ models: c.Model[] }>("api/models", signal)).models;
  }
  graph(model: string, signal?: AbortSignal): Promise<c.Graph> {
    return this.get(`api/models/${encodeURIComponent(model)}/graph`, signal);
  }
  tokenize(model: string, text: string, side: c.Side, signal?: AbortSignal): Promise<c.Tokenized> {
    return this.post("api/tokenize", { model, text, side }, signal);
  }
  async trace(request: c.TraceRequest, signal?: AbortSignal): Promise<c.Trace> {
    const trace = await this.post<c.Trace>("api/trace", request, signal);
    this.requests.set(trace.id, request);
    return trace;
  }

  /** Reads from a trace. If the server has dropped it, the trace is requested again, once. */
  private async fetchFrom(trace: c.Trace, path: string, signal?: AbortSignal): Promise<Response> {
    const init = { signal: signal ?? null };
    try {
      return await this.fetch(`api/trace/${trace.id}/${path}`, init);
    } catch (error) {
      const request = this.requests.get(trace.id);
      if (!(error instanceof ApiError) || error.status !== 410 || !request) throw error;
      const fresh = await this.trace(request, signal);
      return await this.fetch(`api/trace/${fresh.id}/${path}`, init);
    }
  }

  protected async view<T>(
    trace: c.Trace,
    name: string,
    values: Query,
    signal?: AbortSignal,
  ): Promise<T> {
    const path = name + queryString(values);
    if (trace.checkpoint === null || name === "explain")
      return (await (await this.fetchFrom(trace, path, signal)).json()) as T;
    return (await this.frameView(trace, path)) as T;
  }
  /** A view of a snapshot, cached: the slider returns to it. */
  private frameView(trace: c.Trace, path: string): Promise<unknown> {
    const key = `${trace.id} ${path}`;
    let view = this.views.get(key);
    if (!view) {
      if (this.views.size >= CACHED_VIEWS) this.views.clear();
      view = this.fetchFrom(trace, path).then((response) => response.json());
      this.views.set(key, view);
      view.catch(() => this.views.delete(key));
    }
    const paths = this.viewPaths.get(trace.id) ?? new Set<string>();
    this.viewPaths.set(trace.id, paths.add(path));
    return view;
  }

  film(model: string, signal?: AbortSignal): Promise<c.Film> {
    return this.get(`api/models/${encodeURIComponent(model)}/film`, signal);
  }
  async filmMarkers(model: string, signal?: AbortSignal): Promise<c.FilmMarker[]> {
    const path = `api/models/${encodeURIComponent(model)}/film/markers`;
    return (await this.get<{ markers: c.FilmMarker[] }>(path, signal)).markers;
  }
  async frame(request: c.TraceRequest): Promise<c.Trace> {
    let target = request.target;
    if (target === null) {
      const { checkpoint: _, ...finished } = { ...request, edits: [] };
      target = (await this.cachedTrace(finished)).output.text;
    }
    const trace = await this.cachedTrace({ ...request, target });
    if (this.readyFrames.size >= CACHED_FRAMES) this.readyFrames.clear();
    this.readyFrames.set(JSON.stringify(request), trace);
    return trace;
  }
  readyFrame(request: c.TraceRequest): c.Trace | null {
    return this.readyFrames.get(JSON.stringify(request)) ?? null;
  }
  private cachedTrace(request: c.TraceRequest): Promise<c.Trace> {
    const key = JSON.stringify(request);
    let trace = this.frames.get(key);
    if (!trace) {
      if (this.frames.size >= CACHED_FRAMES) this.frames.clear();
      trace = this.trace(request);
      this.frames.set(key, trace);
      trace.catch(() => this.frames.delete(key));
    }
    return trace;
  }
  async prefetch(like: c.Trace, trace: c.Trace): Promise<void> {
    const known = new Set(trace.tensors.map((tensor) => tensor.name));
    const names = [...(this.tensorCaches.get(like.id)?.keys() ?? [])];
    const paths = [...(this.viewPaths.get(like.id) ?? [])];
    const wanted = names.filter((name) => known.has(name));
    if (wanted.length) await this.tensors(trace, wanted);
    await Promise.all(paths.map((path) => this.frameView(trace, path)));
  }

  /** Cached. Views that need the same tensor share one request, so none of them may cancel it. */
  async tensors(trace: c.Trace, names: string[]): Promise<Map<string, Tensor>> {
    const cache = this.cacheOf(trace);
    const missing = names.filter((name) => !cache.has(name));
    if (missing.length) {
      const file = this.fetchFrom(trace, "tensors" + queryString({ name: missing })).then(
        async (response) => {
          const file = await response.arrayBuffer();
          cache.bytes = (cache.bytes ?? 0) + file.byteLength;
          this.dropTensors();
          return parse(file);
        },
      );
      for (const name of missing)
        cache.set(
          name,
          file.then((all) => all.get(name)),
        );
      file.catch(() => missing.forEach((name) => cache.delete(name)));
    }
    const found = await Promise.all(
      names.map(async (name) => [name, await cache.get(name)] as const),
    );
    return new Map(found.flatMap(([name, tensor]) => (tensor ? [[name, tensor] as const] : [])));
  }
  async logits(trace: c.Trace, row: number, signal?: AbortSignal): Promise<Float32Array | null> {
    if (trace.partial || !trace.tensors.some((one) => one.name === "out.logits")) return null;
    const response = await this.fetchFrom(trace, `logits?row=${row}`, signal);
    return new Float32Array(await response.arrayBuffer());
  }
  private cacheOf(trace: c.Trace): TensorCache {
    let cache = this.tensorCaches.get(trace.id);
    if (!cache) {
      this.tensorCaches.set(trace.id, (cache = new Map()));
      this.dropTensors();
    }
    return cache;
  }
  /** Drops the tensors of the oldest traces while there are too many. */
  private dropTensors(): void {
    const caches = this.tensorCaches;
    const bytes = (): number =>
      [...caches.values()].reduce((sum, cache) => sum + (cache.bytes ?? 0), 0);
    while (caches.size > CACHED_TRACES || (caches.size > LEAST_TRACES && bytes() > CACHED_BYTES))
      caches.delete(caches.keys().next().value!);
  }

  ablateHeads(
    model: string,
    source: string,
    target: string | null,
    signal?: AbortSignal,
    checkpoint: number | null = null,
  ): Promise<c.HeadAblation> {
    return this.post("api/head-ablation", { model, source, target, checkpoint }, signal);
  }
  async exportFile(
    trace: c.Trace,
    format: c.ExportFormat,
    names: string[] = [],
    signal?: AbortSignal,
  ): Promise<Blob> {
    const hash = format === "html" ? location.hash : undefined;
    const path = "export" + queryString({ format, name: names, hash });
    return (await this.fetchFrom(trace, path, signal)).blob();
  }
}
