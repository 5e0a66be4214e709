/** Pages that can show a trace of attention weights and outputs only. */
export const PARTIAL_PAGES = new Set([
  "start",
  "overview",
  "tokens",
  "attention",
  "heads",
  "alignment",
  "output",
  "compare",
]);
