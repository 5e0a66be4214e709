import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "Ten points, each a key (where it lies) and a value (how high). What is the value at a new " +
    "place, the query? Attention answers with a weighted average of all values. The answers at all " +
    "places form a curve.",
  question:
    "The bandwidth sets how far a key's influence reaches. If it is very large, the curve …",
  options: [
    "passes through every point",
    "becomes the straight line that fits best",
    "becomes flat, at the mean of all values",
    "falls to zero",
  ],
  handles: true,
  tasks: [
    "Widen the bandwidth until the curve is flat.",
    "Narrow it until one key has more than 90 % of the weight.",
    "Drag a point up or down and watch how far the curve follows.",
  ],
  seen:
    "Weights are never negative and always sum to 1, so every prediction lies between the lowest " +
    "and the highest value. Only how the weight is shared out changes:",
  explain: [
    "Attention is this average. A wide kernel gives all keys equal weight (the mean), a narrow " +
      "one copies the nearest value, and a good one lies between.",
    "A score says how well a query matches a key, here minus the squared distance. Softmax turns " +
      "scores into weights. The weights average the values.",
    "A Transformer does the same with vectors instead of places, and it learns what “near” means: " +
      "its score is the dot product of a query and a key, both computed by learned matrices.",
    "Ask at many places at once and the weights form a matrix, with one row per query. That is " +
      "the attention map that the explorer shows.",
  ],
  formula: "αᵢ = softmaxᵢ( −(q − kᵢ)² / 2h² ),   ŷ = Σ αᵢ vᵢ",
  page: "rows of attention weights in a trained model",
  papers: [
    "E. A. Nadaraya, On estimating regression, 1964",
    "G. S. Watson, Smooth regression analysis, 1964",
  ],
};

export const figure = {
  plot: "Ten points and the curve of attention pooling. Drag the points and the query.",
  curve: "prediction",
  mean: "mean of the values",
  query: "Query",
  point: (k: number) => `Point ${k + 1}`,
  key: "key →",
  value: "value ↑",
  bandwidth: "Bandwidth h",
  weights: "Weights of the keys for this query",
  weight: (k: number, weight: string) => `key ${k + 1}: ${weight}`,
  view: "Weights",
  views: [
    ["bars", "one query: bars"],
    ["rows", "all queries: rows"],
  ] as [string, string][],
  map: "Attention map",
  mapAbout: "One row for each query from 0 to 5; rows sum to 1.",
  reset: "Reset",
  columns: ["Bandwidth", "Largest weight", "Prediction"],
  now: "now",
  caption: (query: string, mean: string) => `At the query ${query}; the mean value is ${mean}.`,
};
