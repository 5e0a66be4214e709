/** Classes of tokens that can be read off their spelling, with a colour and a shape for each. */

export type TokenClass =
  "special" | "byte" | "capital" | "start" | "inside" | "vowel" | "consonant" | "number" | "mark";

/** Okabe and Ito's colours; neighbours in this list differ in lightness, too. */
export const CLASS_COLOURS: Record<TokenClass, string> = {
  special: "#d55e00",
  byte: "#8c8c8c",
  capital: "#0072b2",
  start: "#56b4e9",
  inside: "#e69f00",
  vowel: "#e69f00",
  consonant: "#56b4e9",
  number: "#009e73",
  mark: "#cc79a7",
};

const SPECIAL = /^(< (begin|end|unknown) >|<\/?(s|unk|pad|bos|eos|mask)>|\[[A-Z]+\]|__\w+__)$/i;

/** In some vocabularies tokens include the space before a word; in the others it is no class. */
export const isSpaced = (labels: string[]): boolean => labels.some((text) => /^ ./.test(text));

export function classOf(text: string, spaced: boolean): TokenClass {
  if (SPECIAL.test(text)) return "special";
  if (/^<0x[0-9A-F]{2}>$/i.test(text)) return "byte";
  const bare = text.trimStart();
  if (/^\p{N}/u.test(bare)) return "number";
  if (!/^\p{L}/u.test(bare)) return "mark";
  if (spaced)
    return !text.startsWith(" ") ? "inside" : /^[\p{Lu}\p{Lt}]/u.test(bare) ? "capital" : "start";
  return /^[aeiou]/i.test(bare.normalize("NFD")) ? "vowel" : "consonant";
}
