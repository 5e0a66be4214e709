/** Tokens as they are drawn. A token's identity is its position, not its text: show that too. */

import type { Token, Trace } from "./contract";

const SIGNS: Record<string, string> = { "< begin >": "▶", "< end >": "■", "< unknown >": "�" };

/** A piece's text, with signs for begin, end, the unknown and a blank. */
export const pieceText = (text: string): string => SIGNS[text] ?? text.replaceAll(" ", "␣");
export const tokenText = (token: Token): string => pieceText(token.text);

/** Labels of an axis of the trace ("source", "target"); with `both`, a target row says what it was fed and what follows. */
export function labelsOf(trace: Trace, axis: string, both = false): string[] {
  if (axis === "source") return trace.tokens.source.map(tokenText);
  if (axis !== "target") return [];
  return trace.tokens.target.map((token, row) => {
    const next = trace.following[row];
    return both && next ? `${tokenText(token)} → ${pieceText(next.text)}` : tokenText(token);
  });
}
