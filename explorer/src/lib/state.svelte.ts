/** The state that all views share: request, trace and selection. The address mirrors it. */

import { ApiError, isAbort, type DataSource, type Query } from "./api";
import type { DerivedNumber } from "./api";
import { OfflineSource, openSource } from "./offline-source";
import type {
  AttentionInfo,
  Decoding,
  Edit,
  Graph,
  Model,
  Side,
  Trace,
  TraceRequest,
} from "./contract";
import { fitInput } from "./input-text";
import { DEFAULT_ADDRESS, formatAddress, parseAddress, type Address } from "./address";
import { texts } from "./texts";
import { ViewState, type Opened } from "./view-state.svelte";

export type Status = "idle" | "loading" | "ready" | "error" | "long";

/** Milliseconds that a click waits for its explanation before the drawer opens without it. */
const SOON = 24;

class Explorer extends ViewState {
  readonly data: DataSource = openSource();

  models = $state.raw<Model[]>([]);
  /** a warning about the address, such as that its model is not open here */
  notice = $state("");
  modelsLoaded = $state(false);
  modelsError = $state("");
  graph = $state.raw<Graph | null>(null);

  modelId = $state("");
  /** the request; the header edits a draft of it */
  source = $state("");
  target = $state<string | null>(null);
  decoding = $state.raw<Decoding>(DEFAULT_ADDRESS.decoding);
  edits = $state.raw<Edit[]>([]);
  /** a step of the training film; null is the finished model */
  checkpoint = $state<number | null>(null);
  /** the address of the reference on the Compare page */
  reference = $state("");

  /** the last text that was changed to the model's alphabet and case */
  fitted = $state.raw<{ side: Side; before: string; after: string } | null>(null);

  trace = $state.raw<Trace | null>(null);
  status = $state<Status>("idle");
  error = $state("");
  /** how often the user has pressed Run and seen the result */
  runs = $state(0);

  /** the shared selection */
  attention = $state("");
  head = $state(0);
  query = $state(0);
  key = $state(0);
  row = $state(0);
  /** the source position while the current attention does not attend to the source */
  private sourcePosition = $state(0);

  private request: AbortController | null = null;
  /** the request of the trace that is shown */
  private tracedRequest: TraceRequest | null = null;
  /** the hash of the current state; another one in the location is a pending navigation */
  private knownHash = location.hash;
  private writeTimer = 0;

  readonly model = $derived(this.models.find((model) => model.id === this.modelId) ?? null);
  /** the selected attention, or the first one */
  readonly currentAttention: AttentionInfo | null = $derived(
    this.trace?.attentions.find((one) => one.name === this.attention) ??
      this.trace?.attentions[0] ??
      null,
  );
  readonly layer = $derived(this.currentAttention?.layer ?? 0);
  /** neither the user nor the address has selected an attention, a head or a pair */
  readonly unselected = $derived(!this.attention && !this.head && !this.query && !this.key);

  /** Loads the models and the state of the address. Call once. */
  async start(): Promise<void> {
    this.followSystemTheme();
    window.addEventListener("hashchange", () => {
      if (location.hash === this.knownHash) return;
      this.knownHash = location.hash;
      // Going back in the history does not change the theme.
      void this.visit({ ...parseAddress(location.hash), theme: this.theme });
    });
    const address = parseAddress(
      location.hash || (this.data instanceof OfflineSource && this.data.data.hash) || "",
    );
    if (address.theme) this.theme = address.theme;
    this.page = address.page;
    try {
      this.models = await this.data.models();
    } catch (error) {
      this.modelsError = (error as Error).message;
    }
    this.modelsLoaded = true;
    await this.visit(address);
  }

