/** The knock-out sweep of what is shown: asked for when wanted, kept while the text is the same. */

import { untrack } from "svelte";
import { isAbort } from "./api";
import type { Sweep } from "./contract";
import { app } from "./state.svelte";
import { texts } from "./texts";

class Sweeping {
  private found = $state.raw<Sweep | null>(null);
  private foundFor = $state("");
  private askedFor = $state("");
  private failed = $state("");
  private failedFor = $state("");
  private request: AbortController | null = null;
  private clock = 0;
  /** how long the server has been at it */
  seconds = $state(0);

  /** A search with beams may answer otherwise than the sweep's own greedy one: then its text is what is measured. */
  private readonly target = $derived(
    app.target ?? (app.decode.method === "beam" ? (app.trace?.output.text ?? null) : null),
  );
  private readonly key = $derived(
    JSON.stringify([app.trace?.model, app.trace?.source, this.target]),
  );

  readonly value = $derived(this.foundFor === this.key ? this.found : null);
  readonly loading = $derived(this.askedFor !== "" && this.askedFor === this.key);
  readonly error = $derived(!this.value && this.failedFor === this.key ? this.failed : "");
  private readonly effects = $derived(
    new Map(this.value?.heads.map((one) => [`${one.attention}.${one.head}`, one.effect])),
  );

  effect(attention: string, head: number): number | null {
    return this.effects.get(`${attention}.${head}`) ?? null;
  }

  /** Starts without being asked, as a page may that shows effects: once, and not again after a failure. */
  begin(): void {
    if (!this.error) untrack(() => void this.start());
  }

  async start(): Promise<void> {
    const { key, target } = this;
    const trace = app.trace;
    if (!trace || this.value || this.loading) return;
    this.stop();
    const request = (this.request = new AbortController());
    this.askedFor = key;
    this.failed = "";
    this.seconds = 0;
    this.clock = window.setInterval(() => this.seconds++, 1000);
    try {
      this.found = await app.data.sweep(trace.model, trace.source, target, request.signal);
      this.foundFor = key;
      app.say(texts.wall.swept(this.found.heads.length));
    } catch (error) {
      if (!isAbort(error)) [this.failed, this.failedFor] = [(error as Error).message, key];
    }
    if (this.request === request) this.stop();
  }

  stop(): void {
    this.request?.abort();
    this.request = null;
    this.askedFor = "";
    clearInterval(this.clock);
  }
}

export const sweeping = new Sweeping();
