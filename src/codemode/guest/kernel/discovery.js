// @codemode/discovery: questions to the host's catalog. The host checks what is asked; here nothing is known of servers.

const SPEC_VERSION = "1.0.0";

// A question whose arguments are no JSON is none; the host hears nothing of it.
const askCatalog = (name, args) => {
  let text, count = args.length;
  try {
    while (count > 0 && args[count - 1] === undefined) count--; // left out, as far as the host can tell
    args.length = count;
    text = toPlain(args);
  } catch (error) {
    if (saysNothing(error)) throw error; // no memory
    return refuseInput({ message: name + ": the arguments are no JSON: " + thrownText(error), received: "no JSON" });
  }
  return sendModule("catalog", name, text);
};

const discoveryExports = create(null);
discoveryExports.specVersion = SPEC_VERSION;
for (const name of ["listServers", "describeServer", "listTools", "getTool", "searchTools"])
  discoveryExports[name] = freeze({ [name](...args) { return askCatalog(name, args); } }[name]);
