// The one script of the console. Every page works without it: it signs in by a printed URL, brings pages up to date,
// shows what is typed as a difference, and knows some keys. It never decides, and writes text as text alone.
"use strict";

const ROOT = new URL("..", document.currentScript.src).href;
const FIRST_DELAY_MS = 1000;
const LAST_DELAY_MS = 60000;
const SETTLE_MS = 150;
const BETWEEN_LOOKS_MS = 1000;
const REST_MS = 1000;
const KEYS_OFF = "codemode-console-keys-off";

// Where cookies are for a private path, this origin's storage remembers it: unlike cookies, it is kept by port.
const HOME = "codemode-console-home";

function rememberHome() {
  if (document.body.hasAttribute("data-private")) kept.set(HOME, new URL(ROOT).pathname);
}

// Returns the private path of a browser that is signed in there, null for one that is not.
async function signedInHome(form) {
  const home = kept.get(HOME);
  if (home === null || !form.hasAttribute("data-public") || !home.startsWith(`${form.dataset.public}~`)) return null;
  const answer = await fetch(home, { headers: { accept: "application/json" }, cache: "no-store" }).catch(() => null);
  if (answer !== null && answer.ok) return home;
  kept.set(HOME, "");
  return null;
}

// The printed URL carries the token behind the #, which no server and no log is sent. It leaves the address bar at once.
// It is sent without a click only where the server saw that no other page led here and nobody is signed in.
async function signInByFragment(isFirst) {
  const form = document.getElementById("sign-in");
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return isFirst && form !== null ? goHome(form) : undefined;
  history.replaceState(null, "", location.pathname + location.search);
  if (form === null) return;
  form.elements.namedItem("token").value = token;
  const isAsked = isFirst && form.hasAttribute("data-automatic") && document.referrer === "";
  if (isAsked && (await signedInHome(form)) === null) form.submit();
  else document.getElementById("filled").hidden = false;
}

// A link to a page of the console, as clients and notices have it, leads to that page for whoever is signed in.
async function goHome(form) {
  const home = await signedInHome(form);
  const next = form.elements.namedItem("next").value;
  if (home !== null && next.startsWith(form.dataset.public)) location.replace(home + next.slice(form.dataset.public.length));
}

// ---- What somebody has under their hands ----

function isChanged(control) {
  if (control.type === "checkbox" || control.type === "radio") return control.checked !== control.defaultChecked;
  if (control.tagName === "SELECT") {
    const options = [...control.options];
    const first = options.some((one) => one.defaultSelected) ? null : options[0];
    return options.some((one) => one.selected !== (one.defaultSelected || one === first));
  }
  return "defaultValue" in control && control.type !== "hidden" && control.value !== control.defaultValue;
}

function controlsIn(region) {
  return [...region.querySelectorAll("input, select, textarea")];
}

// What a page shows that answers a form was typed: it is nobody's to replace. What is focused is about to be used.
function isHeld(region) {
  if (document.body.hasAttribute("data-posted") && region.querySelector("form") !== null) return true;
  return region.contains(document.activeElement) || controlsIn(region).some(isChanged);
}

function isHeldList(main) {
  const focused = document.activeElement;
  const types = main.contains(focused) && focused.matches("input, select, textarea, button");
  const isChosen = main.querySelector('td input[type="checkbox"]:checked') !== null;
  return types || isChosen || controlsIn(main).some(isChanged);
}

// ---- Pages brought up to date ----

function said(region) {
  const shown = [...region.querySelectorAll('input[name="shown"], input[name="version"]')];
  const still = region.cloneNode(true); // how long ago something was is no news
  for (const time of still.querySelectorAll("time")) time.textContent = time.dateTime;
  return [still.textContent.replace(/\s+/g, " "), ...shown.map((one) => one.value)].join("\n");
}

// ---- Times: in the zone of the viewer, in UTC on hover ----

const UNITS = [["days", 86400, 2], ["h", 3600, 1], ["min", 60, 1]];
const TICK_MS = 30000;

// The words of `ago_text` on the server.
function agoText(then, now) {
  const seconds = Math.floor(Math.abs(now - then) / 1000);
  if (seconds < 60) return then <= now ? "just now" : "in less than a minute";
  const [name, size] = UNITS.find(([, size, least]) => seconds >= size * least);
  const length = `${Math.floor(seconds / size)} ${name}`;
  return then <= now ? `${length} ago` : `in ${length}`;
}

