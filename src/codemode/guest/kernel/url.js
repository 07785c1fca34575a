// URL: its parts are read from the record, and a part that is set is parsed as the URL Standard's state override has it.

const urlOf = (text, base) => {
  let from;
  if (base !== undefined) {
    from = parseUrl(toUsv(base), undefined);
    if (from === undefined) return undefined;
  }
  return parseUrl(text, from);
};
const cannotHavePort = (url) => url.host === null || url.host === "" || url.scheme === "file";

const setScheme = (url, text) => {
  const match = matchIn(SCHEME, withoutLinesAndTabs(text) + ":");
  if (match === null) return;
  const scheme = toLowerCase(slice(match[0], 0, -1)), port = SPECIAL_PORTS[scheme];
  if ((port !== undefined) !== isSpecial(url)) return;
  if (scheme === "file" && (hasCredentials(url) || url.port !== null)) return;
  if (url.scheme === "file" && url.host === "") return;
  url.scheme = scheme;
  if (url.port === port) url.port = null;
};
const setHost = (url, given, isName) => {
  if (isOpaque(url)) return;
  const text = withoutLinesAndTabs(given), written = slice(text, 0, endOfAuthority(url, text, 0));
  const colon = url.scheme === "file" ? -1 : portColon(written), name = colon < 0 ? written : slice(written, 0, colon);
  if (name === "" && (colon >= 0 || (url.scheme !== "file" && (isSpecial(url) || hasCredentials(url) || url.port !== null)))) return;
  if (isName && colon >= 0) return;
  const host = name === "" ? "" : parseHost(name, !isSpecial(url));
  if (host === undefined) return;
  url.host = url.scheme === "file" && host === "localhost" ? "" : host;
  if (colon >= 0) takePort(url, matchIn(LEADING_DIGITS, slice(written, colon + 1))[0]);
};
const LEADING_DIGITS = /^[0-9]*/;
const setPath = (url, given) => {
  if (isOpaque(url)) return;
  const text = withoutLinesAndTabs(given);
  url.path = [];
  if (text === "" && !isSpecial(url)) {
    if (url.host === null) url.path[0] = "";
    return;
  }
  addSegments(url, text, isSlash(url, charCodeAt(text, 0)) ? 1 : 0, false);
};
const withoutMark = (text, mark) => (charCodeAt(text, 0) === mark ? slice(text, 1) : text);

class URL {
  #url;
  #parameters; // made when somebody asks for them

  constructor(url, base = undefined) {
    const text = toUsv(url);
    this.#url = urlOf(text, base);
    if (this.#url === undefined) throw new TypeErr("Invalid URL: " + stringify(clip(text, MAX_NAME)));
  }
  static parse(url, base = undefined) {
    const text = toUsv(url);
    return urlOf(text, base) === undefined ? null : new URL(text, base);
  }
  static canParse(url, base = undefined) { return urlOf(toUsv(url), base) !== undefined; }

  get href() { return urlText(this.#url); }
  set href(value) {
    const text = toUsv(value), url = parseUrl(text, undefined);
    if (url === undefined) throw new TypeErr("Invalid URL: " + stringify(clip(text, MAX_NAME)));
    this.#url = url;
    this.#tellParameters();
  }
  get origin() { return originText(this.#url); }
  get protocol() { return this.#url.scheme + ":"; }
  set protocol(value) { setScheme(this.#url, toUsv(value)); }
  get username() { return this.#url.username; }
  set username(value) {
    const text = toUsv(value);
    if (!cannotHavePort(this.#url)) this.#url.username = percentEncode(text, USERINFO_SET);
  }
  get password() { return this.#url.password; }
  set password(value) {
    const text = toUsv(value);
    if (!cannotHavePort(this.#url)) this.#url.password = percentEncode(text, USERINFO_SET);
  }
  get host() { return hostText(this.#url); }
  set host(value) { setHost(this.#url, toUsv(value), false); }
  get hostname() { return this.#url.host ?? ""; }
  set hostname(value) { setHost(this.#url, toUsv(value), true); }
  get port() { return this.#url.port === null ? "" : "" + this.#url.port; }
  set port(value) {
    const text = toUsv(value), url = this.#url;
    if (cannotHavePort(url)) return;
    if (text === "") url.port = null;
    else takePort(url, matchIn(LEADING_DIGITS, withoutLinesAndTabs(text))[0]);
  }
  get pathname() { return pathText(this.#url); }
  set pathname(value) { setPath(this.#url, toUsv(value)); }
  get search() { return this.#url.query === null || this.#url.query === "" ? "" : "?" + this.#url.query; }
  set search(value) {
    const text = toUsv(value), url = this.#url;
    url.query = text === "" ? null : percentEncode(withoutLinesAndTabs(withoutMark(text, QUESTION)), querySet(url));
    this.#tellParameters();
  }
  get searchParams() {
    if (this.#parameters === undefined) {
      this.#parameters = new URLSearchParams();
      this.#tellParameters();
      ownedBy(this.#parameters, (text) => { this.#url.query = text === "" ? null : text; });
    }
    return this.#parameters;
  }
  get hash() { return this.#url.fragment === null || this.#url.fragment === "" ? "" : "#" + this.#url.fragment; }
  set hash(value) {
    const text = toUsv(value);
    this.#url.fragment = text === "" ? null : percentEncode(withoutLinesAndTabs(withoutMark(text, HASH)), FRAGMENT_SET);
  }
  toString() { return urlText(this.#url); }
  toJSON() { return urlText(this.#url); }

  #tellParameters() {
    if (this.#parameters !== undefined) retakeParameters(this.#parameters, this.#url.query ?? "");
  }
}
