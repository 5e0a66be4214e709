/** The one state every view shares: what is asked, what came back, what is chosen. The address mirrors it. */

import { ApiError, Frozen, isAbort, openSource, type DataSource } from "./api";
import type { Attended, Decode, Edit, Graph, Model, Side, Trace, TraceRequest } from "./contract";
import { NOWHERE, read, write, type Place } from "./link";
import { texts } from "./texts";
import { Shown, type Opened } from "./shown.svelte";

export type Status = "idle" | "loading" | "ready" | "error" | "long";

class Explorer extends Shown {
  readonly data: DataSource = openSource();

  models = $state.raw<Model[]>([]);
  /** what a person should know of the place they came to, such as that its model is not here */
  notice = $state("");
  /** null until the list of models has come; then its error, if any */
  booted = $state(false);
  bootError = $state("");
  graph = $state.raw<Graph | null>(null);

  modelId = $state("");
  /** what is asked for; the header edits a draft of it */
  source = $state("");
  target = $state<string | null>(null);
  decode = $state.raw<Decode>(NOWHERE.decode);
  edits = $state.raw<Edit[]>([]);
  /** the address of a state that was kept to compare with */
  kept = $state("");

  trace = $state.raw<Trace | null>(null);
  status = $state<Status>("idle");
  error = $state("");

  /** the shared selection */
  attention = $state("");
  head = $state(0);
  query = $state(0);
  key = $state(0);
  row = $state(0);
  /** the source's position while no attention looks at the source */
  private apart = $state(0);

  private request: AbortController | null = null;
  /** what the trace that is shown was asked with */
  private answered: TraceRequest | null = null;
  private written = "";
  private later = 0;

  readonly model = $derived(this.models.find((model) => model.id === this.modelId) ?? null);
  /** the attention the lab looks at: the chosen one, or the first there is */
  readonly attended: Attended | null = $derived(
    this.trace?.attentions.find((one) => one.name === this.attention) ??
      this.trace?.attentions[0] ??
      null,
  );
  readonly layer = $derived(this.attended?.layer ?? 0);

  /** Opens the page at its address. Call once. */
  async start(): Promise<void> {
    this.followSystem();
    window.addEventListener("hashchange", () => {
      if (location.hash === this.written) return;
      this.written = location.hash; // so that the way back from here is a way, too
      void this.visit({ ...read(location.hash), theme: this.theme }); // day and night are no places
    });
    const place = read(
      location.hash || (this.data instanceof Frozen && this.data.block.hash) || "",
    );
    if (place.theme) this.theme = place.theme;
    this.page = place.page;
    try {
      this.models = await this.data.models();
    } catch (error) {
      this.bootError = (error as Error).message;
    }
    this.booted = true;
    await this.visit(place);
  }

  /** Goes to a place: from the address, a link or a saved page. */
  async visit(place: Place): Promise<void> {
    // A saved page holds one trace, whatever the address asks for.
    if (this.data instanceof Frozen) place = { ...place, ...this.data.block.request };
    const model = this.models.find((one) => one.id === place.model) ?? this.models[0];
    this.page = place.page;
    this.theme = place.theme;
    this.tables = place.tables;
    this.options = place.options;
    this.kept = place.kept;
    const before = JSON.stringify(this.asking());
    this.modelId = model?.id ?? "";
    this.source = place.source ?? model?.example ?? "";
    ({ target: this.target, decode: this.decode, edits: this.edits } = place);
    ({
      attention: this.attention,
      head: this.head,
      query: this.query,
      key: this.key,
      row: this.row,
    } = place);
    const same = this.trace !== null && JSON.stringify(this.asking()) === before;
    this.trail = place.opened ? [place.opened] : [];
    this.notice =
      place.model && model && place.model !== model.id
        ? texts.states.otherModel(place.model, model.id)
        : "";
    if (this.notice) this.say(this.notice);
    if (model && !same) await this.run();
  }

  /** Where we are, as the address says it. */
  place(): Place {
    const example = this.model?.example ?? "";
    return {
      page: this.page,
      model: this.page === "start" ? "" : this.modelId,
      source: this.source === example ? null : this.source,
      target: this.target,
      decode: this.decode,
      edits: this.edits,
      attention: this.attention,
      head: this.head,
      query: this.query,
      key: this.key,
      row: this.row,
      theme: this.theme,
      tables: this.tables,
      opened: this.opened,
      kept: this.kept,
      options: this.options,
    };
  }

  /** Keeps what is asked now, to compare with. Of the state only what a trace depends on is kept. */
  keep(): void {
    const { model, source, target, decode, edits } = { ...this.place(), model: this.modelId };
    this.kept = write({ ...NOWHERE, page: "compare", model, source, target, decode, edits });
  }
  /** Goes back to what was kept. */
  restore(): Promise<void> {
    const { model, source, target, decode, edits } = read(this.kept);
    return this.visit({ ...this.place(), model, source, target, decode, edits });
  }
  /** What was kept, as a request. */
  recall(): TraceRequest | null {
    if (!this.kept) return null;
    const { model: id, source, target, decode, edits } = read(this.kept);
    const model = this.models.find((one) => one.id === id);
    return model
      ? { model: model.id, source: source ?? model.example, target, decode, edits }
      : null;
  }

