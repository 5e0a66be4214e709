import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "Four words as vectors of five numbers. If meaning is a direction, then the step from man to " +
    "woman, taken from king, should lead to queen.",
  question: "Which two words have the highest cosine similarity?",
  options: ["king and queen", "man and woman", "king and man", "queen and woman"],
  handles: true,
  tasks: [
    "Drag queen until the nearest of all four words is no longer queen.",
    "Drag queen to the left of man. Which word is found without king, man and woman?",
  ],
  seen:
    "The analogy is exact for these vectors, yet king is closer to man than to queen. Cosines of " +
    "the vectors as they start:",
  explain: [
    "Equal arrows mean equal relations: queen − king and woman − man are the same vector, so " +
      "king − man + woman is queen exactly.",
    "Most analogy programs leave out the three query words. With four words only one is left, " +
      "so queen is found wherever it lies. Ask with the query words included before you believe " +
      "an analogy.",
    "A text that is often copied gives 0.98 for king and queen and 0.99 for man and woman. For " +
      "these vectors the cosines are 0.9485 and 0.9268; 0.991 belongs to king and man.",
  ],
  formula: "cos(a, b) = a · b / (‖a‖ ‖b‖),   king − man + woman = queen",
  page: "embeddings of a trained model and their neighbours",
  papers: [
    "T. Mikolov et al., Linguistic regularities in continuous space word representations, 2013",
  ],
};

export const figure = {
  plot: "King, queen, man and woman on a plane, with the arrows of the analogy. Drag the words.",
  across: "female (the fifth number) →",
  up: "royal ↑",
  word: (word: string) => `The word ${word}`,
  target: "king − man + woman",
  found: "Nearest to king − man + woman",
  included: "of all four words",
  excluded: "without king, man and woman",
  cosine: (value: string) => `cosine ${value}`,
  columns: ["Pair", "Cosine"],
  reset: "Put the words back",
  note:
    "The plane shows two directions of the five: the fifth number, and the step from man to king " +
    "without its fifth number. Cosines use all five.",
};
