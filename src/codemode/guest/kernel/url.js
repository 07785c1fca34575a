// The class URL. Getters read the record; setters parse as the URL Standard does with a state override.

const parseWithBase = (text, base) => {
  let from;
  if (base !== undefined) {
    from = parseUrl(toUsvString(base), undefined);
    if (from === undefined) return undefined;
  }
  return parseUrl(text, from);
};
const cannotHavePort = (url) => url.host === null || url.host === "" || url.scheme === "file";

const setScheme = (url, text) => {
  const match = matchIn(SCHEME, stripNewlinesAndTabs(text) + ":");
  if (match === null) return;
  const scheme = toLowerCase(slice(match[0], 0, -1)), port = SPECIAL_PORTS[scheme];
  if ((port !== undefined) !== isSpecial(url)) return;
  if (scheme === "file" && (hasCredentials(url) || url.port !== null)) return;
  if (url.scheme === "file" && url.host === "") return;
  url.scheme = scheme;
  if (url.port === port) url.port = null;
};
const setHost = (url, given, isHostname) => {
  if (isOpaque(url)) return;
  const text = stripNewlinesAndTabs(given), written = slice(text, 0, findAuthorityEnd(url, text, 0));
  const colon = url.scheme === "file" ? -1 : findPortColon(written), name = colon < 0 ? written : slice(written, 0, colon);
  if (name === "" && (colon >= 0 || (url.scheme !== "file" && (isSpecial(url) || hasCredentials(url) || url.port !== null)))) return;
  if (isHostname && colon >= 0) return;
  const host = name === "" ? "" : parseHost(name, !isSpecial(url));
  if (host === undefined) return;
  url.host = url.scheme === "file" && host === "localhost" ? "" : host;
  if (colon >= 0) applyPort(url, matchIn(LEADING_DIGITS, slice(written, colon + 1))[0]);
};
const LEADING_DIGITS = /^[0-9]*/;
const setPath = (url, given) => {
  if (isOpaque(url)) return;
  const text = stripNewlinesAndTabs(given);
  url.path = [];
  if (text === "" && !isSpecial(url)) {
    if (url.host === null) url.path[0] = "";
    return;
  }
  addSegments(url, text, isSlash(url, charCodeAt(text, 0)) ? 1 : 0, false);
};
const stripLeadingUnit = (text, mark) => (charCodeAt(text, 0) === mark ? slice(text, 1) : text);

class URL {
  #url;
  #parameters; // created on first access

  constructor(url, base = undefined) {
    const text = toUsvString(url);
    this.#url = parseWithBase(text, base);
    if (this.#url === undefined) throw new TypeErr("Invalid URL: " + stringify(clip(text, MAX_NAME_LENGTH)));
  }
  static parse(url, base = undefined) {
    const text = toUsvString(url);
    return parseWithBase(text, base) === undefined ? null : new URL(text, base);
  }
  static canParse(url, base = undefined) { return parseWithBase(toUsvString(url), base) !== undefined; }

  get href() { return serializeUrl(this.#url); }
  set href(value) {
    const text = toUsvString(value), url = parseUrl(text, undefined);
    if (url === undefined) throw new TypeErr("Invalid URL: " + stringify(clip(text, MAX_NAME_LENGTH)));
    this.#url = url;
    this.#syncParameters();
  }
  get origin() { return serializeOrigin(this.#url); }
  get protocol() { return this.#url.scheme + ":"; }
  set protocol(value) { setScheme(this.#url, toUsvString(value)); }
  get username() { return this.#url.username; }
  set username(value) {
    const text = toUsvString(value);
    if (!cannotHavePort(this.#url)) this.#url.username = percentEncode(text, USERINFO_SET);
  }
  get password() { return this.#url.password; }
  set password(value) {
    const text = toUsvString(value);
    if (!cannotHavePort(this.#url)) this.#url.password = percentEncode(text, USERINFO_SET);
  }
  get host() { return serializeHost(this.#url); }
  set host(value) { setHost(this.#url, toUsvString(value), false); }
  get hostname() { return this.#url.host ?? ""; }
  set hostname(value) { setHost(this.#url, toUsvString(value), true); }
  get port() { return this.#url.port === null ? "" : "" + this.#url.port; }
  set port(value) {
    const text = toUsvString(value), url = this.#url;
    if (cannotHavePort(url)) return;
    if (text === "") url.port = null;
    else applyPort(url, matchIn(LEADING_DIGITS, stripNewlinesAndTabs(text))[0]);
  }
  get pathname() { return serializePath(this.#url); }
  set pathname(value) { setPath(this.#url, toUsvString(value)); }
  get search() { return this.#url.query === null || this.#url.query === "" ? "" : "?" + this.#url.query; }
  set search(value) {
    const text = toUsvString(value), url = this.#url;
    url.query = text === "" ? null : percentEncode(stripNewlinesAndTabs(stripLeadingUnit(text, QUESTION)), getQuerySet(url));
    this.#syncParameters();
  }
  get searchParams() {
    if (this.#parameters === undefined) {
      this.#parameters = new URLSearchParams();
      this.#syncParameters();
      setChangeListener(this.#parameters, (text) => { this.#url.query = text === "" ? null : text; });
    }
    return this.#parameters;
  }
  get hash() { return this.#url.fragment === null || this.#url.fragment === "" ? "" : "#" + this.#url.fragment; }
  set hash(value) {
    const text = toUsvString(value);
    this.#url.fragment = text === "" ? null : percentEncode(stripNewlinesAndTabs(stripLeadingUnit(text, HASH)), FRAGMENT_SET);
  }
  toString() { return serializeUrl(this.#url); }
  toJSON() { return serializeUrl(this.#url); }

  #syncParameters() {
    if (this.#parameters !== undefined) replaceParameters(this.#parameters, this.#url.query ?? "");
  }
}
