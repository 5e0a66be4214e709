/** Texts about the arithmetic of saved pages. */

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e6 ? 2 : 0)} MB`;

export const savedTexts = {
  missing: (name: string, bytes: number, limit: number): string =>
    limit || bytes
      ? `This saved page does not contain ${name}${bytes ? ` (${megabytes(bytes)})` : ""}: it has at ` +
        `most ${megabytes(limit)} of weights. Save it with more, trace.show(weights_mb=…), or run ` +
        `\`regard explore\` on the model.`
      : `This saved page does not know the operation ${name}. Run \`regard explore\` on the model.`,
};