  /** Restores a state: from the address, a link or a saved page. */
  async visit(address: Address): Promise<void> {
    // A saved page contains one trace, whatever the address requests.
    if (this.data instanceof OfflineSource)
      address = { ...address, checkpoint: null, ...this.data.data.request };
    const model = this.models.find((one) => one.id === address.model) ?? this.models[0];
    this.page = address.page;
    this.theme = address.theme;
    this.tables = address.tables;
    this.options = address.options;
    this.reference = address.reference;
    const before = JSON.stringify(this.currentRequest());
    this.modelId = model?.id ?? "";
    this.source = address.source ?? model?.example ?? "";
    ({ target: this.target, decoding: this.decoding, edits: this.edits } = address);
    this.checkpoint = model?.film || this.data.offline ? address.checkpoint : null;
    ({
      attention: this.attention,
      head: this.head,
      query: this.query,
      key: this.key,
      row: this.row,
    } = address);
    const same = this.trace !== null && JSON.stringify(this.currentRequest()) === before;
    this.trail = address.opened ? [address.opened] : [];
    this.notice =
      address.model && model && address.model !== model.id
        ? texts.states.otherModel(address.model, model.id)
        : "";
    if (this.notice) this.announce(this.notice);
    if (model && !same) await this.run();
  }

  /** The current state as an address. */
  address(): Address {
    const example = this.model?.example ?? "";
    return {
      page: this.page,
      model: this.page === "start" ? "" : this.modelId,
      source: this.source === example ? null : this.source,
      target: this.target,
      decoding: this.decoding,
      edits: this.edits,
      checkpoint: this.checkpoint,
      attention: this.attention,
      head: this.head,
      query: this.query,
      key: this.key,
      row: this.row,
      theme: this.theme,
      tables: this.tables,
      // only the page knows what it computed
      opened: this.opened?.made || this.opened?.weight ? null : this.opened,
      reference: this.reference,
      options: this.options,
    };
  }

  /** Makes the current request the reference: only what the trace depends on. */
  setReference(): void {
    const { source, decoding, edits, checkpoint } = this.address();
    const model = this.modelId;
    // A snapshot is scored on the finished model's output, which the reference names.
    const target = checkpoint === null ? this.target : (this.trace?.output.text ?? this.target);
    this.reference = formatAddress({
      ...DEFAULT_ADDRESS,
      page: "compare",
      model,
      source,
      target,
      decoding,
      edits,
      checkpoint,
    });
  }
  /** Returns to the reference. */
  restoreReference(): Promise<void> {
    const { model, source, target, decoding, edits, checkpoint } = parseAddress(this.reference);
    return this.visit({ ...this.address(), model, source, target, decoding, edits, checkpoint });
  }
  /** The reference as a request. */
  referenceRequest(): TraceRequest | null {
    if (!this.reference) return null;
    const { model: id, ...rest } = parseAddress(this.reference);
    const model = this.models.find((one) => one.id === id);
    if (!model) return null;
    const { target, decoding, edits, checkpoint } = rest;
    const request = { model: model.id, source: rest.source ?? model.example };
    const step = checkpoint === null ? {} : { checkpoint };
    return { ...request, target, decoding, edits, ...step };
  }

  /** Updates the address: at once for a new page, otherwise after a short pause in the input. */
  syncAddress(): void {
    if (!this.modelsLoaded) return;
    const hash = formatAddress(this.address());
    clearTimeout(this.writeTimer);
    if (hash === location.hash) return;
    if (parseAddress(location.hash).page === this.page)
      this.writeTimer = window.setTimeout(() => this.writeAddress(), 250);
    else this.writeAddress();
  }
  /** Writes the address; a new page adds an entry to the history. */
  writeAddress(): void {
    if (location.hash !== this.knownHash) return; // the user has just navigated
    const samePage = parseAddress(location.hash).page === this.page;
    const hash = formatAddress(this.address());
    if (hash !== location.hash) history[samePage ? "replaceState" : "pushState"](null, "", hash);
    this.knownHash = location.hash;
  }

