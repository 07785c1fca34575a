// What a program writes for whoever called it, text(), json() and content(), and where it lets them have a look: yield_control().

// Each item costs the host a frame, however short it is.
const MAX_OUTPUT_ITEMS = 16384, MAX_YIELDS = 1000, MAX_YIELD_REASON = 1000;
let outputBytes = 0, outputItems = 0, yields = 0;

const OUTPUT_LINE =
  slice('X{"name":"Error","message":"too much output","code":"CODE_MODE_OUTPUT_LIMIT","stack":"","limit":"max_output_bytes"}', 0);

// Items, console and value count together. The program has ended before it can catch anything.
const admitOutput = (bytes) => {
  outputBytes += bytes;
  if (outputBytes <= limits.max_output_bytes && outputItems <= MAX_OUTPUT_ITEMS) return;
  const message = "too much output (" + limitName("max_output_bytes") + " is " + limits.max_output_bytes + ")";
  const error = hostError("Error", message, "CODE_MODE_OUTPUT_LIMIT", guestStack(new Err().stack), limitOrigin("max_output_bytes"));
  endFenced(error, "", OUTPUT_LINE); // a program may write where next to no stack is left
  throw error;
};
const writeItem = (kind, text) => {
  outputItems++;
  admitOutput(utf8Length(text));
  emit("O", '{"kind":"' + kind + '","text":' + stringify(text) + "}");
};

const itemText = (value) => {
  if (!isObject(value) || typeof value === "function") return safeText(value, limits.max_output_bytes + 1);
  if (value instanceof Err) return errorText(value, MAX_MESSAGE);
  const text = toShown(value);
  return text === undefined ? safeText(value, MAX_MESSAGE) : text;
};
const guestText = freeze({
  text(value) {
    requireRunning();
    const text = itemText(value); // may run guest code, which may write
    requireRunning();
    writeItem("text", text);
  },
}.text);
const guestJson = freeze({
  json(value) {
    requireRunning();
    const text = toShown(value);
    if (text === undefined) throw new TypeErr("json(value): the value must be a JSON value, not " + typeof value);
    requireRunning();
    writeItem("json", text);
  },
}.json);

// What is shown counts as output where output is counted, and by itself everywhere.
const guestContent = freeze({
  content(handle) {
    requireRunning();
    const place = placeOfContent(handle);
    if (place === undefined)
      throw new TypeErr("content(handle): takes an image, audio or a file as a tool has given it, not " + kindOf(handle));
    if (shownContents >= limits.max_content_parts)
      throw new RangeErr("content was called too often (max_content_parts is " + limits.max_content_parts + ")");
    const text = toPlain(place);
    if (limits.max_output_bytes !== undefined) admitOutput(utf8Length(text));
    emit("O", '{"kind":"content","text":' + stringify(text) + "}");
    shownContents++;
  },
}.content);

const refuseYield = () => {
  const message = "yield_control was called too often (at most " + MAX_YIELDS + " times)";
  const stack = guestStack(new Err().stack);
  return rejected(hostError("CodeModeBridgeLimitError", message, "CODE_MODE_BRIDGE_LIMIT", stack, limitOrigin("max_yields")));
};
const guestYieldControl = freeze({
  yield_control(reason = undefined) {
    requireRunning();
    const text = reason === undefined ? undefined : stringify(safeText(reason, MAX_YIELD_REASON)); // may run guest code
    requireRunning();
    if (yields >= MAX_YIELDS) return refuseYield();
    const slot = { __proto__: null, id: nextId, kind: "yield", observed: true, delivered: false, resolve: undefined, reject: undefined };
    const promise = bridgePromise(slot);
    issue(slot, requestJson(slot.id, "yield", "yield_control", text, ""));
    yields++;
    return promise;
  },
}.yield_control);
