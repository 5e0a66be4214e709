import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "A query meets eight keys. All are random vectors whose numbers have variance 1, and none " +
    "fits better than another. How wide may the vectors be?",
  question:
    "Over many queries with d = 4, the best of the eight keys gets about half of the weight on " +
    "average. Without any scaling, what does it get with d = 1024?",
  options: [
    "about one eighth: long vectors are all alike",
    "still about half",
    "almost all of it",
    "it depends on the seed only",
  ],
  tasks: [
    "Move d to 1024 and compare the weights without and with the division by √d.",
    "Go back to the smallest d at which both sides agree.",
  ],
  seen:
    "The dot product adds d products of variance 1, so its variance is d. Averages over 100 " +
    "queries, without and with scaling:",
  explain: [
    "Scores grow like √d, and softmax of large scores puts all weight on one key. Dividing by √d " +
      "keeps the scores at variance 1 for every d.",
    "A saturated softmax also stops learning: its gradient is diag(α) − ααᵀ, which vanishes as " +
      "one weight approaches 1. The model can then no longer correct a wrong choice.",
    "The numbers assume independent components with variance 1, which holds at the start of " +
      "training. Numbers uniform in (−a, a) give the variance d·a⁴/9 instead, constant after the " +
      "same division.",
  ],
  formula: "Var(q · k) = d,   Var(q · k / √d) = 1",
  page: "turn the scaling of a trained model off",
  papers: ["A. Vaswani et al., Attention is all you need, 2017, section 3.2.1"],
};

export const figure = {
  width: "Width d",
  plain: "q · k",
  scaled: "q · k / √d",
  scores: "Scores of eight keys",
  weights: "Weights",
  largest: "Mean largest weight",
  gradient: "Mean gradient of softmax",
  axis: "d",
  bar: (k: number, score: string, weight: string) =>
    `key ${k + 1}: score ${score}, weight ${weight}`,
  columns: ["d", "Variance", "Largest weight", "Gradient"],
  captions: { plain: "Without scaling", scaled: "Divided by √d" },
};
