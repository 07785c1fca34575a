// The URL Standard's parser and serialiser. A URL is a record: its scheme, credentials, host (null: none), port (null:
// the scheme's own), path (a list, or a text where it is opaque), query and fragment (null: none).

const SPECIAL_PORTS = freeze({ __proto__: null, ftp: 21, file: null, http: 80, https: 443, ws: 80, wss: 443 });
const isSpecial = (url) => SPECIAL_PORTS[url.scheme] !== undefined;
const SCHEME = /^[A-Za-z][A-Za-z0-9+.-]*:/;
const LINE_OR_TAB = /[\t\n\r]/;
const SLASH = 0x2f, BACKSLASH = 0x5c, QUESTION = 0x3f, HASH = 0x23;
const DRIVE = /^[A-Za-z][:|]$/, NORMALIZED_DRIVE = /^[A-Za-z]:$/, STARTS_WITH_DRIVE = /^[A-Za-z][:|](?:[/\\?#]|$)/;
const SINGLE_DOT = /^(?:\.|%2e)$/i, DOUBLE_DOT = /^(?:\.|%2e){2}$/i;

const createUrlRecord = () => ({
  __proto__: null, scheme: "", username: "", password: "", host: null, port: null, path: [], query: null, fragment: null,
});
const isOpaque = (url) => typeof url.path === "string";
const hasCredentials = (url) => url.username !== "" || url.password !== "";
const copyPath = (path) => {
  const copy = [];
  for (let i = 0; i < path.length; i++) copy[i] = path[i];
  return copy;
};
const stripNewlinesAndTabs = (text) => {
  if (matchIn(LINE_OR_TAB, text) === null) return text;
  let kept = "", start = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit !== 9 && unit !== 10 && unit !== 13) continue;
    kept += slice(text, start, i);
    start = i + 1;
  }
  return kept + slice(text, start);
};

