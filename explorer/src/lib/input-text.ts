/** Typed texts and what a model can read: its alphabet and its case. */

import type { InputAlphabet } from "./contract";

/** Characters that keyboards and editors insert for plain ones. */
const PLAIN: Record<string, string> = {
  "’": "'",
  "‘": "'",
  ʼ: "'",
  "“": '"',
  "”": '"',
  "„": '"',
  "–": "-",
  "—": "-",
  "‐": "-",
  "‑": "-",
  "…": "...",
  "\u00a0": " ",
  "\u202f": " ",
  "\u2009": " ",
};

/**
 * The text as the model can read it. Only characters outside its alphabet are replaced, by one that
 * the model does not tell from them: nothing that it could have read is lost.
 */
export function fitInput(text: string, input: InputAlphabet | undefined): string {
  if (!input || (input.alphabet === null && input.case === "any")) return text;
  const known = input.alphabet === null ? null : new Set(input.alphabet);
  const reads = (part: string): boolean => !known || [...part].every((one) => known.has(one));
  return Array.from(text, (one) => {
    if (known?.has(one)) return one;
    const turned =
      input.case === "lower" ? one.toLowerCase() : input.case === "upper" ? one.toUpperCase() : one;
    if (turned !== one && turned.length === one.length && reads(turned)) return turned;
    const plain = PLAIN[one];
    return plain !== undefined && known && reads(plain) ? plain : one;
  }).join("");
}

/** An alphabet in a few characters: runs are written as a–z. */
export function alphabetText(alphabet: string): string {
  const codes = Array.from(alphabet, (one) => one.codePointAt(0)!).sort((a, b) => a - b);
  const parts: string[] = [];
  const write = (code: number): string => (code === 32 ? "␣" : String.fromCodePoint(code));
  for (let at = 0; at < codes.length;) {
    let end = at;
    while (codes[end + 1] === codes[end]! + 1) end++;
    if (end - at >= 2) parts.push(`${write(codes[at]!)}–${write(codes[end]!)}`);
    else for (let k = at; k <= end; k++) parts.push(write(codes[k]!));
    at = end + 1;
  }
  return parts.join(" ");
}
