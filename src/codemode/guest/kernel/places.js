// The position of a call in the guest's source, shown to whoever decides on it. It uses the engine's own numbers and never
// the text of a stack: a program can name a function so that it reads as a frame of another position.

let frames; // of the stack that was requested last
const READER_ARGUMENTS = freeze([freeze((_error, read) => { frames = read; })]), NO_READER_ARGUMENTS = freeze([undefined]);
const readFrames = () => {
  apply(setStackReader, Err, READER_ARGUMENTS);
  try {
    new Err();
    return frames;
  } finally {
    apply(setStackReader, Err, NO_READER_ARGUMENTS);
    frames = undefined;
  }
};
const FramePrototype = getPrototypeOf(readFrames()[0]);
const lineOf = uncurry(FramePrototype.getLineNumber);
const columnOf = uncurry(FramePrototype.getColumnNumber);

// As JSON members; "" without a frame of the guest.
const encodeCallPosition = () => {
  const found = readFrames();
  for (let i = 0; i < found.length; i++) {
    const row = lineOf(found[i]);
    if (row > 0 && row < RUNTIME_FIRST_LINE) {
      const savedPosition = findSavedPosition(row);
      if (savedPosition !== undefined)
        return ',"line":' + savedPosition[1] + ',"column":' + toSavedColumn(savedPosition[1], columnOf(found[i])) + ',"program":' + stringify(savedPosition[0]);
      const place = toSourcePosition(row, toProgramColumn(row, columnOf(found[i])));
      return ',"line":' + place[0] + ',"column":' + place[1];
    }
  }
  return "";
};