  /** Requests the explanation of a number and opens it: one frame shows both, if it comes soon. */
  override open(name: string, index: number[], deeper = false): void {
    const [trace, select, turn] = [this.trace, this.takeSelection(), ++this.turn];
    if (!trace) return;
    // The drawer reports an error.
    this.explaining = this.data.explain(trace, name, index).catch(() => undefined);
    const soon = new Promise((resolve) => setTimeout(resolve, SOON));
    void Promise.race([this.explaining, soon]).then(() => {
      if (this.turn !== turn || !this.trace) return;
      select?.();
      super.open(name, index, deeper);
    });
  }

  /** Opens the explanation of a number that the server derives from parameters. */
  async explainDerived(what: DerivedNumber, values: Query, shown: number): Promise<void> {
    const trace = this.trace;
    if (!trace) return;
    try {
      const made = await this.data.explainDerived(trace, what, values, shown);
      if (this.trace === trace) this.explain(made);
    } catch (error) {
      this.announce((this.notice = (error as Error).message));
    }
  }

  /** Opens a model with its example. */
  async openModel(id: string, page = this.page, example: string | null = null): Promise<void> {
    const model = this.models.find((one) => one.id === id);
    if (!model) return;
    // Two models are compared on the same text.
    const source = example ?? (page === "compare" ? this.source : null);
    await this.visit({
      ...DEFAULT_ADDRESS,
      page,
      model: id,
      source,
      theme: this.theme,
      reference: this.reference,
    });
  }

  currentRequest(): TraceRequest {
    const { modelId, source, target, decoding, edits, checkpoint } = this;
    const step = checkpoint === null ? {} : { checkpoint };
    return { model: modelId, source, target, decoding, edits, ...step };
  }

  /** Changes the texts to the model's alphabet and case, where the model cannot tell. */
  private fit(): void {
    if (this.data.offline || !this.model) return;
    const source = fitInput(this.source, this.model.input.source);
    const target = this.target && fitInput(this.target, this.model.input.target);
    if (source !== this.source)
      this.fitted = { side: "source", before: this.source, after: source };
    else if (target !== this.target)
      this.fitted = { side: "target", before: this.target!, after: target! };
    else if (![source, target].includes(this.fitted?.after ?? "")) this.fitted = null;
    this.source = source;
    this.target = target;
  }

  /** Traces the current request; a newer run cancels an older one. */
  async run(): Promise<void> {
    this.fit();
    this.request?.abort();
    const request = (this.request = new AbortController());
    if (!this.source.trim()) {
      this.trace = this.tracedRequest = null;
      this.status = "idle";
      return;
    }
    const requested = this.currentRequest();
    const ready = requested.checkpoint === undefined ? null : this.data.readyFrame(requested);
    if (ready && this.graph && this.trace?.model === ready.model) {
      this.trace = ready;
      this.tracedRequest = requested;
      this.clampSelection(ready);
      this.status = "ready";
      return;
    }
    this.status = "loading";
    this.error = "";
    try {
      const fresh =
        this.graph && this.trace?.model === requested.model
          ? this.graph
          : this.data.graph(requested.model, request.signal);
      const traced =
        requested.checkpoint === undefined
          ? this.data.trace(requested, request.signal)
          : this.data.frame(requested);
      const [trace, graph] = await Promise.all([traced, fresh]);
      if (request.signal.aborted) return;
      this.graph = graph;
      const before = this.trace;
      this.trace = trace;
      this.tracedRequest = requested;
      this.clampSelection(trace);
      if (before && !this.trail.every((opened) => this.contains(opened))) this.trail = [];
      this.status = "ready";
      if (requested.checkpoint !== undefined) return; // the film announces where it rests
      this.announce(
        texts.states.ready(
          trace.tokens.source.length,
          trace.tokens.target.length,
          trace.output.text,
        ),
      );
    } catch (error) {
      if (isAbort(error) || request.signal.aborted) return;
      this.error = (error as Error).message;
      this.status = error instanceof ApiError && /long|limit/.test(error.code) ? "long" : "error";
      // A failed edit is undone. For a failed text nothing is shown: no other text's numbers.
      const withoutEdits = (request: TraceRequest): string =>
        JSON.stringify({ ...request, edits: [] });
      if (
        this.tracedRequest &&
        this.status === "error" &&
        withoutEdits(this.tracedRequest) === withoutEdits(requested)
      )
        this.edits = this.tracedRequest.edits;
      else this.trace = this.tracedRequest = null;
      this.announce(this.error);
    }
  }

