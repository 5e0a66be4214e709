// The arithmetic of a saved page: a third classic script, which the export puts into the file. A
// live page asks the server instead and never loads it.
import { defineConfig } from "vite";

export default defineConfig({
  publicDir: false,
  build: {
    outDir: "../src/regard/explore/static",
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    rollupOptions: {
      input: "src/arithmetic/main.ts",
      output: { format: "iife", entryFileNames: "arithmetic.js" },
    },
  },
});
