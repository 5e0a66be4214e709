import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "A model gives a probability to each next sound. Greedy search takes the best one every time. " +
    "Beam search keeps several hypotheses and decides later.",
  question:
    "Greedy search takes the most probable sound at each step. Is the whole output then the most probable one?",
  options: ["yes, each step is optimal", "no, a worse first step can lead to a better whole"],
  tasks: ["Widen the beam to 8.", "Go back to the smallest beam that finds the same output."],
  seen: "The log-probabilities of the steps add up. Greedy search won the first step and lost the sum:",
  explain: [
    "The best whole need not begin with the best step. A beam of k keeps the k best hypotheses " +
      "at each step, so a slow start can still win.",
    "A hypothesis is pruned when k others score higher. A beam of 1 is greedy search; a very " +
      "large beam approaches the true maximum, at a higher cost.",
    "Longer outputs have lower sums, because every step subtracts. A length penalty divides the " +
      "sum by a power of the length, so that short outputs do not win by being short.",
  ],
  formula: "log p(y) = Σₜ log p(yₜ | y₁ … yₜ₋₁, x)",
  page: "the whole beam tree",
  papers: [
    "A. Graves, Sequence transduction with recurrent neural networks, 2012",
    "Y. Wu et al., Google's neural machine translation system, 2016, section 7",
  ],
};

export const figure = {
  title: "Spelling “emit” → sounds",
  about:
    "Each box is a sound with the sum of log-probabilities up to it. Blue: the output. Solid: kept. " +
    "Dashed: pruned. ■ is the end.",
  tree: (beam: number) => `Hypotheses of a beam of ${beam} for “emit”`,
  beam: "Beam",
  greedy: "1 (greedy)",
  output: "Output",
  logp: "log p",
  kept: "kept",
  pruned: "pruned",
  best: "output",
  step: (step: number) => `step ${step}`,
  columns: ["Search", "Output", "log p"],
  rows: ["greedy", "beam 8"],
};
