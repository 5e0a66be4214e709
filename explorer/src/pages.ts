/** The pages of the explorer. A page without a component is listed as planned. */

import type { Component } from "svelte";
import Attention from "./pages/Attention.svelte";
import Start from "./pages/Start.svelte";
import Alignment from "./pages/Alignment.svelte";
import Compare from "./pages/Compare.svelte";
import Decode from "./pages/Decode.svelte";
import Embedding from "./pages/Embedding.svelte";
import Lessons from "./pages/Lessons.svelte";
import Heads from "./pages/Heads.svelte";
import Ablation from "./pages/Ablation.svelte";
import Output from "./pages/Output.svelte";
import Overview from "./pages/Overview.svelte";
import Tokens from "./pages/Tokens.svelte";
import ResidualStream from "./pages/ResidualStream.svelte";

export interface Page {
  /** its id in the address and in texts.pages */
  id: string;
  component: Component | null;
  /** needs a trace; until there is one, TraceStatus is shown instead */
  traced: boolean;
}

export const pages: Page[] = [
  { id: "start", component: Start, traced: false },
  { id: "overview", component: Overview, traced: true },
  { id: "tokens", component: Tokens, traced: true },
  { id: "embedding", component: Embedding, traced: true },
  { id: "attention", component: Attention, traced: true },
  { id: "heads", component: Heads, traced: true },
  { id: "alignment", component: Alignment, traced: true },
  { id: "residual", component: ResidualStream, traced: true },
  { id: "output", component: Output, traced: true },
  { id: "decode", component: Decode, traced: true },
  { id: "ablation", component: Ablation, traced: true },
  { id: "compare", component: Compare, traced: true },
  { id: "lessons", component: Lessons, traced: false },
];

/** The page with this id; an unknown or planned one becomes the start page. */
export const pageOf = (id: string): Page =>
  pages.find((page) => page.id === id && page.component) ?? pages[0]!;
