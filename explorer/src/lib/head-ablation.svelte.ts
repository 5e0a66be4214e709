/** The head ablation of the current text: measured on demand, cached until the text changes. */

import { untrack } from "svelte";
import { isAbort } from "./api";
import type { Explanation, HeadAblation } from "./contract";
import { constant, differenceOf, tensorAt } from "./derived";
import { app } from "./state.svelte";
import { texts } from "./texts";

class HeadAblationState {
  private result = $state.raw<HeadAblation | null>(null);
  private resultKey = $state("");
  private runningKey = $state("");
  private failed = $state("");
  private failedKey = $state("");
  private request: AbortController | null = null;
  private timer = 0;
  /** seconds since the measurement started */
  seconds = $state(0);

  /** The server ablates on the greedy output; a beam search may find another one. */
  private readonly target = $derived(
    app.target ??
      (app.decoding.beam > 1 || app.trace?.checkpoint != null
        ? (app.trace?.output.text ?? null)
        : null),
  );
  private readonly key = $derived(
    JSON.stringify([app.trace?.model, app.trace?.source, this.target, app.trace?.checkpoint]),
  );

  readonly value = $derived(this.resultKey === this.key ? this.result : null);
  readonly loading = $derived(this.runningKey !== "" && this.runningKey === this.key);
  readonly error = $derived(!this.value && this.failedKey === this.key ? this.failed : "");
  private readonly effects = $derived(
    new Map(this.value?.heads.map((one) => [`${one.attention}.${one.head}`, one.effect])),
  );

  effect(attention: string, head: number): number | null {
    return this.effects.get(`${attention}.${head}`) ?? null;
  }

  /** The effect of a head as a difference of two log-probabilities; null if not measured. */
  explain(attention: string, head: number, result = this.value): Explanation | null {
    const one = result?.heads.find((each) => each.attention === attention && each.head === head);
    const trace = app.trace;
    if (!result || !one || !trace) return null;
    const t = texts.derived;
    const name = `${attention} ${head}`;
    const same = !trace.edits.length && trace.output.text === result.base.text;
    const full = same
      ? tensorAt("out.total", [], result.base.logp)
      : constant(t.fullLogp, result.base.logp);
    const without = constant(t.logpWithout(name), one.logp);
    return differenceOf(t.effect(name), result.base.text, full, without, one.effect);
  }

  /** Starts automatically for a page that shows effects: once, and not again after an error. */
  startOnce(): void {
    if (!this.error) untrack(() => void this.start());
  }

  async start(): Promise<void> {
    const { key, target } = this;
    const trace = app.trace;
    if (!trace || this.value || this.loading) return;
    this.stop();
    const request = (this.request = new AbortController());
    this.runningKey = key;
    this.failed = "";
    this.seconds = 0;
    this.timer = window.setInterval(() => this.seconds++, 1000);
    try {
      this.result = await app.data.ablateHeads(
        trace.model,
        trace.source,
        target,
        request.signal,
        trace.checkpoint,
      );
      this.resultKey = key;
      app.announce(texts.heads.measured(this.result.heads.length));
    } catch (error) {
      if (!isAbort(error)) [this.failed, this.failedKey] = [(error as Error).message, key];
    }
    if (this.request === request) this.stop();
  }

  stop(): void {
    this.request?.abort();
    this.request = null;
    this.runningKey = "";
    clearInterval(this.timer);
  }
}

export const headAblation = new HeadAblationState();