const LOCAL = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });
const ZONED = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "long" });

function showTimes(tree) {
  for (const time of tree.querySelectorAll("time")) {
    const then = new Date(time.dateTime);
    if (Number.isNaN(then.getTime())) continue;
    time.dataset.utc ??= time.title;
    if (time.classList.contains("ago")) {
      time.textContent = agoText(then.getTime(), Date.now());
      time.title = `${ZONED.format(then)} (${time.dataset.utc})`;
    } else time.textContent = LOCAL.format(then);
  }
}

function tell(words, href) {
  const news = document.getElementById("news");
  const line = document.createElement("p");
  line.className = "news";
  line.textContent = words;
  if (href) {
    const link = document.createElement("a");
    link.href = href;
    link.textContent = "Show it as it is now";
    line.append(" ", link);
  }
  news.replaceChildren(line);
}

// What has just come under somebody's pointer is not pressed by what was meant for what stood there before.
function rest(made, isMeant = () => true) {
  const buttons = [...made.querySelectorAll("button:enabled")].filter(isMeant);
  for (const one of buttons) one.disabled = true;
  setTimeout(() => buttons.forEach((one) => (one.disabled = false)), REST_MS);
  return made;
}

// Rows that stay where they are can be pressed on.
function isMoved(old, made) {
  const tops = new Map([...old.querySelectorAll("tr[data-call]")].map((one) => [one.dataset.call, one.getBoundingClientRect().top]));
  old.replaceWith(made);
  return (button) => {
    const row = button.closest("tr[data-call]");
    return row === null || tops.get(row.dataset.call) !== row.getBoundingClientRect().top;
  };
}

