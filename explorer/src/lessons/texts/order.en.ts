import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "“The man hit the car” and “the car hit the man” contain the same words. Attention adds up " +
    "words by weight. Does it know who hit whom?",
  question:
    "We take all positions away from a trained Transformer and let it read “tea” and “eat”. It …",
  options: [
    "answers both correctly: it knows the words",
    "gives the same answer to both",
    "gives different, wrong answers",
  ],
  tasks: [
    "Change the order of the words and compare the two vectors of “man”.",
    "Take the positions away from the trained model.",
  ],
  seen:
    "Without positions the order makes no difference to any vector. The largest difference that " +
    "the order makes to a vector of the trained encoder (matched letter by letter):",
  explain: [
    "A sum does not depend on the order of its terms. Without positions attention sees a set of " +
      "words, so it cannot tell who hit whom.",
    "Positions break the tie: each word's vector also says where it stands. Then the dot " +
      "products change with the order, and so do the outputs.",
    "The included model rotates its queries and keys by their position (RoPE); the small example " +
      "adds sines and cosines to the words. Both make order visible.",
  ],
  formula: "y_man = Σᵢ (x_man · xᵢ) xᵢ,   with positions xᵢ = vᵢ + pᵢ",
  page: "the trained model without positions",
  papers: ["A. Vaswani et al., Attention is all you need, 2017, section 3.5"],
};

export const figure = {
  small: "A small example: the vector that attention makes of “man”",
  order: "Order of the words",
  left: (word: string) => `Move ${word} to the left`,
  right: (word: string) => `Move ${word} to the right`,
  first: "man hit car",
  plain: "without positions",
  placed: "with positions",
  equal: "equal",
  apart: (distance: string) => `${distance} apart`,
  model: "A trained model: English spelling → sound",
  words: "Words",
  positions: "Positions",
  on: "with positions",
  off: "without positions",
  columns: ["Word", "With positions", "Without"],
  difference: "largest |Δ|",
  same: "the same answer",
  different: "different answers",
};
