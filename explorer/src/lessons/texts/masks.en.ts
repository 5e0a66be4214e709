import type { LessonTexts } from "./frame.en";

export const texts: LessonTexts = {
  lead:
    "A trained Transformer spells out the sounds of “chef”. Its decoder may not look at sounds it " +
    "has yet to say, and one of its 36 heads always looks one letter back.",
  question:
    "The model answers SH EH F for “chef”. One head of the encoder looks at the previous letter. " +
    "Without that head, what does the model say?",
  options: ["SH EH F: one head of 36 is not missed", "CH EH F", "nothing that makes sense"],
  tasks: [
    "Colour the cells that the decoder may see: each sound and those before it.",
    "Find the head that looks at the previous letter.",
    "Remove that head and read the output.",
  ],
  seen:
    "The mask you coloured is the one the model uses. The head puts nearly all its weight on the " +
    "previous letter, and the output depends on it:",
  explain: [
    "The letters c and h make one sound, so at h the model must know that c came before. A head " +
      "that looks one letter back carries exactly that.",
    "A mask sets the scores of forbidden keys to −∞ before softmax, so their weights are exactly " +
      "0. In training all outputs are computed at once, and without the mask each would simply " +
      "copy the next sound.",
    "Ablation removes a head's context before W_O and runs the model again. It measures what the " +
      "head does for this word; for many other words this head is hardly missed.",
  ],
  formula: "α = softmax(s + m),   m = 0 where allowed, −∞ elsewhere",
  page: "all heads of the model, with their ablation effects",
  papers: [
    "A. Vaswani et al., Attention is all you need, 2017, section 3.2.3",
    "E. Voita et al., Analyzing multi-head self-attention, 2019",
  ],
};

export const figure = {
  mask: "1. Which sounds may the decoder see?",
  maskHint:
    "Rows are steps (query), columns are inputs (key). Select a cell to allow it, again to forbid " +
    "it. ▶ is the start, ■ the end.",
  cell: (query: string, key: string) => `step ${query} sees ${key}`,
  right: "This is the model's mask.",
  heads: "2. Self-attention heads of the encoder on “chef”",
  headsHint:
    "Each picture is a head, named layer · head. Rows are queries c h e f ■, columns are keys, " +
    "bright is a large weight. Choose one.",
  head: (layer: number, head: number) => `Layer ${layer}, head ${head}`,
  share: (share: string) => `weight on the previous letter: ${share}`,
  ablate: "3. Remove this head",
  restore: "Put the head back",
  output: "Output",
  logp: "Log-probability of SH EH F",
  columns: ["Model", "Output", "log p of SH EH F"],
  rows: ["all heads", "without the head"],
};