function put(fresh, old) {
  const opened = new Set([...old.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
  const made = document.adoptNode(fresh);
  showTimes(made);
  for (const summary of made.querySelectorAll("details > summary")) {
    if (opened.has(summary.textContent)) summary.parentElement.open = true;
  }
  rest(made, isMoved(old, made));
}

// What was decided elsewhere cannot be decided here any more, also where the page stays as it is under a hand.
function retire(region, words) {
  for (const one of region.querySelectorAll("button, input[type=checkbox]")) {
    one.disabled = true;
    one.checked = false;
  }
  const line = document.createElement("p");
  line.className = "note";
  line.textContent = words;
  if (!region.classList.contains("gone")) (region.querySelector("td:last-child, .buttons") ?? region).append(line);
  region.classList.add("gone");
}

function retireRows(main, made) {
  for (const row of main.querySelectorAll("tr[data-call]")) {
    const isThere = made.querySelector(`tr[data-call="${CSS.escape(row.dataset.call)}"]`) !== null;
    if (!isThere) retire(row, "No longer pending");
  }
}

function updateList(fresh) {
  const main = document.getElementById("main");
  const made = fresh.getElementById("main");
  document.title = fresh.title;
  if (said(main) === said(made)) return;
  if (isHeldList(main)) {
    retireRows(main, made);
    return tell("The list has changed.", location.href);
  }
  const href = main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const isOnDone = document.activeElement?.classList.contains("done");
  put(made, main);
  if (isOnDone) made.querySelector(".done")?.focus();
  showChoices();
  if (href !== null) [...made.querySelectorAll("a[href]")].find((one) => one.getAttribute("href") === href)?.focus();
  tell("The list has changed.");
}

// Calls of one tool are decided together: once one is selected, those of other tools cannot be.
function showChoices() {
  const boxes = [...document.querySelectorAll("td input[type=checkbox]")];
  const tool = boxes.find((one) => one.checked)?.dataset.tool;
  for (const one of boxes) one.disabled = tool !== undefined && one.dataset.tool !== tool;
}

// What is new of a card, in the words of the page that shows it now.
function newsOf(card) {
  const found = card.querySelector(".decided, .refusal p:last-child")?.cloneNode(true);
  const tool = card.querySelector("h2").textContent.trim();
  for (const time of found?.querySelectorAll("time") ?? []) time.remove();
  return found ? `${tool}: ${found.textContent.trim().replace(/,$/, "")}` : tool;
}

const STATE_NEWS = {
  resuming: "The program is running.",
  completed: "The program has completed.",
  failed: "The program has failed.",
  expired: "The program has expired.",
  withdrawn: "The program was withdrawn.",
  lost: "The program is lost.",
};

function stateOf(tree) {
  return tree.querySelector(".meta .status")?.textContent.trim();
}

// What to say of a record whose parts have changed. What the page says already is no news.
function newsOfRecord(fresh, changed) {
  const cards = changed.filter((made) => made.classList.contains("card"));
  const asked = cards.filter((made) => made.dataset.state === "waiting" && partOf(document, made.dataset.part) === null);
  const news = cards.filter((made) => {
    if (asked.includes(made)) return false;
    const old = partOf(document, made.dataset.part);
    return old === null || made.dataset.state === "waiting" || newsOf(old) !== newsOf(made);
  });
  const lines = asked.map((made) => {
    const words = (made.querySelector(".headline") ?? fresh.querySelector("h1")).cloneNode(true);
    words.querySelector(".status")?.remove();
    return `Another call waits: ${words.textContent.trim()}.`;
  });
  const state = stateOf(fresh);
  if (state !== stateOf(document) && Object.hasOwn(STATE_NEWS, state)) lines.push(STATE_NEWS[state]);
  lines.unshift(...news.map((made) => `${newsOf(made)}.`));
  if (news.length > 0 || lines.length === 0) lines.unshift("This has changed.");
  return lines.join(" ");
}

function partOf(tree, key) {
  return tree.querySelector(`[data-part="${CSS.escape(key)}"]`);
}

function add(made) {
  const record = document.querySelector("#main .record");
  showTimes(made);
  if (made.classList.contains("card")) record.querySelector(".cards").append(rest(document.adoptNode(made)));
  else if (made.classList.contains("together")) record.querySelector(".cards").prepend(rest(document.adoptNode(made)));
  else if (made.dataset.part === "outcome") record.before(document.adoptNode(made));
  else record.after(document.adoptNode(made));
}

function updateRecord(fresh, href) {
  document.title = fresh.title;
  const heading = fresh.querySelector("h1");
  if (heading !== null) document.querySelector("h1").replaceWith(document.adoptNode(heading.cloneNode(true)));
  const partsOf = (tree) => [...tree.querySelectorAll("[data-part]")];
  const changed = partsOf(fresh).filter((made) => {
    const old = partOf(document, made.dataset.part);
    return old === null || said(old) !== said(made);
  });
  const gone = partsOf(document).filter((old) => partOf(fresh, old.dataset.part) === null);
  if (changed.length + gone.length === 0) return;
  const news = newsOfRecord(fresh, changed);
  let isWhole = true;
  for (const made of changed) {
    const old = partOf(document, made.dataset.part);
    if (old === null) add(made);
    else if (!isHeld(old)) put(made, old);
    else {
      isWhole = false;
      if (made.classList.contains("card") && made.dataset.state !== "waiting") retire(old, newsOf(made));
    }
  }
  for (const old of gone) {
    if (isHeld(old)) isWhole = false;
    else old.remove();
  }
  tell(news, isWhole ? null : href);
}

const live = {
  source: null, seen: null, kind: null, record: null, delay: FIRST_DELAY_MS, timer: null, isBusy: false, isStale: false,
  looked: -Infinity,

  begin() {
    const main = document.getElementById("main");
    const { live: kind, record } = main === null ? {} : main.dataset;
    this.seen = document.body.dataset.sequence;
    if (!kind || this.seen === undefined || !("EventSource" in window)) return;
    this.kind = kind;
    this.record = record;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.open());
    if (!document.hidden) this.open();
  },

  open() {
    if (this.source !== null) return;
    clearTimeout(this.timer);
    this.source = new EventSource(`${ROOT}events?after=${this.seen}`);
    this.source.addEventListener("open", () => (this.delay = FIRST_DELAY_MS));
    this.source.addEventListener("change", (event) => this.changed(event));
    this.source.addEventListener("ended", () => this.again(true));
    // The browser tries again by itself, unless it was refused.
    this.source.addEventListener("error", () => this.source?.readyState === EventSource.CLOSED && this.again(true));
  },

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  },

  changed(event) {
    this.seen = event.lastEventId;
    if (this.record === undefined || JSON.parse(event.data).record === this.record) this.refresh();
  },

  // Whoever was refused may be signed out: the page itself says so.
  again(looks) {
    this.close();
    if (looks) this.refresh();
    this.timer = setTimeout(() => !document.hidden && this.open(), this.delay);
    this.delay = Math.min(2 * this.delay, LAST_DELAY_MS);
  },

  // Changes come in heaps: one look at the page is for all that came until it began, and no page looks all the time.
  async refresh() {
    this.isStale = true;
    if (this.isBusy) return;
    this.isBusy = true;
    while (this.isStale) {
      const pause = Math.max(SETTLE_MS, this.looked + BETWEEN_LOOKS_MS - performance.now());
      await new Promise((done) => setTimeout(done, pause));
      this.isStale = false;
      this.looked = performance.now();
      // Where the console is away, it is the connection that is tried again.
      await this.look().catch(() => {});
    }
    this.isBusy = false;
  },

  async look() {
    const href = this.record === undefined ? location.href : `${ROOT}records/${encodeURIComponent(this.record)}`;
    const answer = await fetch(href, { headers: { accept: "text/html" }, cache: "no-store" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.status === 401 || fresh.getElementById("sign-in") !== null) return this.signedOut();
    if (answer.status === 404) return tell("This is not here any more.");
    if (!answer.ok) return;
    if (this.kind === "list") updateList(fresh);
    else updateRecord(fresh, href);
  },

  signedOut() {
    this.close();
    if (isHeldList(document.getElementById("main"))) tell("You are signed out. Sign in elsewhere, and come back.", `${ROOT}sign-in`);
    else location.reload();
  },
};

// ---- The difference while it is typed ----

function seen(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`).slice(0, 200);
}

function valueOf(control, isFirst) {
  if (control.type === "checkbox" || control.type === "radio") {
    return String(isFirst ? control.defaultChecked : control.checked);
  }
  if (control.tagName !== "SELECT") return isFirst ? control.defaultValue : control.value;
  const options = [...control.options];
  const found = options.find((one) => (isFirst ? one.defaultSelected : one.selected)) ?? options[0];
  return found === undefined ? "" : found.label;
}

function showDifference(form) {
  let list = form.querySelector(":scope > .typing");
  const changed = controlsIn(form).filter((one) => one.name && !["reason", "later"].includes(one.name) && isChanged(one));
  const buttons = form.querySelector(":scope > .buttons");
  const isShown = form.querySelector(":scope > .changes tr") !== null; // by the server, of what was typed before
  form.classList.toggle("is-changed", changed.length > 0 || isShown);
  if (changed.length === 0) return list?.remove();
  if (list === null) {
    list = document.createElement("ul");
    list.className = "typing";
    list.setAttribute("aria-label", "Changes so far");
    form.insertBefore(list, buttons);
  }
  list.replaceChildren(
    ...changed.map((control) => {
      const line = document.createElement("li");
      const [was, is] = [document.createElement("del"), document.createElement("ins")];
      was.textContent = seen(valueOf(control, true)) || "empty";
      is.textContent = seen(valueOf(control, false)) || "empty";
      line.append(`${seen(control.name.replace(/^\//, ""))}: `, was, " \u2192 ", is);
      return line;
    }),
  );
}

// Who types into a field that is left out, or null, means to send what they type.
function giveValue(control) {
  const state = control.form?.elements.namedItem(`state:${control.name}`);
  if (state && "options" in state && control.value !== "") state.value = "set";
}

// ---- Keys: they move and never decide ----

const FIRST_OF_ROW = "a[id]";

// A place is a card of a record, or a row of the list. Cards are passed over that wait for nobody while others wait.
function places() {
  const waiting = document.querySelectorAll('#main .card[data-state="waiting"]');
  return [...(waiting.length > 0 ? waiting : document.querySelectorAll("#main .card, #main tr[data-call]"))];
}

function placeAt(focused) {
  return focused?.closest("#main .card, #main tr[data-call]") ?? null;
}

// After a decision in the list, keys go on at the row below it. Which one that is outlives the page that comes next:
// null where nothing was decided, "" where no row stood below.
const NEXT_CALL = "codemode-console-next-call";
let nextCall = null;

function rememberNext(event) {
  const row = event.submitter?.closest("#main tr[data-call]");
  if (row) keptHere.set(NEXT_CALL, row.nextElementSibling?.dataset.call ?? "");
}

function goOnAtNext() {
  if (new URLSearchParams(location.search).has("done")) nextCall = keptHere.get(NEXT_CALL);
}

function currentPlace(all) {
  const here = placeAt(document.activeElement);
  if (all.includes(here)) return here;
  return all.find((one) => nextCall !== null && one.dataset.call === nextCall) ?? null;
}

function move(step) {
  const all = places();
  const at = all.indexOf(placeAt(document.activeElement));
  const next = at === -1 ? currentPlace(all) : null;
  nextCall = null;
  goTo(next ?? all[Math.max(0, Math.min(all.length - 1, at === -1 && step < 0 ? 0 : at + step))]);
}

function goTo(next) {
  if (next === undefined) return;
  const target = next.querySelector(FIRST_OF_ROW) ?? next;
  if (target === next) next.tabIndex = -1;
  target.focus();
  next.scrollIntoView({ block: "nearest" });
}

// In the place that has the focus, or is next after a decision; where none is, in the first that has such a thing.
function focusIn(selector) {
  const all = places();
  const here = currentPlace(all);
  if (here === null && nextCall !== null) return;
  for (const place of here === null ? all : [here]) {
    const found = [...place.querySelectorAll(selector)].find((one) => one.checkVisibility());
    if (found === undefined) continue;
    // What has just come rests for a moment: the row is meant all the same, and no other one.
    return (found.disabled ? (place.querySelector(FIRST_OF_ROW) ?? place) : found).focus();
  }
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  a: () => focusIn('button:is([value="approve"], [value="edit"], [value="answer"], [value="value"]), a.button'),
  d: () => focusIn('button[value="deny"], .deny > summary, a.button'),
  e: () => focusIn('.fields :is(input:not([type="hidden"]), textarea, select), textarea[name="json"]'),
  r: () => focusIn('[name="reason"]'),
  l: () => location.assign(ROOT),
  n: () => {
    if (document.querySelector("#main .card") === null) return move(1);
    const waiting = places().filter((one) => one.dataset.state === "waiting");
    const card = waiting[waiting.indexOf(placeAt(document.activeElement)) + 1];
    const next = document.getElementById("next");
    if (card !== undefined) goTo(card);
    else if (next !== null) next.click();
    else location.assign(ROOT);
  },
  "?": () => {
    const help = document.getElementById("keys");
    help.open = true;
    help.querySelector("summary").focus();
  },
};

function pressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, [contenteditable]") !== null) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (!Object.hasOwn(KEYS, event.key) || kept.get(KEYS_OFF) === "1") return;
  event.preventDefault();
  KEYS[event.key]();
}

