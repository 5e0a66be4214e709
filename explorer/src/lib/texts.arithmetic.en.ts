/** Texts about the arithmetic of saved pages. */

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e6 ? 2 : 0)} MB`;

export const savedTexts = {
  missing: (name: string, bytes: number, limit: number): string =>
    limit || bytes
      ? `This saved page does not contain ${name}${bytes ? ` (${megabytes(bytes)})` : ""}: it has at ` +
        `most ${megabytes(limit)} of weights. Save it with more, trace.show(weights_mb=…), or run ` +
        `\`regard explore\` on the model.`
      : `This saved page does not know the operation ${name}. Run \`regard explore\` on the model.`,
};

export const arithmeticTexts = {
  /** the sentence about the variance before, between and after its numbers */
  explained: [
    "The first two principal components explain",
    "of the variance. Colour is the class of a token; larger points with an edge are the " +
      "tokens of this text, with their positions. Select a class to fade the others.",
  ] as const,
  share: (component: number) => `share of the variance, component ${component}`,
  bothShares: "share of the variance, both components",
  shareOperation: "share of the variance",
  shareFormula: "Σ coordinate² / Σ ‖E − mean‖²",
  squared: "squared",
  coordinate: (token: string) => `coordinate of “${token}”`,
  variance: "Σ ‖E − mean‖²",
  varianceOperation: "total variance",
  distance: (token: string) => `‖E − mean‖² of “${token}”`,
  points: (count: number) => `${count.toLocaleString("en-GB")} points of the plane`,
  score: (token: string) => `log-probability of “${token}”`,
  scoreOperation: "entry of the tokenizer",
  scoreFormula: "log p(token), estimated when the tokenizer was trained",
  entry: (id: number | null) => (id === null ? "table entry" : `table entry of token ${id}`),
  unknownFormula: "least log p of the vocabulary − 10, for unknown text",
  least: "least log-probability",
  below: "distance of unknown text",
  all: "all tokens",
  othersShare: (others: string) => `softmax(z / T) of ${others}`,
  othersFinal: (others: string) => `probability of drawing one of ${others}`,
  othersOperation: "rest",
  othersFormula: "1 − Σ of the tokens above",
  othersCut: "0: they are cut",
  scored: "score",
  length: (length: number) => `, length ${length}`,
  hypothesis: (text: string) => `score of “${text}”`,
};
