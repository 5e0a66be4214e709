/** Reactive reads: say what is needed, get it when it is there; stale requests are given up. */

import { untrack } from "svelte";
import { isAbort } from "./api";
import { app } from "./state.svelte";
import type { Tensor } from "./safetensors";

export interface Loaded<T> {
  readonly value: T | null;
  readonly error: string;
  readonly loading: boolean;
  /** asks again after an error */
  retry(): void;
}

/**
 * Keeps an answer up to date. `make` reads the state and returns the request, or null when there is nothing to ask.
 * Call while a component starts: `const walk = loaded(() => { const t = app.trace; return t && ((s) => app.data.walk(t, "source", 0, s)); });`
 */
export function loaded<T>(
  make: () => ((signal: AbortSignal) => Promise<T>) | null | undefined,
): Loaded<T> {
  let value = $state.raw<T | null>(null);
  let error = $state("");
  let loading = $state(false);
  let tries = $state(0);
  let words = "";
  $effect(() => {
    void tries;
    const ask = make();
    const now = untrack(spoken);
    if (now !== words) value = null; // numbers of other words must not stand under these
    words = now;
    if (!ask) {
      value = null;
      error = "";
      loading = false;
      return;
    }
    const request = new AbortController();
    loading = true;
    ask(request.signal).then(
      (answer) => {
        if (request.signal.aborted) return;
        value = answer;
        error = "";
        loading = false;
      },
      (reason: unknown) => {
        if (request.signal.aborted || isAbort(reason)) return;
        value = null;
        error = (reason as Error).message;
        loading = false;
      },
    );
    return () => request.abort();
  });
  return {
    get value() {
      return value;
    },
    get error() {
      return error;
    },
    get loading() {
      return loading;
    },
    retry: () => void tries++,
  };
}

/** The words of the current trace, told apart from others. */
function spoken(): string {
  const { source, target } = app.trace?.tokens ?? { source: [], target: [] };
  return [source, target].map((side) => side.map((token) => token.id).join(" ")).join("; ");
}

/** The named tensors of the current trace, as one map. Names the trace does not have are left out. */
export function tensors(names: () => string[]): Loaded<Map<string, Tensor>> {
  return loaded(() => {
    const trace = app.trace;
    const known = new Set(trace?.tensors.map((tensor) => tensor.name));
    const wanted = names().filter((name) => known.has(name));
    return trace && wanted.length ? (signal) => app.data.tensors(trace, wanted, signal) : null;
  });
}
