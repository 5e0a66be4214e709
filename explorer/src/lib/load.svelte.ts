/** Reactive requests: the value follows the state, and stale requests are cancelled. */

import { untrack } from "svelte";
import { isAbort } from "./api";
import { app } from "./state.svelte";
import type { TensorInfo } from "./contract";
import type { Tensor } from "./safetensors";

const MAX_VOCABULARY = 2048;

export interface Resource<T> {
  readonly value: T | null;
  readonly error: string;
  readonly loading: boolean;
  /** repeats the request after an error */
  retry(): void;
}

/**
 * A value that follows the state. `make` reads the state and returns the request, or null for none.
 * Call it while a component is set up:
 * `const tree = load(() => { const t = app.trace; return t && ((s) => data.beamTree(t, 4, s)) });`
 */
export function load<T>(
  make: () => ((signal: AbortSignal) => Promise<T>) | null | undefined,
): Resource<T> {
  let value = $state.raw<T | null>(null);
  let error = $state("");
  let loading = $state(false);
  let attempts = $state(0);
  let key = "";
  $effect(() => {
    void attempts;
    const send = make();
    const newKey = untrack(tokenKey);
    if (newKey !== key) value = null; // never show the numbers of another text
    key = newKey;
    if (!send) {
      value = null;
      error = "";
      loading = false;
      return;
    }
    const request = new AbortController();
    loading = true;
    send(request.signal).then(
      (result) => {
        if (request.signal.aborted) return;
        value = result;
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
    retry: () => void attempts++,
  };
}

/** Identifies the tokens of the current trace. */
export function tokenKey(): string {
  const { source, target } = app.trace?.tokens ?? { source: [], target: [] };
  return [source, target].map((side) => side.map((token) => token.id).join(" ")).join("; ");
}

/** Whether the server sends a tensor: not for a large vocabulary, of which `output` has the top. */
const isSent = ({ axes, shape }: TensorInfo): boolean =>
  !axes.some((axis, k) => axis === "vocabulary" && shape[k]! > MAX_VOCABULARY);

/** Tensors of the current trace by name; names that it does not have are left out. */
export function tensors(names: () => string[]): Resource<Map<string, Tensor>> {
  return load(() => {
    const trace = app.trace;
    const known = new Set(trace?.tensors.filter(isSent).map((tensor) => tensor.name));
    const wanted = names().filter((name) => known.has(name));
    return trace && wanted.length ? (signal) => app.data.tensors(trace, wanted, signal) : null;
  });
}
