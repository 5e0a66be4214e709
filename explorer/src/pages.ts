/** The table of pages: one line each. A page without a component is listed as "comes next". */

import type { Component } from "svelte";
import Attention from "./pages/Attention.svelte";
import Start from "./pages/Start.svelte";
import Alignment from "./pages/Alignment.svelte";
import Compare from "./pages/Compare.svelte";
import Decode from "./pages/Decode.svelte";
import Embedding from "./pages/Embedding.svelte";
import Heads from "./pages/Heads.svelte";
import Knockout from "./pages/Knockout.svelte";
import Output from "./pages/Output.svelte";
import Overview from "./pages/Overview.svelte";
import Tokens from "./pages/Tokens.svelte";
import Walk from "./pages/Walk.svelte";

export interface Page {
  /** its name in the address and in texts.pages */
  id: string;
  component: Component | null;
  /** needs a trace: the frame shows loading, empty, error and too-long states in its place */
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
  { id: "walk", component: Walk, traced: true },
  { id: "output", component: Output, traced: true },
  { id: "decode", component: Decode, traced: true },
  { id: "knockout", component: Knockout, traced: true },
  { id: "compare", component: Compare, traced: true },
  { id: "training", component: null, traced: true },
  { id: "lessons", component: null, traced: false },
];

/** The page of an address; an unknown or coming one leads to the start. */
export const pageOf = (id: string): Page =>
  pages.find((page) => page.id === id && page.component) ?? pages[0]!;