// A part ends at the first match or at the end of the text. Programs cannot reach these patterns; `lastIndex` is set
// before each use.
const PATH_END = /[?#]/g, QUERY_END = /#/g, SEGMENT_END = /[/?#]/g, SPECIAL_SEGMENT_END = /[/\\?#]/g;
const SETTER_SEGMENT_END = /\//g, SETTER_SPECIAL_END = /[/\\]/g;
const findEnd = (text, at, ends) => {
  ends.lastIndex = at;
  const found = matchIn(ends, text);
  return found === null ? text.length : found.index;
};
const findAuthorityEnd = (url, text, at) => findEnd(text, at, isSpecial(url) ? SPECIAL_SEGMENT_END : SEGMENT_END);
const isSlash = (url, unit) => unit === SLASH || (unit === BACKSLASH && isSpecial(url));

// Returns the record of a URL, or undefined if it is invalid; `base` is a record or undefined.
const parseUrl = (input, base) => {
  const text = stripNewlinesAndTabs(trimControlAndSpace(input));
  const url = createUrlRecord(), scheme = matchIn(SCHEME, text);
  if (scheme !== null) {
    url.scheme = toLowerCase(slice(scheme[0], 0, -1));
    return parseAfterScheme(url, text, scheme[0].length, base) ? url : undefined;
  }
  if (base === undefined) return undefined;
  url.scheme = base.scheme;
  if (isOpaque(base)) {
    if (charCodeAt(text, 0) !== HASH) return undefined;
    url.path = base.path;
    url.query = base.query;
    return parseQueryAndFragment(url, text, 0);
  }
  return (base.scheme === "file" ? parseFile(url, text, 0, base) : parseRelative(url, text, 0, base)) ? url : undefined;
};

const parseAfterScheme = (url, text, at, base) => {
  if (url.scheme === "file") return parseFile(url, text, at, base);
  const first = charCodeAt(text, at), hasAuthority = first === SLASH && charCodeAt(text, at + 1) === SLASH;
  if (isSpecial(url)) {
    if (base !== undefined && base.scheme === url.scheme && !hasAuthority) return parseRelative(url, text, at, base);
    return parseSpecialAuthority(url, text, at);
  }
  if (hasAuthority) return parseAuthority(url, text, at + 2);
  if (first === SLASH) return parsePath(url, text, at + 1);
  const end = findEnd(text, at, PATH_END);
  url.path = encodeOpaquePath(slice(text, at, end), end < text.length);
  return parseQueryAndFragment(url, text, end);
};
// A trailing space before a query or fragment is encoded, so that the URL keeps it when it is parsed again.
const encodeOpaquePath = (text, isFollowed) => {
  const encoded = percentEncode(text, C0_SET);
  return isFollowed && charCodeAt(encoded, encoded.length - 1) === 0x20 ? slice(encoded, 0, -1) + "%20" : encoded;
};
const parseSpecialAuthority = (url, text, at) => {
  while (isSlash(url, charCodeAt(text, at))) at++;
  return parseAuthority(url, text, at);
};

const copyAuthority = (url, base) => {
  url.username = base.username;
  url.password = base.password;
  url.host = base.host;
  url.port = base.port;
};
const parseRelative = (url, text, at, base) => {
  const first = charCodeAt(text, at);
  if (isSlash(url, first)) {
    const second = charCodeAt(text, at + 1);
    if (isSpecial(url) && isSlash(url, second)) return parseSpecialAuthority(url, text, at + 2);
    if (second === SLASH) return parseAuthority(url, text, at + 2);
    copyAuthority(url, base);
    return parsePath(url, text, at + 1);
  }
  copyAuthority(url, base);
  return parseFromBasePath(url, text, at, base, false);
};
// Parses a path that replaces the last segment of the base's path.
const parseFromBasePath = (url, text, at, base, resetsPath) => {
  url.path = copyPath(base.path);
  url.query = base.query;
  if (at === text.length) return true;
  const first = charCodeAt(text, at);
  if (first === QUESTION || first === HASH) return parseQueryAndFragment(url, text, at) !== undefined;
  url.query = null;
  if (resetsPath) url.path = [];
  else shortenPath(url);
  return parsePath(url, text, at);
};

const parseAuthority = (url, text, start) => {
  const end = findAuthorityEnd(url, text, start), mark = lastIndexOf(slice(text, start, end), "@");
  let at = start;
  if (mark >= 0) {
    const info = slice(text, start, start + mark), colon = indexOf(info, ":");
    at = start + mark + 1;
    if (at === end) return false;
    url.username = percentEncode(colon < 0 ? info : slice(info, 0, colon), USERINFO_SET);
    url.password = colon < 0 ? "" : percentEncode(slice(info, colon + 1), USERINFO_SET);
  }
  const written = slice(text, at, end), colon = findPortColon(written);
  const name = colon < 0 ? written : slice(written, 0, colon);
  if (name === "" && (colon >= 0 || isSpecial(url))) return false;
  url.host = name === "" ? "" : parseHost(name, !isSpecial(url));
  if (url.host === undefined) return false;
  if (colon >= 0) {
    const digits = slice(written, colon + 1);
    if (digits !== "" && matchIn(DECIMAL, digits) === null) return false;
    if (!applyPort(url, digits)) return false;
  }
  return parsePathStart(url, text, end);
};
const findPortColon = (text) => {
  let isInBrackets = false;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit === 0x5b) isInBrackets = true;
    else if (unit === 0x5d) isInBrackets = false;
    else if (unit === 0x3a && !isInBrackets) return i;
  }
  return -1;
};
const applyPort = (url, digits) => {
  if (digits === "") return true;
  const port = parseInteger(digits, 10);
  if (port > 65535) return false;
  url.port = port === SPECIAL_PORTS[url.scheme] ? null : port;
  return true;
};

const parseFile = (url, text, at, base) => {
  const from = base !== undefined && base.scheme === "file" ? base : undefined;
  url.host = "";
  if (isSlash(url, charCodeAt(text, at))) {
    if (isSlash(url, charCodeAt(text, at + 1))) return parseFileHost(url, text, at + 2);
    if (from !== undefined) {
      url.host = from.host;
      const drive = from.path.length > 0 ? from.path[0] : "";
      if (matchIn(STARTS_WITH_DRIVE, slice(text, at + 1)) === null && matchIn(NORMALIZED_DRIVE, drive) !== null) url.path[0] = drive;
    }
    return parsePath(url, text, at + 1);
  }
  if (from === undefined) return parsePath(url, text, at);
  url.host = from.host;
  return parseFromBasePath(url, text, at, from, matchIn(STARTS_WITH_DRIVE, slice(text, at)) !== null);
};
const parseFileHost = (url, text, at) => {
  const end = findAuthorityEnd(url, text, at), name = slice(text, at, end);
  if (matchIn(DRIVE, name) !== null) return parsePath(url, text, at);
  if (name !== "") {
    const host = parseHost(name, false);
    if (host === undefined) return false;
    url.host = host === "localhost" ? "" : host;
  }
  return parsePathStart(url, text, end);
};

