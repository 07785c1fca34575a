// Bundles answer.mjs with the plugin and its engine, both from source: node build.mjs MODULES FRONTMCP ENCLAVE OUT
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, frontmcp, enclave, out] = process.argv.slice(2);
const here = import.meta.dirname;
const { build } = createRequire(join(modules, "package.json"))("esbuild");

await build({
  entryPoints: [join(here, "answer.mjs")],
  outfile: out,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  logLevel: "error",
  tsconfigRaw: { compilerOptions: { experimentalDecorators: true } },
  nodePaths: [join(modules, "node_modules")],
  external: ["@huggingface/transformers", "vectoriadb"],
  // The engine asks for the one file that it is in.
  banner: {
    js:
      'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' +
      "const __dirname = import.meta.dirname, __filename = import.meta.filename;",
  },
  alias: {
    codecall: join(frontmcp, "plugins/plugin-codecall"),
    "@frontmcp/lazy-zod": join(frontmcp, "libs/lazy-zod/src/index.ts"),
    "@frontmcp/sdk": join(here, "sdk.mjs"),
    "@frontmcp/protocol": join(here, "sdk.mjs"),
    "@enclave-vm/core": join(enclave, "libs/core/src/index.ts"),
    "@enclave-vm/ast": join(enclave, "libs/ast/src/index.ts"),
    "@enclave-vm/types": join(enclave, "libs/types/src/index.ts"),
  },
});
