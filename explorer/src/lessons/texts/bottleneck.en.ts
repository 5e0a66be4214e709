import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "Before attention, a recurrent network read the whole source into one vector, and the " +
    "decoder had to work from that. Two such models learned to reverse up to 20 digits: one with " +
    "a single vector, one with Bahdanau's attention.",
  question:
    "Both reverse 8 digits almost always. How often does the one without attention reverse 20?",
  options: ["also almost always", "about half of the time", "hardly ever"],
  tasks: [
    "Move the length to 20 and compare the two models.",
    "Below, let the model look at the k while it says the first sound of “knight”.",
    "Let it look at the k again at the last step (■), when it should end.",
  ],
  seen:
    "Both models have the same width, data and training. One vector of fixed size cannot hold a " +
    "source of any length; attention reads the source again at every step:",
  explain: [
    "Attention was invented to remove this bottleneck: at each step the decoder asks where to " +
      "read, and gets a weighted mean of all encoder states.",
    "Its score is a small network: v · tanh(W q + U k). The vector v turns the tanh into a " +
      "number; some texts leave it out, and then there is no score.",
    "Setting the weights by hand shows that the decoder follows them. It reads a silent k aloud, " +
      "skips letters, or says the word twice, depending on where you point it.",
  ],
  formula: "eⱼ = v · tanh(W s + U hⱼ),   α = softmax(e),   c = Σ αⱼ hⱼ",
  page: "every number of the recurrent model",
  papers: [
    "K. Cho et al., On the properties of neural machine translation, 2014",
    "D. Bahdanau et al., Neural machine translation by jointly learning to align and translate, 2015",
  ],
};

export const figure = {
  chart: "Share of strings reversed without an error, by length",
  names: {
    none: "one vector (Cho et al. 2014)",
    bahdanau: "with attention (Bahdanau et al. 2015)",
  },
  length: "Length",
  axis: "length",
  yAxis: "accuracy",
  trained: "trained lengths",
  hand: "Point the model's attention by hand",
  handHint:
    "Choose a step (the sound that the model says there), then the letter that gets all the weight " +
    "at that step. Bars are the attention weights; ■ is the end.",
  step: "Step",
  letter: (letter: string) => `All weight on ${letter}`,
  weights: "Weights at this step",
  free: "Let the model decide",
  output: "Output",
  columns: ["Length", "One vector", "Attention"],
};
