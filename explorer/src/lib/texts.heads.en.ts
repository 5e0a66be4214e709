/** The texts of the head grid, the flow of one row and the overlaid heads in English. */

export const headTexts = {
  mixed: "mixed",
  /** what a head attends to, in words */
  named: (pattern: string, named: boolean) => (named ? pattern : `mixed; strongest: ${pattern}`),
  score: (pattern: string, head: string) => `score of ${pattern}, ${head}`,
  pattern: "Pattern",
  patternScore: "Score",
  about:
    "The name of a head is measured on this text: the pattern that holds the largest share of its " +
    "weights, from 0 (no more than uniform attention) to 1 (nothing else). A head below 0.5 is mixed.",
  layerRow: (layer: number) => `layer ${layer}`,
  groupLabel: (kind: string, heads: number) =>
    `${kind}: ${heads} head${heads === 1 ? "" : "s"}. Arrow keys move between heads.`,
  ablationLegend:
    "Select a head to ablate it; hatched heads are ablated. The number is its effect: " +
    "the log p of the output that is lost without it.",
  derived: {
    row: (pattern: string, name: string) => `${pattern} in a row of ${name}`,
    head: (pattern: string, name: string) => `${pattern}: score of ${name}`,
    share: "share of the pattern",
    uniform: "share under uniform attention",
    operation: "pattern score of a row",
    tanh: "tanh of query plus key",
    rest: (count: number) => `weights of the other ${count} keys`,
  },
  flow: {
    title: "One row, step by step",
    opened: (attention: string, head: number) => `${attention}, head ${head}: `,
    lead: (token: string) => `Row of query ${token}. Select a number to see how it was computed.`,
    query: (at: number, text: string) => `query of ${at} “${text}”`,
    key: (at: number, text: string) => `key of ${at} “${text}”`,
    value: (at: number, text: string) => `value of ${at} “${text}”`,
    sum: (at: number, text: string) => `query + key of ${at} “${text}”`,
    context: (at: number, text: string) => `context of ${at} “${text}”`,
    keyColumn: "key",
    values: "value × weight",
    chooseKey: (at: number, text: string) => `Show key ${at} “${text}”`,
    cell: (name: string, place: string, value: string) => `${name}, ${place}: ${value}`,
    dimension: (at: number) => `dimension ${at}`,
    all: (count: number) => `Show all ${count} dimensions`,
    fewer: "Show fewer dimensions",
    allKeys: (count: number) => `Show all ${count} keys`,
    fewerKeys: "Show the largest weights only",
    others: (count: number) => `${count} other keys`,
    steps: {
      q: ["Query", "q"],
      dots: ["· key", "q · k"],
      scores: ["÷ √d", "q · k / √d"],
      energy: ["v ·", "v · tanh(q + k)"],
      product: ["· key", "q · k"],
      bias: ["bias", "b"],
      biased: ["+ bias", "s + b"],
      masked: ["mask", "−∞ if hidden"],
      tempered: ["÷ T", "s / T"],
      weights: ["softmax", "weight"],
    } as Record<string, [string, string]>,
    compareTitle: "Compare with every key",
    compareTitleAdditive: "Add to every key, squash, weigh with v",
    mixTitle: "Average the values",
    queryTitle: "The query",
    queryTitleAdditive: "W s: the query",
    keyHint: "The key of the selected row of the table, in the same dimensions.",
    keyHintAdditive: "U h + b of the selected key, and tanh of the sum; v weighs its dimensions.",
  },
  overlay: {
    title: "Overlay heads",
    about: (most: number) =>
      `Draws the links of up to ${most} heads in their colours. All heads and Alignment share them.`,
    head: (layer: number, head: number) => `layer ${layer}, head ${head}`,
    clear: "Clear",
    column: "head",
    legend: "Overlaid heads",
    layer: (layer: number) => `layer ${layer}`,
    mean: "grey: the weights selected above",
  },
};
