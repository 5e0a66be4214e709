/** Opens the Attention page on an instructive head, unless a head has been selected. */

import type { Trace } from "./contract";
import { instructiveHead } from "./head-patterns";
import { slice } from "./safetensors";
import { app } from "./state.svelte";

/** Selects the head with the strongest pattern, a query in the middle and its largest weight. */
export async function selectInstructive(trace: Trace): Promise<void> {
  const fallback = { name: trace.attentions[0]!.name, head: 0, query: 0, key: 0 };
  const found = await instructivePair(trace).catch(() => null);
  if (app.trace !== trace || !app.unselected) return;
  const { name, head, query, key } = found ?? fallback;
  app.selectAttention(name, head);
  app.select(query, key);
}

async function instructivePair(
  trace: Trace,
): Promise<{ name: string; head: number; query: number; key: number } | null> {
  const best = instructiveHead(await app.data.headStats(trace));
  const attention = trace.attentions.find((one) => one.name === best?.attention);
  if (!best || !attention) return null;
  const name = `${best.attention}.weights`;
  const tensor = (await app.data.tensors(trace, [name])).get(name);
  if (!tensor) return null;
  const { data, offset, rows, cols } = slice(tensor, [best.head]);
  // The step of the address, if there is one.
  const query = (attention.query === "target" && app.row) || Math.floor((rows - 1) / 2);
  const row = data.subarray(offset + query * cols, offset + (query + 1) * cols);
  const key = row.reduce((most, weight, at) => (weight > row[most]! ? at : most), 0);
  return { name: best.attention, head: best.head, query, key };
}
