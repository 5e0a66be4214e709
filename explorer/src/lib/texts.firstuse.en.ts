/** Texts that answer what first-time users asked: symbols, unread text, saved pages. */

const LISTED = 8;
const listed = (all: string[]): string =>
  all
    .slice(0, LISTED)
    .map((one) => `“${one}”`)
    .join(", ") + (all.length > LISTED ? ` and ${all.length - LISTED} more` : "");

export const firstUse = {
  pressRun: "Press Run",
  savedPage: "Saved page: every number opens, but new texts need `regard explore`.",
  savedPicture: (heads: number) =>
    heads === 1
      ? "A wider line is a larger attention weight."
      : `A wider line is a larger weight (mean of ${heads} cross-attention heads).`,
  symbols: "Symbols",
  signs: [
    ["␣", "space; a token that begins with it starts a word"],
    ["▶", "start of the target, the decoder's first input"],
    ["■", "end of the text"],
    ["�", "symbol that the model does not know"],
  ] as [string, string][],
  legend: "␣ is a space, ▶ the start and ■ the end of a text.",
  bytes: (symbols: string[]) =>
    `Not in the model’s vocabulary and read byte by byte: ${listed(symbols)}. ` +
    "Its output for them means little.",
  spelled: (words: string[], lower: boolean) =>
    `Read letter by letter, because no part of it is in the vocabulary: ${listed(words)}.` +
    (lower ? " Lower-case letters may work better." : ""),
  lengths: (reference: number, current: number) =>
    `No difference is drawn: the outputs have ${reference} and ${current} tokens.`,
};
