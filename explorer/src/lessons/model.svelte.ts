/** The included models that lessons run, and requests to them. */

import type { Edit, Model, Trace } from "../lib/contract";
import { app } from "../lib/state.svelte";

/** An open model by its name; null while models load, or if it is not open here. */
export const modelNamed = (name: string): Model | null =>
  app.models.find((one) => one.included && one.name === name) ?? null;

/** The address of a page of the explorer with an included model and a text. */
export function addressWith(name: string, page: string, source: string, rest = ""): string {
  const model = modelNamed(name);
  return `#/${page}?${model ? `m=${model.id}&` : ""}s=${source}${rest}`;
}

/** Traces a text with edits; the output is generated greedily unless a target is given. */
export function traced(
  model: Model,
  source: string,
  edits: Edit[],
  signal: AbortSignal,
  target: string | null = null,
): Promise<Trace> {
  return app.data.trace({ model: model.id, source, target, decoding: { beam: 1 }, edits }, signal);
}
