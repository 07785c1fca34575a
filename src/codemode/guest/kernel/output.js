// Output for the caller: text(), json() and content(); and yield_control(), which lets the caller read it early.

// Each item costs the host a frame, however short it is.
const MAX_OUTPUT_ITEMS = 16384, MAX_YIELDS = 1000, MAX_REASON_LENGTH = 1000;
let outputBytes = 0, outputItemCount = 0, yieldCount = 0;

const OUTPUT_LIMIT_LINE =
  slice('X{"name":"Error","message":"too much output","code":"CODE_MODE_OUTPUT_LIMIT","stack":"","limit":"max_output_bytes"}', 0);

// Items, console and result count together. Over the limit the program is ended before it can catch the error.
const countOutput = (bytes) => {
  outputBytes += bytes;
  if (outputBytes <= programSettings.max_output_bytes && outputItemCount <= MAX_OUTPUT_ITEMS) return;
  const message = "too much output (" + getLimitName("max_output_bytes") + " is " + programSettings.max_output_bytes + ")";
  const error = makeHostError("Error", message, "CODE_MODE_OUTPUT_LIMIT", formatGuestStack(new Err().stack), encodeLimitOrigin("max_output_bytes"));
  failProgram(error, "", OUTPUT_LIMIT_LINE); // a program may write when almost no stack is left
  throw error;
};
const writeOutputItem = (kind, text) => {
  outputItemCount++;
  countOutput(utf8Length(text));
  emit("O", '{"kind":"' + kind + '","text":' + stringify(text) + "}");
};

const formatOutputItem = (value) => {
  if (!isObject(value) || typeof value === "function") return toSafeText(value, programSettings.max_output_bytes + 1);
  if (value instanceof Err) return formatError(value, MAX_MESSAGE_LENGTH);
  const text = toDisplayJson(value);
  return text === undefined ? toSafeText(value, MAX_MESSAGE_LENGTH) : text;
};
const guestText = freeze({
  text(value) {
    requireRunning();
    const text = formatOutputItem(value); // may run guest code, which may write
    requireRunning();
    writeOutputItem("text", text);
  },
}.text);
const guestJson = freeze({
  json(value) {
    requireRunning();
    const text = toDisplayJson(value);
    if (text === undefined) throw new TypeErr("json(value): the value must be a JSON value, not " + typeof value);
    requireRunning();
    writeOutputItem("json", text);
  },
}.json);

// A shown part counts as output if output is limited, and always against max_content_parts.
const guestContent = freeze({
  content(handle) {
    requireRunning();
    const place = getContentPlaceholder(handle);
    if (place === undefined)
      throw new TypeErr("content(handle): takes an image, audio or a file as a tool has given it, not " + getTypeName(handle));
    if (shownContentCount >= programSettings.max_content_parts)
      throw new RangeErr("content was called too often (max_content_parts is " + programSettings.max_content_parts + ")");
    const text = toUntaggedJson(place);
    if (programSettings.max_output_bytes !== undefined) countOutput(utf8Length(text));
    emit("O", '{"kind":"content","text":' + stringify(text) + "}");
    shownContentCount++;
  },
}.content);

const rejectYield = () => {
  const message = "yield_control was called too often (at most " + MAX_YIELDS + " times)";
  const stack = formatGuestStack(new Err().stack);
  return rejectWith(makeHostError("CodeModeBridgeLimitError", message, "CODE_MODE_BRIDGE_LIMIT", stack, encodeLimitOrigin("max_yields")));
};
const guestYieldControl = freeze({
  yield_control(reason = undefined) {
    requireRunning();
    const text = reason === undefined ? undefined : stringify(toSafeText(reason, MAX_REASON_LENGTH)); // may run guest code
    requireRunning();
    if (yieldCount >= MAX_YIELDS) return rejectYield();
    const slot = { __proto__: null, id: nextId, kind: "yield", observed: true, delivered: false, resolve: undefined, reject: undefined };
    const promise = makeBridgePromise(slot);
    enqueueRequest(slot, encodeRequest(slot.id, "yield", "yield_control", text, ""));
    yieldCount++;
    return promise;
  },
}.yield_control);