  /** A selection made in another text may lie outside this one. */
  private clampSelection(trace: Trace): void {
    const attention = this.currentAttention;
    const inside = (value: number, size: number): number => Math.max(0, Math.min(value, size - 1));
    if (attention) {
      if (this.attention && attention.name !== this.attention) this.attention = "";
      this.head = inside(this.head, attention.heads);
      this.query = inside(this.query, trace.tokens[attention.query].length);
      this.key = inside(this.key, trace.tokens[attention.key].length);
    }
    this.row = inside(this.row, trace.tokens.target.length);
  }

  /** Whether the trace contains this number. */
  private contains({ name, index, made }: Opened): boolean {
    if (made) return false;
    const shape = this.info(name)?.shape;
    return shape !== undefined && index.every((at, axis) => at < (shape[axis] ?? 0));
  }

  /** Selects an attention and a head; the selected tokens are clamped to it. The step stays. */
  selectAttention(attention: string, head = this.head): void {
    this.attention = attention;
    this.head = head;
    if (this.currentAttention?.query === "target") this.query = this.row;
    if (this.trace) this.clampSelection(this.trace);
  }

  /** Selects a query and a key; a decoder query also selects the step. */
  select(query: number, key = this.key): void {
    this.query = query;
    this.key = key;
    if (this.currentAttention?.query === "target") this.row = query;
  }

  selectStep(row: number): void {
    const rows = this.trace?.tokens.target.length ?? 1;
    this.row = Math.max(0, Math.min(row, rows - 1));
    if (this.currentAttention?.query === "target") this.query = this.row;
  }

  /** Adds an edit, replacing those for which `same` is true, and traces again. */
  async edit(edit: Edit, same: (other: Edit) => boolean = () => false): Promise<void> {
    const place = this.edits.findIndex(same);
    const others = (other: Edit, at: number): Edit[] =>
      at === place ? [edit] : same(other) ? [] : [other];
    this.edits = place < 0 ? [...this.edits, edit] : this.edits.flatMap(others);
    await this.run();
  }
  async removeEdits(which: (edit: Edit, at: number) => boolean): Promise<void> {
    const left = this.edits.filter((edit, at) => !which(edit, at));
    if (left.length === this.edits.length) return;
    this.edits = left;
    await this.run();
  }

  /** The selected position: the step (target), or the attention's query or key (source). */
  position(side: Side): number {
    const size = this.trace?.tokens[side].length ?? 1;
    const at =
      side === "target"
        ? this.row
        : this.currentAttention?.query === "source"
          ? this.query
          : this.currentAttention?.key === "source"
            ? this.key
            : this.sourcePosition;
    return Math.max(0, Math.min(at, size - 1));
  }
  selectPosition(side: Side, at: number): void {
    if (side === "target") this.selectStep(at);
    else if (this.currentAttention?.query === "source") this.select(at);
    else if (this.currentAttention?.key === "source") this.select(this.query, at);
    else this.sourcePosition = at;
  }

  has(name: string): boolean {
    return this.trace?.tensors.some((tensor) => tensor.name === name) ?? false;
  }
  info(name: string): Trace["tensors"][number] | undefined {
    return this.trace?.tensors.find((tensor) => tensor.name === name);
  }
}

export const app = new Explorer();

export type { Opened, Saveable } from "./view-state.svelte";
export { labelsOf, pieceText, tokenText } from "./labels";
