// The globals of an exec program: ALL_TOOLS, and `tools` with search, describe, call and the tools' safe names.
// `given` has JSON texts for them, which are parsed on first use.

let allTools; // the frozen entries; undefined until first read

const readAllTools = freeze({
  ALL_TOOLS() {
    if (allTools !== undefined) return allTools;
    if (given.entries === undefined) throw new Err("ALL_TOOLS has to stand in the program by its name");
    return (allTools = freezeJson(parse(given.entries)));
  },
}.ALL_TOOLS);

const requestCatalog = (name, args) => {
  requireRunning();
  const text = toUntaggedJson(args), limit = findReachedLimit("catalog");
  return limit === undefined ? sendRequest("catalog", name, text, false) : rejectOverLimit(limit);
};
const toolHelpers = freeze({
  __proto__: null,
  search: freeze({ search(query, options = undefined) { return requestCatalog("search", [query, options]); } }.search),
  describe: freeze({ describe(id) { return requestCatalog("describe", [id]); } }.describe),
  call: freeze({
    call(id, input = undefined) {
      if (typeof id !== "string") throw new TypeErr("tools.call(id, input): the id must be a string, not " + getTypeName(id));
      // Tools of servers and namespaces are called through these, not by id.
      const isPlainId = indexOf(id, "mcp:") !== 0 && indexOf(id, "namespace:") !== 0;
      return request("tool", slice(isPlainId ? id : "unknown " + id, 0, MAX_TOOL_PATH_LENGTH), input === undefined ? [] : [input]);
    },
  }.call),
});
const helperNames = freeze(ownKeys(toolHelpers));

const defineReadOnly = (object, key, value) =>
  defineProperty(object, key, { __proto__: null, value, writable: false, enumerable: true, configurable: false });
const makeToolFunction = (name, id) =>
  freeze({ [name](input = undefined) { return request("tool", id, input === undefined ? [] : [input]); } }[name]);

// The host chooses the names; none is a helper's or read by the engine itself. The object without tool names
// is made once and shared.
const makeHelperTools = () => {
  const tools = create(Obj.prototype);
  for (let i = 0; i < helperNames.length; i++) defineReadOnly(tools, helperNames[i], toolHelpers[helperNames[i]]);
  return tools;
};
const HELPER_TOOLS = freeze(makeHelperTools());
const makeCatalogTools = () => {
  if (given.names === undefined) return HELPER_TOOLS;
  const tools = makeHelperTools(), names = parse(given.names), keys = ownKeys(names);
  for (let i = 0; i < keys.length; i++) defineReadOnly(tools, keys[i], makeToolFunction(keys[i], names[keys[i]]));
  return freeze(tools);
};

// MCP servers: for each name of a tool, a function that takes one object.

// Resources and prompts: positional arguments in the program become one object for the host.
const makeLookups = (ids, reader) => {
  const lookups = create(Obj.prototype);
  defineReadOnly(lookups, "list", freeze({ list() { return request("tool", ids.list, []); } }.list));
  defineReadOnly(lookups, reader, reader === "read" ?
    freeze({ read(uri) { return request("tool", ids.read, [{ uri: isObject(uri) ? uri.uri : uri }]); } }.read) :
    freeze({
      get(name, input = undefined) {
        return request("tool", ids.get, [isObject(name) ? name : { name, arguments: input === undefined ? {} : input }]);
      },
    }.get));
  return freeze(lookups);
};
const makeServer = (name, told) => {
  const server = create(Obj.prototype), keys = ownKeys(told.tools);
  for (let i = 0; i < keys.length; i++) defineReadOnly(server, keys[i], makeToolFunction(keys[i], told.tools[keys[i]]));
  if (told.resources !== undefined) defineReadOnly(server, "resources", makeLookups(told.resources, "read"));
  if (told.prompts !== undefined) defineReadOnly(server, "prompts", makeLookups(told.prompts, "get"));
  const describeServer = freeze({ $api(tool = undefined, options = undefined) { return requestCatalog("mcp.api", [name, tool, options]); } }.$api);
  defineProperty(server, "$api", { __proto__: null, value: describeServer, writable: false, enumerable: false, configurable: false });
  return freeze(server);
};
const NO_SERVERS = freeze(create(Obj.prototype));
const makeServers = () => {
  if (given.servers === undefined) return NO_SERVERS;
  const servers = create(Obj.prototype), told = parse(given.servers), names = ownKeys(told);
  for (let i = 0; i < names.length; i++) defineReadOnly(servers, names[i], makeServer(names[i], told[names[i]]));
  return freeze(servers);
};
const guestApi = freeze({
  __proto__: Obj.prototype,
  list: freeze({ list(prefix = undefined) { return requestCatalog("api.list", [prefix]); } }.list),
  read: freeze({ read(path) { return requestCatalog("api.read", [path]); } }.read),
});

// Namespaces, as the host describes them for this program. A leaf is data, or a path by which the host finds a
// function; the functions are in no other global.

const makeScopeValue = (node) => {
  if (node.path !== undefined) {
    const path = node.path, dot = lastIndexOf(path, "."), name = slice(path, (dot < 0 ? lastIndexOf(path, ":") : dot) + 1);
    return freeze({ [name](...args) { return request("tool", path, [{ "namespace arguments": args }]); } }[name]);
  }
  if (node.value !== undefined) return freezeJson(node.value);
  if (node.items !== undefined) {
    const items = [];
    for (let i = 0; i < node.items.length; i++)
      defineProperty(items, i, { __proto__: null, value: makeScopeValue(node.items[i]), writable: true, enumerable: true, configurable: true });
    return freeze(items);
  }
  const object = create(Obj.prototype), keys = ownKeys(node.members);
  for (let i = 0; i < keys.length; i++) defineReadOnly(object, keys[i], makeScopeValue(node.members[keys[i]]));
  return freeze(object);
};
let scopes; // the members of `namespaces`, which are also globals of their own
const NO_SCOPES = freeze(create(Obj.prototype));
const makeScopes = () => {
  if (given.scopes === undefined) return NO_SCOPES;
  scopes = create(Obj.prototype);
  const told = parse(given.scopes, readExactly), names = ownKeys(told);
  for (let i = 0; i < names.length; i++) defineReadOnly(scopes, names[i], makeScopeValue(told[names[i]]));
  return freeze(scopes);
};
