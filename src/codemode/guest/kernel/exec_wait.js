// What a program over a hidden catalog sees of it: ALL_TOOLS, and `tools` with search, describe, call and safe names.
// `given` has JSON texts for them, which are read when somebody looks.

let allTools; // the frozen entries, once the program has touched them

const readAllTools = freeze({
  ALL_TOOLS() {
    if (allTools !== undefined) return allTools;
    if (given.entries === undefined) throw new Err("ALL_TOOLS has to stand in the program by its name");
    return (allTools = freezeJson(parse(given.entries)));
  },
}.ALL_TOOLS);

const askTools = (name, args) => {
  requireRunning();
  const text = toPlain(args), limit = reachedLimit("catalog");
  return limit === undefined ? send("catalog", name, text, false) : refuse(limit);
};
const toolHelpers = freeze({
  __proto__: null,
  search: freeze({ search(query, options = undefined) { return askTools("search", [query, options]); } }.search),
  describe: freeze({ describe(id) { return askTools("describe", [id]); } }.describe),
  call: freeze({
    call(id, input = undefined) {
      if (typeof id !== "string") throw new TypeErr("tools.call(id, input): the id must be a string, not " + kindOf(id));
      // What a server or a namespace has is called there, and by no id.
      const isKnown = indexOf(id, "mcp:") !== 0 && indexOf(id, "namespace:") !== 0;
      return request("tool", slice(isKnown ? id : "unknown " + id, 0, MAX_PATH), input === undefined ? [] : [input]);
    },
  }.call),
});
const helperNames = freeze(ownKeys(toolHelpers));

const shownMember = (object, key, value) =>
  defineProperty(object, key, { __proto__: null, value, writable: false, enumerable: true, configurable: false });
const calledWith = (name, id) =>
  freeze({ [name](input = undefined) { return request("tool", id, input === undefined ? [] : [input]); } }[name]);

// The host says which names there are: none of a helper, or of what the language reads. What a program does not look
// at stands ready, once for all of them.
const helpersAlone = () => {
  const tools = create(Obj.prototype);
  for (let i = 0; i < helperNames.length; i++) shownMember(tools, helperNames[i], toolHelpers[helperNames[i]]);
  return tools;
};
const noNames = freeze(helpersAlone());
const makeCatalogTools = () => {
  if (given.names === undefined) return noNames;
  const tools = helpersAlone(), names = parse(given.names), keys = ownKeys(names);
  for (let i = 0; i < keys.length; i++) shownMember(tools, keys[i], calledWith(keys[i], names[keys[i]]));
  return freeze(tools);
};

// Servers of MCP: functions that take one object, under every name that leads to a tool of theirs.

// What takes plain arguments in a program takes an object on the host.
const lookupsOf = (ids, reader) => {
  const lookups = create(Obj.prototype);
  shownMember(lookups, "list", freeze({ list() { return request("tool", ids.list, []); } }.list));
  shownMember(lookups, reader, reader === "read" ?
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
  for (let i = 0; i < keys.length; i++) shownMember(server, keys[i], calledWith(keys[i], told.tools[keys[i]]));
  if (told.resources !== undefined) shownMember(server, "resources", lookupsOf(told.resources, "read"));
  if (told.prompts !== undefined) shownMember(server, "prompts", lookupsOf(told.prompts, "get"));
  const describeServer = freeze({ $api(tool = undefined, options = undefined) { return askTools("mcp.api", [name, tool, options]); } }.$api);
  defineProperty(server, "$api", { __proto__: null, value: describeServer, writable: false, enumerable: false, configurable: false });
  return freeze(server);
};
const noServers = freeze(create(Obj.prototype));
const makeServers = () => {
  if (given.servers === undefined) return noServers;
  const servers = create(Obj.prototype), told = parse(given.servers), names = ownKeys(told);
  for (let i = 0; i < names.length; i++) shownMember(servers, names[i], makeServer(names[i], told[names[i]]));
  return freeze(servers);
};
const guestApi = freeze({
  __proto__: Obj.prototype,
  list: freeze({ list(prefix = undefined) { return askTools("api.list", [prefix]); } }.list),
  read: freeze({ read(path) { return askTools("api.read", [path]); } }.read),
});

// Namespaces: what the host has made of them for this program. A leaf is data, or the path by which the host finds what
// is called; their names stand in no other global.

const scopeValue = (node) => {
  if (node.path !== undefined) {
    const path = node.path, dot = lastIndexOf(path, "."), name = slice(path, (dot < 0 ? lastIndexOf(path, ":") : dot) + 1);
    return freeze({ [name](...args) { return request("tool", path, [{ "namespace arguments": args }]); } }[name]);
  }
  if (node.value !== undefined) return freezeJson(node.value);
  if (node.items !== undefined) {
    const items = [];
    for (let i = 0; i < node.items.length; i++)
      defineProperty(items, i, { __proto__: null, value: scopeValue(node.items[i]), writable: true, enumerable: true, configurable: true });
    return freeze(items);
  }
  const object = create(Obj.prototype), keys = ownKeys(node.members);
  for (let i = 0; i < keys.length; i++) shownMember(object, keys[i], scopeValue(node.members[keys[i]]));
  return freeze(object);
};
let scopes; // what is in `namespaces`, which stands among the globals too
const noScopes = freeze(create(Obj.prototype));
const makeScopes = () => {
  if (given.scopes === undefined) return noScopes;
  scopes = create(Obj.prototype);
  const told = parse(given.scopes, readExactly), names = ownKeys(told);
  for (let i = 0; i < names.length; i++) shownMember(scopes, names[i], scopeValue(told[names[i]]));
  return freeze(scopes);
};
