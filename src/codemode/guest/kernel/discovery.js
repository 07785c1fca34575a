// @codemode/discovery: requests to the host's catalog. The host validates them; the guest knows nothing about servers.

const SPEC_VERSION = "1.0.0";

// Arguments that are not JSON are rejected here, without a request.
const queryCatalog = (name, args) => {
  let text, count = args.length;
  try {
    while (count > 0 && args[count - 1] === undefined) count--; // left out, as far as the host can tell
    args.length = count;
    text = toUntaggedJson(args);
  } catch (error) {
    if (isNullOrUnset(error)) throw error; // no memory
    return rejectInvalidInput({ message: name + ": the arguments are no JSON: " + formatThrown(error), received: "no JSON" });
  }
  return sendModuleRequest("catalog", name, text);
};

const discoveryExports = create(null);
discoveryExports.specVersion = SPEC_VERSION;
for (const name of ["listServers", "describeServer", "listTools", "getTool", "searchTools"])
  discoveryExports[name] = freeze({ [name](...args) { return queryCatalog(name, args); } }[name]);
