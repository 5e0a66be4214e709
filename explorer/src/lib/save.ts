/** Saving files: pictures, tables and server exports. */

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

/** The data of a view, for "show as table" and for CSV. */
export interface Table {
  caption: string;
  columns: string[];
  rows: Cell[][];
}

/** RFC 4180. Text that a spreadsheet would run as a formula gets a leading apostrophe. */
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

export const fileName = (...parts: string[]): string =>
  parts
    .join("-")
    .replaceAll(/[^\p{L}\p{N}.@_-]+/gu, "-")
    .slice(0, 80)
    .replace(/[.-]+$/, "");
