/** Labels of tokens. Tokens are identified by position, not by text: show the position, too. */

import type { Token, Trace } from "./contract";

const SIGNS: Record<string, string> = { "< begin >": "▶", "< end >": "■", "< unknown >": "�" };

/** The text of a token, with symbols for special tokens and blanks; a mark stands on a circle. */
export const pieceText = (text: string): string =>
  SIGNS[text] ?? text.replaceAll(" ", "␣").replace(/^\p{M}/u, "◌$&");
export const tokenText = (token: Token): string => pieceText(token.text);

/** Labels of the axis "source" or "target"; with `both`, target rows show "input → next". */
export function labelsOf(trace: Trace, axis: string, both = false): string[] {
  if (axis === "source") return trace.tokens.source.map(tokenText);
  if (axis !== "target") return [];
  return trace.tokens.target.map((token, row) => {
    const next = trace.next_tokens[row];
    return both && next ? `${tokenText(token)} → ${pieceText(next.text)}` : tokenText(token);
  });
}
