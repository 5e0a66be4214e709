import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "Five ways to tell attention where a token stands. Small Transformers learned to reverse up " +
    "to 10 digits with each of them. Then they met longer strings.",
  question: "Trained on at most 10 digits, which one reverses 12 digits most often?",
  options: [
    "sinusoidal: a formula for every position",
    "learned: one vector for each position",
    "relative: one learned number for each distance",
    "rotary (RoPE): queries and keys turn with the position",
    "ALiBi: a penalty that grows with the distance",
  ],
  tasks: [
    "Look at all five matrices.",
    "Move the length to 12 and compare.",
    "Find the first length at which no encoding is right half of the time.",
  ],
  seen:
    "All five are perfect up to the trained length and all fail in the end. Absolute positions " +
    "fail at once, relative ones degrade. Means over three seeds:",
  explain: [
    "Learned positions beyond 10 were never trained, and sines of new positions form vectors the " +
      "model never saw. Distances up to 9, however, occurred in training.",
    "Sinusoidal and learned positions are added to the tokens. Relative, RoPE and ALiBi change " +
      "the scores, and there only the distance of query and key counts: their matrices have " +
      "equal diagonals.",
    "Do not read this as a ranking. The models are tiny and the task is one of many; " +
      "other tasks may order them differently.",
  ],
  formula: "s(i, j) = qᵢ · kⱼ / √d + what the positions i and j add",
  page: "the positions of a trained model",
  papers: [
    "A. Vaswani et al., Attention is all you need, 2017, section 3.5",
    "J. Su et al., RoFormer, 2021",
    "O. Press et al., Train short, test long, 2022",
    "P. Shaw et al., Self-attention with relative position representations, 2018",
  ],
};

export const figure = {
  names: {
    sinusoidal: "sinusoidal",
    learned: "learned",
    distance: "relative",
    rotary: "RoPE",
    alibi: "ALiBi",
  },
  encoding: "Encoding",
  matrix: "What positions alone add to the scores",
  abouts: {
    sinusoidal: "Dot products of the position vectors, d = 64, over √d.",
    learned:
      "Dot products of the learned vectors of a trained model, over √d. Rows from 10 on were never trained.",
    distance: "The bias of one head of a trained model. Distances from 10 on were never trained.",
    rotary: "A vector of ones, rotated by both positions, d = 16, over √d.",
    alibi: "Minus 0.25 times the distance: the first of four heads.",
  },
  query: "query position",
  key: "key position",
  chart: "Share of strings reversed without an error, by length",
  length: "Length",
  axis: "length",
  yAxis: "accuracy",
  trained: "trained lengths",
  columns: ["Encoding", "10", "12", "15"],
};
