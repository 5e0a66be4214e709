/** Parts of a text that a subword tokenizer could not read as words: bytes and single letters. */

import type { Token } from "./contract";

const BYTE = /^<0x[0-9A-F]{2}>$/;
const SHORTEST = 4; // letters: shorter words are often single letters in every vocabulary

/** The symbols that were read byte by byte, once each. */
export function byteSymbols(text: string, tokens: readonly Token[]): string[] {
  const symbols = Array.from(text);
  const found = tokens
    .filter((one) => BYTE.test(one.text))
    .map((one) => symbols.slice(one.start ?? 0, one.end ?? 0).join(""));
  return [...new Set(found)].filter((one) => one.trim());
}

/** The words that were read letter by letter; none if the vocabulary consists of letters. */
export function spelledWords(text: string, tokens: readonly Token[], letters: boolean): string[] {
  if (letters) return [];
  const starts = new Set(tokens.filter((one) => !one.special).map((one) => one.end));
  const found: string[] = [];
  let at = 0;
  for (const part of text.split(/(\s+)/)) {
    const size = Array.from(part).length;
    const ends = Array.from({ length: size }, (_, k) => starts.has(at + k + 1));
    if (size >= SHORTEST && /^\p{L}+$/u.test(part) && ends.every(Boolean)) found.push(part);
    at += size;
  }
  return [...new Set(found)];
}
