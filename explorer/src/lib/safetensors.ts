/** Reads safetensors: an 8-byte header length, a JSON header, then the data. */

export interface Tensor {
  name: string;
  shape: number[];
  data: Float32Array;
}

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** The tensors of a file by name. Only float32 is supported. */
export function parse(buffer: ArrayBuffer): Map<string, Tensor> {
  if (buffer.byteLength < 8) throw new Error("not a safetensors file: shorter than its header");
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  if (8 + length > buffer.byteLength)
    throw new Error("not a safetensors file: its header runs past its end");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as Record<
    string,
    Entry
  >;
  const tensors = new Map<string, Tensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    if (entry.dtype !== "F32") throw new Error(`tensor ${name} is ${entry.dtype}, expected F32`);
    const [from, to] = entry.data_offsets;
    const start = 8 + length + from;
    // A typed array needs an aligned offset, which the padding of the header usually gives.
    const data =
      start % 4 === 0
        ? new Float32Array(buffer, start, (to - from) / 4)
        : new Float32Array(buffer.slice(start, start + to - from));
    tensors.set(name, { name, shape: entry.shape, data });
  }
  return tensors;
}

/** The bytes of a base64 text. */
export function fromBase64(text: string): ArrayBuffer {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  return bytes.buffer;
}

/** A matrix inside a tensor: `lead` fixes the leading axes, e.g. `slice(weights, [head])`. */
export function slice(
  tensor: Tensor,
  lead: number[] = [],
): { data: Float32Array; offset: number; rows: number; cols: number } {
  const shape = tensor.shape;
  const cols = shape[shape.length - 1] ?? 1;
  const rows = shape[shape.length - 2] ?? 1;
  let at = 0;
  for (let k = 0; k < shape.length - 2; k++) at = at * shape[k]! + (lead[k] ?? 0);
  return { data: tensor.data, offset: at * rows * cols, rows, cols };
}
