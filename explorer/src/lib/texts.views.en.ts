/** The texts of the sampling panel, the merges, the stream, the classes and the positions. */

const plural = (count: number, one: string): string =>
  `${count.toLocaleString("en-GB")} ${one}${count === 1 ? "" : "s"}`;

export const samplingTexts = {
  title: "Sampling",
  text:
    "Set how the next token would be drawn from this step: the temperature divides the logits " +
    "before the softmax, then top-k and top-p cut the tail, and the rest is renormalised.",
  temperature: "Temperature",
  temperatureText: "below 1 sharpens, above 1 flattens",
  topK: "Top-k",
  topKText: "at most k tokens; empty: no limit",
  topP: "Top-p",
  topPText: "tokens until the sum reaches p",
  reset: "Reset",
  view: "Distribution of the next token",
  token: "token",
  share: "softmax(z / T)",
  before: "sum before it",
  final: "drawn with",
  bars: "probability",
  model: "at T = 1",
  kept: "drawn",
  cut: "cut",
  cutBy: { k: "cut by top-k", p: "cut by top-p" } as Record<string, string>,
  maybe: "unknown",
  others: (count: number) => `the other ${plural(count, "token")}`,
  summary: (kept: string, all: number) => `${kept} of ${plural(all, "token")} can be drawn.`,
  certain: "Exact: computed from the logits of all tokens.",
  bounded: (known: number, all: number) =>
    `This page has the logits of the ${known} most probable of ${plural(all, "token")}. ` +
    "Numbers that depend on the others are given as bounds; the rest is exact.",
  between: (low: string, high: string) => `${low} to ${high}`,
  line: (by: string) => `below this line: ${by}`,
  rowLabel: (token: string, what: string, value: string) => `${token}, ${what} ${value}`,
  operations: {
    softmax: "softmax with temperature",
    cumulative: "cumulative probability",
    renormalised: "renormalised probability",
    mass: "probability of the tokens that remain",
  },
  names: {
    softmax: (token: string) => `softmax(z / T) of “${token}”`,
    before: (token: string) => `probability before “${token}”`,
    renormalised: (token: string) => `probability of drawing “${token}”`,
    mass: "sum of the tokens that remain",
  },
  unknownRest: (count: number) => `the other ${plural(count, "token")}, at least`,
};

export const mergeTexts = {
  title: "How each word becomes tokens",
  methods: {
    bpe:
      "Byte-pair encoding starts with characters and merges the pair of neighbours with the " +
      "lowest rank, until no pair has a rank. The rank is the order in which training found it.",
    unigram:
      "A unigram model has a log-probability for each token and takes the tokens with the " +
      "highest sum for each word.",
    wordpiece: "WordPiece takes the longest token that fits, from left to right.",
    characters: "Every character is one token: nothing is merged.",
    bytes: "Every byte is one token: nothing is merged.",
    words: "Every word is one token: nothing is merged.",
    wordlevel: "Every word is one token: nothing is merged.",
  } as Record<string, string>,
  retokenized:
    "The model generated other tokens than the tokenizer makes of this text. " +
    "Shown is what the tokenizer makes of it.",
  trees: "Merges of each word",
  scores: "Tokens and their log-probabilities",
  word: "word",
  step: "step",
  rank: "rank",
  rankShort: (rank: number) => rank.toLocaleString("en-GB"),
  pair: "pair",
  result: "result",
  stepsOf: (word: string) => `Steps of “${word}”`,
  start: "characters",
  whole: "No merge: the word is a token of its own.",
  token: "token",
  logp: "log p",
  sum: "sum",
  open: (word: string, count: number) => `Word “${word}”: ${plural(count, "token")}`,
  rankOf: (left: string, right: string) => `rank of ${left} + ${right}`,
  none: (left: string, right: string) => `${left} + ${right}`,
  operation: "lowest rank of all neighbours",
  lowest: "lowest",
  place: (word: string, step: number) => `“${word}”, step ${step}`,
  sumOf: (word: string) => `log p of “${word}”`,
};

export const streamTexts = {
  title: "The stream",
  text:
    "The width of the stream is the norm of the residual vector; each block flows in with the " +
    "norm of what it adds. Norms do not add up: a contribution at a right angle widens it less, " +
    "an opposite one narrows it.",
  added: "contribution",
  cosine: "cosine",
  after: "residual",
};

export const classTexts = {
  classes: "Classes of tokens",
  names: {
    special: "special token",
    byte: "byte",
    capital: "word start, capital",
    start: "word start",
    inside: "without a space before",
    vowel: "starts with a vowel letter",
    consonant: "starts with another letter",
    number: "number",
    mark: "punctuation or symbol",
  } as Record<string, string>,
};

export const treeTexts = {
  prunedCount: (count: number) => `+ ${count} pruned`,
  expand: (count: number, step: number) => `Show ${count} pruned at step ${step}`,
  collapse: (step: number) => `Hide the pruned at step ${step}`,
  hide: "− pruned",
  showAll: "show all pruned",
  about: (beam: number) =>
    `The ${beam === 1 ? "best hypothesis is" : `${beam} best hypotheses are`} expanded at each ` +
    "step; pruned ones are collapsed. " +
    "Arrow keys move through the tree; select “pruned” to expand a step.",
};

export const positionTexts = {
  mode: "Compare",
  runs: "Two runs",
  positions: "Position encodings",
  lead: "The positions of this text in several encodings, computed for the sizes of the open model.",
  sizes: (width: number, heads: number, dim: number) =>
    `width ${width}, ${plural(heads, "head")} of ${dim} dimensions`,
  side: "Side",
  source: "Source",
  target: "Target",
  what: "Show",
  values: "Values at each position",
  scores: "Effect on scores",
  head: "Head",
  names: {
    sinusoidal: "Sinusoidal",
    learned: "Learned",
    distance: "Relative",
    t5: "Relative, in buckets (T5)",
    rotary: "Rotary (RoPE)",
    alibi: "ALiBi",
  } as Record<string, string>,
  own: "used by this model",
  untrained: "learned: random at the start of training",
  zero:
    "Learned, and 0 at the start of training. Shown is which learned number each pair reads: " +
    "pairs at the same distance share one.",
  noValues: "It adds nothing to the vectors: it acts on the scores only.",
  valuesText: {
    additive: "Added to the token embedding at each position.",
    rotary: "Each pair of dimensions is rotated: shown is a vector of ones after the rotation.",
  },
  scoresText: {
    additive: "P[query] · P[key] / √width: how well the position vectors of a pair match.",
    rotary: "A query and a key of ones, rotated: q · k / √d depends on the distance only.",
    alibi: "Added to the score: minus slope times distance.",
    table: "Added to the score: one learned number for each distance.",
  },
  cut: (count: number) => `The first ${count} positions are shown.`,
  position: "position",
  query: "query (asks)",
  key: "key (is matched)",
  dimension: "dimension",
  failed: (reason: string) => `Not available for these sizes: ${reason}.`,
  index: "index of the learned number",
  frequency: "frequency",
  angle: "angle = position · frequency",
  operations: {
    wave: "sine or cosine of the position",
    lookup: "table look-up",
    rotation: "rotation of a pair of ones",
    match: "dot product of two positions",
    penalty: "penalty by distance",
    index: "index by distance",
    bias: "learned bias",
  },
  name: (encoding: string, what: string) => `${encoding}, ${what}`,
  value: "value",
  score: "score",
  slope: "slope",
  distance: "distance",
  at: (position: number, dimension: number) => `position ${position}, dimension ${dimension}`,
  pair: (query: number, key: number) => `query ${query}, key ${key}`,
};
