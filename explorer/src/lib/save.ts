/** Files for the person: pictures, tables, whatever the server exports. */

export function save(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export type Cell = string | number;

/** A table as every view can give it: for "show as table" and for CSV. */
export interface Table {
  caption: string;
  columns: string[];
  rows: Cell[][];
}

/** RFC 4180. Numbers keep all their digits; text that a spreadsheet would run as a formula is quoted apart. */
export function csv(table: Table): string {
  const field = (cell: Cell): string => {
    if (typeof cell === "number") return String(cell);
    const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return (
    [table.columns, ...table.rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n"
  );
}

export const xml = (text: string): string =>
  text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");

export const fileName = (...parts: string[]): string =>
  parts
    .join("-")
    .replaceAll(/[^\p{L}\p{N}.@_-]+/gu, "-")
    .slice(0, 80);
