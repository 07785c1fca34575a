// The TypeScript SDK as a client of the gateway: `PACKAGES PROGRAM URL` or `PACKAGES PROGRAM COMMAND...`. Says what it
// saw as JSON. PACKAGES is the folder in which the SDK is installed.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, program, ...target] = process.argv.slice(2);
const installed = createRequire(pathToFileURL(`${packages}/`));
const part = (name) => import(pathToFileURL(installed.resolve(`@modelcontextprotocol/sdk/${name}`)));
const { Client } = await part("client/index.js");
const { StdioClientTransport } = await part("client/stdio.js");
const { StreamableHTTPClientTransport } = await part("client/streamableHttp.js");
const { ElicitRequestSchema } = await part("types.js");

let asked = 0;
const client = new Client({ name: "with-typescript", version: "1.0.0" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, () => {
  asked += 1;
  return { action: "accept", content: { decision: "once" } };
});
const [first, ...rest] = target;
const isUrl = first.startsWith("http");
const transport = isUrl
  ? new StreamableHTTPClientTransport(new URL(first))
  : new StdioClientTransport({ command: first, args: rest, env: process.env });
await client.connect(transport);
const tools = (await client.listTools()).tools.map((one) => one.name);
const result = await client.callTool({ name: tools[0], arguments: { code: program } });
console.log(JSON.stringify({ tools, asked, answer: JSON.parse(result.content[0].text) }));
await client.close();
