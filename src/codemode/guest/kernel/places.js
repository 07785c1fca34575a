// Where the guest makes a call, for whoever is asked about it. The engine's own numbers are read, never the text of a
// stack: a program can name a function so that it reads as a frame of another place.

let frames; // of the stack that was asked for last
const READER = freeze([freeze((_error, read) => { frames = read; })]), NO_READER = freeze([undefined]);
const readFrames = () => {
  apply(setStackReader, Err, READER);
  try {
    new Err();
    return frames;
  } finally {
    apply(setStackReader, Err, NO_READER);
    frames = undefined;
  }
};
const FramePrototype = getPrototypeOf(readFrames()[0]);
const lineOf = uncurry(FramePrototype.getLineNumber);
const columnOf = uncurry(FramePrototype.getColumnNumber);

// As JSON members; "" where no frame is the guest's.
const placeMembers = () => {
  const found = readFrames();
  for (let i = 0; i < found.length; i++) {
    const row = lineOf(found[i]);
    if (row > 0 && row < KERNEL_LINE) {
      const inSaved = savedPlace(row);
      if (inSaved !== undefined)
        return ',"line":' + inSaved[1] + ',"column":' + savedColumn(inSaved[1], columnOf(found[i])) + ',"program":' + stringify(inSaved[0]);
      const place = placeInSource(row, guestColumn(row, columnOf(found[i])));
      return ',"line":' + place[0] + ',"column":' + place[1];
    }
  }
  return "";
};
