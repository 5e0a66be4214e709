import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "On its own, “bank” points towards money. In “bank of the river” it should point towards " +
    "water. Attention mixes the vectors of the sentence into a new one for “bank”.",
  question:
    "Each word is weighted by the dot product of its vector with “bank”, and nothing is learned. " +
    "The new vector of “bank” …",
  options: [
    "stays where it was: “bank” matches itself best",
    "turns towards “river”, though “bank” keeps the largest weight",
    "becomes the vector of “river”",
  ],
  handles: true,
  tasks: [
    "Drag “river” around and watch the mixed vector swing.",
    "Turn the query until “river” has more weight than “bank”.",
  ],
  seen:
    "The new vector is a weighted average, so it lies inside the polygon of the four words. The " +
    "cosine says how far it has turned towards “river”:",
  explain: [
    "Every word pulls the new vector towards itself, as strongly as its weight. Plain dot " +
      "products already help; a learned query helps far more.",
    "With plain dot products the query of “bank” is “bank” itself, so it mostly finds itself and " +
      "words like it. A matrix W_Q turns the query: “bank” can then ask for what would tell its " +
      "meaning, such as water.",
    "The vectors here were placed by hand, with money on one axis and water on the other. A " +
      "trained model has hundreds of such axes, and few have a name.",
  ],
  formula: "y = Σ softmaxᵢ( q · vᵢ ) vᵢ,   q = W_Q v_bank",
  page: "a trained model's queries, keys and values",
  papers: ["A. Vaswani et al., Attention is all you need, 2017"],
};

export const figure = {
  plot: "Vectors of bank, of, the and river on a plane, and the mixed vector. Drag the words.",
  money: "money →",
  water: "water ↑",
  mixed: "new “bank”",
  query: "query",
  turn: "Turn the query (W_Q)",
  degrees: (angle: number) => `${angle}°`,
  weights: "Weights for the query of “bank”",
  word: (word: string) => `The word ${word}`,
  columns: ["Vector", "Cosine with river"],
  rows: ["bank, alone", "mixed, query not turned", "mixed, as set above"],
};