  /** Keeps the address in step: a new page at once, all else when the keys and the pointer come to rest. */
  sync(): void {
    if (!this.booted) return;
    const hash = write(this.place());
    clearTimeout(this.later);
    if (hash === location.hash) return;
    if (read(location.hash).page === this.page)
      this.later = window.setTimeout(() => this.settle(), 250);
    else this.settle();
  }
  /** Writes the address now; a new page makes a new entry in the history. */
  settle(): void {
    const samePage = read(location.hash).page === this.page;
    this.written = write(this.place());
    if (this.written !== location.hash)
      history[samePage ? "replaceState" : "pushState"](null, "", this.written);
  }

  /** Opens the arithmetic of a number, which is asked for at once. */
  override open(name: string, index: number[], deeper = false): void {
    if (this.trace) this.data.explain(this.trace, name, index).catch(() => {}); // the drawer says what went wrong
    super.open(name, index, deeper);
  }

  /** Opens a model with its own example, on a page. */
  async openModel(id: string, page = this.page): Promise<void> {
    const model = this.models.find((one) => one.id === id);
    if (!model) return;
    const source = page === "compare" ? this.source : null; // two models are compared on one text
    await this.visit({ ...NOWHERE, page, model: id, source, theme: this.theme, kept: this.kept });
  }

  asking(): TraceRequest {
    const { modelId, source, target, decode, edits } = this;
    return { model: modelId, source, target, decode, edits };
  }

  /** Traces what is asked for; a newer run takes the place of an older one. */
  async run(): Promise<void> {
    this.request?.abort();
    const request = (this.request = new AbortController());
    if (!this.source.trim()) {
      this.trace = this.answered = null;
      this.status = "idle";
      return;
    }
    this.status = "loading";
    this.error = "";
    const asked = this.asking();
    try {
      const fresh =
        this.graph && this.trace?.model === asked.model
          ? this.graph
          : this.data.graph(asked.model, request.signal);
      const [trace, graph] = await Promise.all([this.data.trace(asked, request.signal), fresh]);
      if (request.signal.aborted) return;
      this.graph = graph;
      const before = this.trace;
      this.trace = trace;
      this.answered = asked;
      this.keepInside(trace);
      if (before && !this.trail.every((opened) => this.holds(opened))) this.trail = [];
      this.status = "ready";
      this.say(
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
      // An edit that fails is taken back; of a text that fails nothing is shown, least of all another's numbers.
      const bare = (request: TraceRequest): string => JSON.stringify({ ...request, edits: [] });
      if (this.answered && this.status === "error" && bare(this.answered) === bare(asked))
        this.edits = this.answered.edits;
      else this.trace = this.answered = null;
      this.say(this.error);
    }
  }

  /** A selection from another text may lie outside this one. */
  private keepInside(trace: Trace): void {
    const attended = this.attended;
    const inside = (value: number, size: number): number => Math.max(0, Math.min(value, size - 1));
    if (attended) {
      if (this.attention && attended.name !== this.attention) this.attention = "";
      this.head = inside(this.head, attended.heads);
      this.query = inside(this.query, trace.tokens[attended.query].length);
      this.key = inside(this.key, trace.tokens[attended.key].length);
    }
    this.row = inside(this.row, trace.tokens.target.length);
  }

  /** Whether the trace has this number. */
  private holds({ name, index }: Opened): boolean {
    const shape = this.info(name)?.shape;
    return shape !== undefined && index.every((at, axis) => at < (shape[axis] ?? 0));
  }

  /** Looks at another attention or head; the selection stays inside it. */
  look(attention: string, head = this.head): void {
    this.attention = attention === this.trace?.attentions[0]?.name ? "" : attention;
    this.head = head;
    if (this.trace) this.keepInside(this.trace);
  }

  /** Chooses query i and key j; a decoder's query also moves the step. */
  select(query: number, key = this.key): void {
    this.query = query;
    this.key = key;
    if (this.attended?.query === "target") this.row = query;
  }

  step(row: number): void {
    const rows = this.trace?.tokens.target.length ?? 1;
    this.row = Math.max(0, Math.min(row, rows - 1));
    if (this.attended?.query === "target") this.query = this.row;
  }

  /** Adds an edit in place of one that `same` recognises, and traces again. */
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

  /** The chosen position of a side: the step of the target; of the source, what the attention asks or is asked about. */
  position(side: Side): number {
    const size = this.trace?.tokens[side].length ?? 1;
    const at =
      side === "target"
        ? this.row
        : this.attended?.query === "source"
          ? this.query
          : this.attended?.key === "source"
            ? this.key
            : this.apart;
    return Math.max(0, Math.min(at, size - 1));
  }
  point(side: Side, at: number): void {
    if (side === "target") this.step(at);
    else if (this.attended?.query === "source") this.select(at);
    else if (this.attended?.key === "source") this.select(this.query, at);
    else this.apart = at;
  }

  has(name: string): boolean {
    return this.trace?.tensors.some((tensor) => tensor.name === name) ?? false;
  }
  info(name: string): Trace["tensors"][number] | undefined {
    return this.trace?.tensors.find((tensor) => tensor.name === name);
  }
}

export const app = new Explorer();

export type { Opened, Saveable } from "./shown.svelte";
export { labelsOf, pieceText, tokenText } from "./labels";
