import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "A token's vector is multiplied by three matrices: as a query it asks, as a key it is " +
    "matched, as a value it is returned. Why not use one vector for all three?",
  question:
    "Suppose queries and keys use the same matrix. “Cat” scores “mouse” with 1.5. How does " +
    "“mouse” score “cat”?",
  options: ["higher", "lower", "with 1.5 as well, always", "it depends on the third word"],
  handles: true,
  tasks: [
    "Turn W_Q until “cat” looks at “mouse” most, but “mouse” does not look at “cat” most.",
    "Turn W_V: the output moves, and no weight changes.",
  ],
  seen:
    "With one shared space the table of scores is symmetric, and a long vector looks mostly at " +
    "itself. With two spaces every pair can have its own two scores:",
  explain: [
    "Looking is not mutual: a pronoun looks for its noun, but the noun need not look back. " +
      "Separate matrices for queries and keys allow that.",
    "Queries and keys live in the attention space, where only dot products matter. Both may be " +
      "turned together without any effect. Its width is free to choose; so are the widths of the " +
      "inputs and of the outputs.",
    "Values live in a third space. They decide what is passed on, and the weights how much of " +
      "it. There is one output for each query, whatever the number of keys.",
  ],
  formula: "sᵢⱼ = (W_Q xᵢ) · (W_K xⱼ) / √d,   yᵢ = Σⱼ softmaxⱼ(sᵢⱼ) W_V xⱼ",
  page: "q, k and v of a trained head",
  papers: [
    "A. Vaswani et al., Attention is all you need, 2017",
    "M. Phuong and M. Hutter, Formal algorithms for Transformers, 2022",
  ],
};

export const figure = {
  planes: ["Input space", "Attention space", "Output space"],
  notes: ["x: drag the words", "q of the chosen word, k of all", "v of all, and the output y"],
  word: (word: string) => `The word ${word}`,
  chosen: "Query",
  turns: ["Turn W_Q", "Turn W_K", "Turn W_V"],
  degrees: (angle: number) => `${angle}°`,
  scores: "Weights: each row is a query, each column a key",
  corner: "query ↓ key →",
  weight: (weight: string, score: string) => `${weight} (score ${score})`,
  asymmetry: "Largest difference between sᵢⱼ and sⱼᵢ",
  columns: ["Matrices", "Largest |sᵢⱼ − sⱼᵢ|"],
  rows: ["W_Q = W_K", "as set beside"],
};