const shortenPath = (url) => {
  const path = url.path;
  if (url.scheme === "file" && path.length === 1 && matchIn(NORMALIZED_DRIVE, path[0]) !== null) return;
  if (path.length > 0) path.length--;
};
const parsePathStart = (url, text, at) => {
  const first = charCodeAt(text, at);
  if (isSpecial(url)) return parsePath(url, text, isSlash(url, first) ? at + 1 : at);
  if (first !== SLASH) return parseQueryAndFragment(url, text, at) !== undefined; // nothing else ends an authority
  return parsePath(url, text, at + 1);
};
const parsePath = (url, text, at) => parseQueryAndFragment(url, text, addSegments(url, text, at, true)) !== undefined;
// Appends the segments of a path and returns where it ends: in a setter, at the end of the text.
const addSegments = (url, text, at, stopsAtQuery) => {
  const path = url.path, specialEnd = stopsAtQuery ? SPECIAL_SEGMENT_END : SETTER_SPECIAL_END;
  const ends = isSpecial(url) ? specialEnd : stopsAtQuery ? SEGMENT_END : SETTER_SEGMENT_END;
  for (;;) {
    const end = findEnd(text, at, ends), isLast = end === text.length || !isSlash(url, text.charCodeAt(end));
    let segment = slice(text, at, end);
    if (matchIn(DOUBLE_DOT, segment) !== null) {
      shortenPath(url);
      if (isLast) path[path.length] = "";
    } else if (matchIn(SINGLE_DOT, segment) !== null) {
      if (isLast) path[path.length] = "";
    } else {
      segment = percentEncode(segment, PATH_SET);
      if (url.scheme === "file" && path.length === 0 && matchIn(DRIVE, segment) !== null) segment = slice(segment, 0, 1) + ":";
      path[path.length] = segment;
    }
    if (isLast) return end;
    at = end + 1;
  }
};

const getQuerySet = (url) => (isSpecial(url) ? SPECIAL_QUERY_SET : QUERY_SET);
const parseQueryAndFragment = (url, text, at) => {
  if (charCodeAt(text, at) === QUESTION) {
    const end = findEnd(text, at, QUERY_END);
    url.query = percentEncode(slice(text, at + 1, end), getQuerySet(url));
    at = end;
  }
  if (charCodeAt(text, at) === HASH) url.fragment = percentEncode(slice(text, at + 1), FRAGMENT_SET);
  return url;
};

const serializePath = (url) => {
  if (isOpaque(url)) return url.path;
  let text = "";
  for (let i = 0; i < url.path.length; i++) text += "/" + url.path[i];
  return text;
};
const serializeHost = (url) => (url.host === null ? "" : url.port === null ? url.host : url.host + ":" + url.port);
const serializeUrl = (url) => {
  let text = url.scheme + ":";
  if (url.host !== null) {
    text += "//";
    if (hasCredentials(url)) text += url.username + (url.password === "" ? "" : ":" + url.password) + "@";
    text += serializeHost(url);
  } else if (!isOpaque(url) && url.path.length > 1 && url.path[0] === "") text += "/.";
  text += serializePath(url);
  if (url.query !== null) text += "?" + url.query;
  return url.fragment === null ? text : text + "#" + url.fragment;
};
const serializeOrigin = (url) => {
  if (url.scheme === "blob" && isOpaque(url)) {
    const inner = parseUrl(url.path, undefined);
    return inner !== undefined && (inner.scheme === "http" || inner.scheme === "https") ? serializeOrigin(inner) : "null";
  }
  return isSpecial(url) && url.scheme !== "file" ? url.scheme + "://" + serializeHost(url) : "null";
};