// A browser may keep nothing for a page: then the keys are on again on the next one, and links ask for a sign-in.
function keptIn(storageOf) {
  return {
    get(key) {
      try {
        return storageOf().getItem(key);
      } catch {
        return null;
      }
    },
    set(key, text) {
      try {
        storageOf().setItem(key, text);
      } catch {}
    },
  };
}

const kept = keptIn(() => localStorage);
const keptHere = keptIn(() => sessionStorage); // of this tab alone

function beginKeys() {
  const help = document.getElementById("keys");
  const choice = document.getElementById("keys-on");
  if (help === null || choice === null) return;
  help.hidden = false;
  choice.checked = kept.get(KEYS_OFF) !== "1";
  choice.addEventListener("change", () => kept.set(KEYS_OFF, choice.checked ? "0" : "1"));
  document.addEventListener("keydown", pressed);
}

rememberHome();
signInByFragment(true);
addEventListener("hashchange", () => signInByFragment(false)); // the printed URL, opened where this page is already
beginKeys();
goOnAtNext();
document.addEventListener("submit", rememberNext);
live.begin();
showTimes(document);
showChoices();
document.querySelectorAll(".card form").forEach(showDifference); // a browser that goes back fills forms in again
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.(".deny[open]")) event.target.querySelector("input").focus();
}, true);
setInterval(() => showTimes(document), TICK_MS);
document.addEventListener("input", (event) => {
  const form = event.target.closest?.(".card form");
  if (form) {
    giveValue(event.target);
    showDifference(form);
  }
  if (event.target.matches?.("td input[type=checkbox]")) showChoices();
});
