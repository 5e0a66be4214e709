import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "Attention weights look like an explanation: the model “looks at” this letter, so this letter " +
    "must have caused the sound. Hide a letter, and you see what it really caused.",
  question:
    "Rank all letters of “knight” for each sound, once by weight and once by the effect of hiding " +
    "the letter. How well do the two rankings agree? (1 = perfectly, 0 = not at all)",
  options: ["almost perfectly, above 0.9", "in part, between 0.4 and 0.9", "hardly, below 0.4"],
  tasks: [
    "For three sounds, pick the letter that you think matters most.",
    "Find a sound whose most attended letter is not the one with the largest effect.",
  ],
  seen:
    "The rank correlation compares the order of all weights with the order of all effects. For " +
    "the words of this lesson:",
  explain: [
    "Weights say where a layer reads, not what the output depends on. They agree with the " +
      "effects in part: useful as a hint, wrong as a proof.",
    "A letter can matter without weight: other letters carry its information, because the " +
      "encoder has mixed them before. And weight can matter little: two t's say the same.",
    "Hiding one letter has limits, too. If either of two letters suffices, hiding one has no " +
      "effect, though hiding both would.",
  ],
  formula: "effect(letter, sound) = log p(sound) − log p(sound | letter hidden)",
  page: "attention vs. effect for any text",
  papers: [
    "S. Jain and B. C. Wallace, Attention is not explanation, 2019",
    "S. Wiegreffe and Y. Pinter, Attention is not not explanation, 2019",
  ],
};

export const figure = {
  word: "Word",
  sounds: "Sound",
  sound: (sound: string) => `Sound ${sound}`,
  pick: "Which letter matters most for this sound? Select it.",
  bars: "Bars are attention weights, the mean of all heads; ■ is the end.",
  letter: (letter: string, weight: string) => `${letter}, weight ${weight}`,
  effects: "Effect of hiding each letter, in nats",
  yours: (letter: string) => `Your pick: ${letter}.`,
  hit: "It has the largest effect.",
  miss: (letter: string) => `The largest effect is that of ${letter}.`,
  none: "Hiding any single letter changes almost nothing.",
  attended: (letter: string) => `The most attended letter is ${letter}.`,
  columns: ["Word", "Rank correlation"],
};
