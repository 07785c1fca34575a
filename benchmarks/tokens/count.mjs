// Reads a JSON array of texts and writes the number of tokens of each; the tokenizer is below the folder that it is told.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { countTokens } = createRequire(join(process.argv[2], "here.js"))("gpt-tokenizer/encoding/o200k_base");
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((text) => countTokens(text))));
