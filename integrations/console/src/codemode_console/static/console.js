// The console's script; every page works without it. It signs in with a printed URL, updates pages, shows typed changes
// and adds keyboard shortcuts. It never decides, and inserts text only as text.
"use strict";

const ROOT = new URL("..", document.currentScript.src).href;
const MIN_RECONNECT_MS = 1000;
const MAX_RECONNECT_MS = 60000;
const DEBOUNCE_MS = 150;
const MIN_RELOAD_INTERVAL_MS = 1000;
const DISABLED_MS = 1000;
const SHORTCUTS_OFF_KEY = "codemode-console-keys-off";

// Remembers the private path of the session. Unlike cookies, storage is separate for each port.
const PRIVATE_PATH_KEY = "codemode-console-home";

function rememberPrivatePath() {
  if (document.body.hasAttribute("data-private")) browserStorage.set(PRIVATE_PATH_KEY, new URL(ROOT).pathname);
}

// Returns the private path if the browser is signed in there, else null.
async function findPrivatePath(form) {
  const home = browserStorage.get(PRIVATE_PATH_KEY);
  if (home === null || !form.hasAttribute("data-public") || !home.startsWith(`${form.dataset.public}~`)) return null;
  const answer = await fetch(home, { headers: { accept: "application/json" }, cache: "no-store" }).catch(() => null);
  if (answer !== null && answer.ok) return home;
  browserStorage.set(PRIVATE_PATH_KEY, "");
  return null;
}

// The printed URL has the token in its fragment, which is not sent to servers. It is removed from the address bar at once.
// It is submitted without a click only if no other page led here and no user is signed in.
async function signInByFragment(isInitial) {
  const form = document.getElementById("sign-in");
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return isInitial && form !== null ? redirectToSignedInPath(form) : undefined;
  history.replaceState(null, "", location.pathname + location.search);
  if (form === null) return;
  form.elements.namedItem("token").value = token;
  const isAutomatic = isInitial && form.hasAttribute("data-automatic") && document.referrer === "";
  if (isAutomatic && (await findPrivatePath(form)) === null) form.submit();
  else document.getElementById("filled").hidden = false;
}

// Links to public paths, as in notices, open the same page below the private path of a signed-in user.
async function redirectToSignedInPath(form) {
  const home = await findPrivatePath(form);
  const next = form.elements.namedItem("next").value;
  if (home !== null && next.startsWith(form.dataset.public)) location.replace(home + next.slice(form.dataset.public.length));
}

// ---- Controls in use ----

function isChanged(control) {
  if (control.type === "checkbox" || control.type === "radio") return control.checked !== control.defaultChecked;
  if (control.tagName === "SELECT") {
    const options = [...control.options];
    const implicitOption = options.some((option) => option.defaultSelected) ? null : options[0];
    return options.some((option) => option.selected !== (option.defaultSelected || option === implicitOption));
  }
  return "defaultValue" in control && control.type !== "hidden" && control.value !== control.defaultValue;
}

function listControls(region) {
  return [...region.querySelectorAll("input, select, textarea")];
}

// Regions with submitted or changed forms or with the focus are not replaced.
function isRegionInUse(region) {
  if (document.body.hasAttribute("data-posted") && region.querySelector("form") !== null) return true;
  return region.contains(document.activeElement) || listControls(region).some(isChanged);
}

function isListInUse(main) {
  const focused = document.activeElement;
  const hasFocus = main.contains(focused) && focused.matches("input, select, textarea, button");
  const hasCheckedRow = main.querySelector('td input[type="checkbox"]:checked') !== null;
  return hasFocus || hasCheckedRow || listControls(main).some(isChanged);
}

// ---- Page updates ----

function getComparableText(region) {
  const digests = [...region.querySelectorAll('input[name="digests"], input[name="version"]')];
  const copy = region.cloneNode(true); // relative times change constantly
  for (const time of copy.querySelectorAll("time")) time.textContent = time.dateTime;
  return [copy.textContent.replace(/\s+/g, " "), ...digests.map((input) => input.value)].join("\n");
}

// ---- Times in the viewer's zone, in UTC on hover ----

const AGE_UNITS = [["days", 86400, 2], ["h", 3600, 1], ["min", 60, 1]];
const TIME_REFRESH_MS = 30000;

// Same texts as `format_relative_time` on the server.
function formatAge(then, now) {
  const seconds = Math.floor(Math.abs(now - then) / 1000);
  if (seconds < 60) return then <= now ? "just now" : "in less than a minute";
  const [name, size] = AGE_UNITS.find(([, size, minCount]) => seconds >= size * minCount);
  const length = `${Math.floor(seconds / size)} ${name}`;
  return then <= now ? `${length} ago` : `in ${length}`;
}

const LOCAL_FORMAT = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });
const ZONED_FORMAT = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "long" });

function formatTimes(tree) {
  for (const time of tree.querySelectorAll("time")) {
    const then = new Date(time.dateTime);
    if (Number.isNaN(then.getTime())) continue;
    time.dataset.utc ??= time.title;
    if (time.classList.contains("ago")) {
      time.textContent = formatAge(then.getTime(), Date.now());
      time.title = `${ZONED_FORMAT.format(then)} (${time.dataset.utc})`;
    } else time.textContent = LOCAL_FORMAT.format(then);
  }
}

function announce(message, href) {
  const news = document.getElementById("news");
  const line = document.createElement("p");
  line.className = "news";
  line.textContent = message;
  if (href) {
    const link = document.createElement("a");
    link.href = href;
    link.textContent = "Show the current page";
    line.append(" ", link);
  }
  news.replaceChildren(line);
}

// New buttons are disabled briefly, so that a click meant for the old content does not press them.
function disableBriefly(element, isAffected = () => true) {
  const buttons = [...element.querySelectorAll("button:enabled")].filter(isAffected);
  for (const button of buttons) button.disabled = true;
  setTimeout(() => buttons.forEach((button) => (button.disabled = false)), DISABLED_MS);
  return element;
}

// Rows that do not move stay enabled.
function replaceAndDetectMoves(current, element) {
  const rowTopsByCall = new Map([...current.querySelectorAll("tr[data-call]")].map((row) => [row.dataset.call, row.getBoundingClientRect().top]));
  current.replaceWith(element);
  return (button) => {
    const row = button.closest("tr[data-call]");
    return row === null || rowTopsByCall.get(row.dataset.call) !== row.getBoundingClientRect().top;
  };
}

function replaceRegion(fresh, current) {
  const openSummaries = new Set([...current.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  const element = document.adoptNode(fresh);
  formatTimes(element);
  for (const summary of element.querySelectorAll("details > summary")) {
    if (openSummaries.has(summary.textContent)) summary.parentElement.open = true;
  }
  disableBriefly(element, replaceAndDetectMoves(current, element));
}

// Calls decided elsewhere are disabled, even where the region in use is not replaced.
function disableRegion(region, message) {
  for (const control of region.querySelectorAll("button, input[type=checkbox]")) {
    control.disabled = true;
    control.checked = false;
  }
  const line = document.createElement("p");
  line.className = "note";
  line.textContent = message;
  if (!region.classList.contains("gone")) (region.querySelector("td:last-child, .buttons") ?? region).append(line);
  region.classList.add("gone");
}

function disableMissingRows(main, freshMain) {
  for (const row of main.querySelectorAll("tr[data-call]")) {
    const isStillListed = freshMain.querySelector(`tr[data-call="${CSS.escape(row.dataset.call)}"]`) !== null;
    if (!isStillListed) disableRegion(row, "No longer pending");
  }
}

function updateList(fresh) {
  const main = document.getElementById("main");
  const freshMain = fresh.getElementById("main");
  document.title = fresh.title;
  if (getComparableText(main) === getComparableText(freshMain)) return;
  if (isListInUse(main)) {
    disableMissingRows(main, freshMain);
    return announce("The list has changed.", location.href);
  }
  const href = main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const hadConfirmationFocus = document.activeElement?.classList.contains("done");
  replaceRegion(freshMain, main);
  if (hadConfirmationFocus) freshMain.querySelector(".done")?.focus();
  updateCheckboxes();
  if (href !== null) [...freshMain.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === href)?.focus();
  announce("The list has changed.");
}

// Only calls of one tool can be selected together.
function updateCheckboxes() {
  const boxes = [...document.querySelectorAll("td input[type=checkbox]")];
  const tool = boxes.find((box) => box.checked)?.dataset.tool;
  for (const box of boxes) box.disabled = tool !== undefined && box.dataset.tool !== tool;
}

// Returns the news of a card in the words of its new version.
function describeCard(card) {
  const status = card.querySelector(".decided, .refusal p:last-child")?.cloneNode(true);
  const tool = card.querySelector("h2").textContent.trim();
  for (const time of status?.querySelectorAll("time") ?? []) time.remove();
  return status ? `${tool}: ${status.textContent.trim().replace(/,$/, "")}` : tool;
}

const STATE_MESSAGES = {
  resuming: "The program is running.",
  completed: "The program has completed.",
  failed: "The program has failed.",
  expired: "The program has expired.",
  withdrawn: "The program was withdrawn.",
  lost: "The program is lost.",
};

function getRecordState(tree) {
  return tree.querySelector(".meta .status")?.dataset.state;
}

// Returns the message for changed parts of a record, without what the page already shows.
function describeChanges(fresh, changed) {
  const cards = changed.filter((card) => card.classList.contains("card"));
  const newCalls = cards.filter((card) => card.dataset.state === "waiting" && findPart(document, card.dataset.part) === null);
  const news = cards.filter((card) => {
    if (newCalls.includes(card)) return false;
    const current = findPart(document, card.dataset.part);
    return current === null || card.dataset.state === "waiting" || describeCard(current) !== describeCard(card);
  });
  const lines = newCalls.map((card) => {
    const heading = (card.querySelector(".headline") ?? fresh.querySelector("h1")).cloneNode(true);
    heading.querySelector(".status")?.remove();
    return `Another call is pending: ${heading.textContent.trim()}.`;
  });
  const state = getRecordState(fresh);
  if (state !== getRecordState(document) && Object.hasOwn(STATE_MESSAGES, state)) lines.push(STATE_MESSAGES[state]);
  lines.unshift(...news.map((card) => `${describeCard(card)}.`));
  if (news.length > 0 || lines.length === 0) lines.unshift("This has changed.");
  return lines.join(" ");
}

function findPart(tree, key) {
  return tree.querySelector(`[data-part="${CSS.escape(key)}"]`);
}

function insertPart(part) {
  const record = document.querySelector("#main .record");
  formatTimes(part);
  if (part.classList.contains("card")) record.querySelector(".cards").append(disableBriefly(document.adoptNode(part)));
  else if (part.classList.contains("together")) record.querySelector(".cards").prepend(disableBriefly(document.adoptNode(part)));
  else if (part.dataset.part === "outcome") record.before(document.adoptNode(part));
  else record.after(document.adoptNode(part));
}

function updateRecord(fresh, href) {
  document.title = fresh.title;
  const heading = fresh.querySelector("h1");
  if (heading !== null) document.querySelector("h1").replaceWith(document.adoptNode(heading.cloneNode(true)));
  const listParts = (tree) => [...tree.querySelectorAll("[data-part]")];
  const changed = listParts(fresh).filter((part) => {
    const current = findPart(document, part.dataset.part);
    return current === null || getComparableText(current) !== getComparableText(part);
  });
  const gone = listParts(document).filter((current) => findPart(fresh, current.dataset.part) === null);
  if (changed.length + gone.length === 0) return;
  const message = describeChanges(fresh, changed);
  let isFullyUpdated = true;
  for (const part of changed) {
    const current = findPart(document, part.dataset.part);
    if (current === null) insertPart(part);
    else if (!isRegionInUse(current)) replaceRegion(part, current);
    else {
      isFullyUpdated = false;
      if (part.classList.contains("card") && part.dataset.state !== "waiting") disableRegion(current, describeCard(part));
    }
  }
  for (const current of gone) {
    if (isRegionInUse(current)) isFullyUpdated = false;
    else current.remove();
  }
  announce(message, isFullyUpdated ? null : href);
}

const liveUpdates = {
  source: null, lastSequence: null, kind: null, record: null, delay: MIN_RECONNECT_MS, timer: null, isReloading: false, needsReload: false,
  lastReloadAt: -Infinity,

  start() {
    const main = document.getElementById("main");
    const { live: kind, record } = main === null ? {} : main.dataset;
    this.lastSequence = document.body.dataset.sequence;
    if (!kind || this.lastSequence === undefined || !("EventSource" in window)) return;
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
    this.source = new EventSource(`${ROOT}events?after=${this.lastSequence}`);
    this.source.addEventListener("open", () => (this.delay = MIN_RECONNECT_MS));
    this.source.addEventListener("change", (event) => this.handleChange(event));
    this.source.addEventListener("ended", () => this.reconnect(true));
    // The browser reconnects by itself unless the request was refused.
    this.source.addEventListener("error", () => this.source?.readyState === EventSource.CLOSED && this.reconnect(true));
  },

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  },

  handleChange(event) {
    this.lastSequence = event.lastEventId;
    if (this.record === undefined || JSON.parse(event.data).record === this.record) this.requestReload();
  },

  // A refused user may be signed out; the reloaded page says so.
  reconnect(reloads) {
    this.close();
    if (reloads) this.requestReload();
    this.timer = setTimeout(() => !document.hidden && this.open(), this.delay);
    this.delay = Math.min(2 * this.delay, MAX_RECONNECT_MS);
  },

  // Changes come in bursts: one reload covers all changes before it, and reloads are limited in rate.
  async requestReload() {
    this.needsReload = true;
    if (this.isReloading) return;
    this.isReloading = true;
    while (this.needsReload) {
      const pause = Math.max(DEBOUNCE_MS, this.lastReloadAt + MIN_RELOAD_INTERVAL_MS - performance.now());
      await new Promise((done) => setTimeout(done, pause));
      this.needsReload = false;
      this.lastReloadAt = performance.now();
      // If the console is unavailable, the event source reconnects.
      await this.reloadPage().catch(() => {});
    }
    this.isReloading = false;
  },

  async reloadPage() {
    const href = this.record === undefined ? location.href : `${ROOT}records/${encodeURIComponent(this.record)}`;
    const answer = await fetch(href, { headers: { accept: "text/html" }, cache: "no-store" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.status === 401 || fresh.getElementById("sign-in") !== null) return this.handleSignOut();
    if (answer.status === 404) return announce("This record no longer exists.");
    if (!answer.ok) return;
    if (this.kind === "list") updateList(fresh);
    else updateRecord(fresh, href);
  },

  handleSignOut() {
    this.close();
    if (isListInUse(document.getElementById("main"))) announce("You are signed out. Sign in in another tab and return.", `${ROOT}sign-in`);
    else location.reload();
  },
};

// ---- Typed changes ----

function escapeInvisible(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => `\\u{${character.codePointAt(0).toString(16)}}`).slice(0, 200);
}

function getShownValue(control, isInitial) {
  if (control.type === "checkbox" || control.type === "radio") {
    return String(isInitial ? control.defaultChecked : control.checked);
  }
  if (control.tagName !== "SELECT") return isInitial ? control.defaultValue : control.value;
  const options = [...control.options];
  const selected = options.find((option) => (isInitial ? option.defaultSelected : option.selected)) ?? options[0];
  return selected === undefined ? "" : selected.label;
}

function showTypedChanges(form) {
  let list = form.querySelector(":scope > .typing");
  const changed = listControls(form).filter((control) => control.name && !["reason", "later"].includes(control.name) && isChanged(control));
  const buttons = form.querySelector(":scope > .buttons");
  const hasServerChanges = form.querySelector(":scope > .changes li") !== null; // rendered by the server after a submission
  form.classList.toggle("is-changed", changed.length > 0 || hasServerChanges);
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
      const [before, after] = [document.createElement("del"), document.createElement("ins")];
      before.textContent = escapeInvisible(getShownValue(control, true)) || "empty";
      after.textContent = escapeInvisible(getShownValue(control, false)) || "empty";
      line.append(`${escapeInvisible(control.name.replace(/^\//, ""))}: `, before, " \u2192 ", after);
      return line;
    }),
  );
}

// Typing into a field that is left out or null selects its value.
function selectTypedValue(control) {
  const state = control.form?.elements.namedItem(`state:${control.name}`);
  if (state && "options" in state && control.value !== "") state.value = "set";
}

// ---- Keyboard shortcuts: they move the focus and never decide ----

const ROW_LINK_SELECTOR = "a[id]";

// An entry is a card of a record or a row of the list. Decided cards are skipped while others are pending.
function listEntries() {
  const waiting = document.querySelectorAll('#main .card[data-state="waiting"]');
  return [...(waiting.length > 0 ? waiting : document.querySelectorAll("#main .card, #main tr[data-call]"))];
}

function findEnclosingEntry(focused) {
  return focused?.closest("#main .card, #main tr[data-call]") ?? null;
}

// After a decision in the list, shortcuts continue at the row below it, also on the next page. null: nothing was decided;
// "": there was no row below.
const NEXT_CALL_KEY = "codemode-console-next-call";
let nextCallId = null;

function rememberNextCall(event) {
  const row = event.submitter?.closest("#main tr[data-call]");
  if (row) tabStorage.set(NEXT_CALL_KEY, row.nextElementSibling?.dataset.call ?? "");
}

function restoreNextCall() {
  if (new URLSearchParams(location.search).has("done")) nextCallId = tabStorage.get(NEXT_CALL_KEY);
}

function findCurrentEntry(entries) {
  const focused = findEnclosingEntry(document.activeElement);
  if (entries.includes(focused)) return focused;
  return entries.find((entry) => nextCallId !== null && entry.dataset.call === nextCallId) ?? null;
}

function moveFocus(step) {
  const entries = listEntries();
  const index = entries.indexOf(findEnclosingEntry(document.activeElement));
  const next = index === -1 ? findCurrentEntry(entries) : null;
  nextCallId = null;
  focusEntry(next ?? entries[Math.max(0, Math.min(entries.length - 1, index === -1 && step < 0 ? 0 : index + step))]);
}

function focusEntry(entry) {
  if (entry === undefined) return;
  const target = entry.querySelector(ROW_LINK_SELECTOR) ?? entry;
  if (target === entry) entry.tabIndex = -1;
  target.focus();
  entry.scrollIntoView({ block: "nearest" });
}

// Focuses a control of the current entry, or without one of the first entry that has such a control.
function focusControl(selector) {
  const entries = listEntries();
  const current = findCurrentEntry(entries);
  if (current === null && nextCallId !== null) return;
  for (const entry of current === null ? entries : [current]) {
    const control = [...entry.querySelectorAll(selector)].find((element) => element.checkVisibility());
    if (control === undefined) continue;
    // A button that is briefly disabled: focus its row instead.
    return (control.disabled ? (entry.querySelector(ROW_LINK_SELECTOR) ?? entry) : control).focus();
  }
}

const SHORTCUTS = {
  j: () => moveFocus(1),
  k: () => moveFocus(-1),
  a: () => focusControl('button:is([value="approve"], [value="edit"], [value="answer"], [value="value"]), a.button'),
  d: () => focusControl('button[value="deny"], .deny > summary, a.button'),
  e: () => focusControl('.fields :is(input:not([type="hidden"]), textarea, select), textarea[name="json"]'),
  r: () => focusControl('[name="reason"]'),
  l: () => location.assign(ROOT),
  n: () => {
    if (document.querySelector("#main .card") === null) return moveFocus(1);
    const waiting = listEntries().filter((entry) => entry.dataset.state === "waiting");
    const card = waiting[waiting.indexOf(findEnclosingEntry(document.activeElement)) + 1];
    const next = document.getElementById("next");
    if (card !== undefined) focusEntry(card);
    else if (next !== null) next.click();
    else location.assign(ROOT);
  },
  "?": () => {
    const help = document.getElementById("keys");
    help.open = true;
    help.querySelector("summary").focus();
  },
};

function handleKeyDown(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, [contenteditable]") !== null) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (!Object.hasOwn(SHORTCUTS, event.key) || browserStorage.get(SHORTCUTS_OFF_KEY) === "1") return;
  event.preventDefault();
  SHORTCUTS[event.key]();
}

// Browsers may deny storage: then shortcuts are on again on the next page, and links lead to the sign-in.
function createStorage(getStorage) {
  return {
    get(key) {
      try {
        return getStorage().getItem(key);
      } catch {
        return null;
      }
    },
    set(key, text) {
      try {
        getStorage().setItem(key, text);
      } catch {}
    },
  };
}

const browserStorage = createStorage(() => localStorage);
const tabStorage = createStorage(() => sessionStorage); // of this tab only

function enableShortcuts() {
  const help = document.getElementById("keys");
  const shortcutsCheckbox = document.getElementById("keys-on");
  if (help === null || shortcutsCheckbox === null) return;
  help.hidden = false;
  shortcutsCheckbox.checked = browserStorage.get(SHORTCUTS_OFF_KEY) !== "1";
  shortcutsCheckbox.addEventListener("change", () => browserStorage.set(SHORTCUTS_OFF_KEY, shortcutsCheckbox.checked ? "0" : "1"));
  document.addEventListener("keydown", handleKeyDown);
}

rememberPrivatePath();
signInByFragment(true);
addEventListener("hashchange", () => signInByFragment(false)); // the printed URL, opened in this tab
enableShortcuts();
restoreNextCall();
document.addEventListener("submit", rememberNextCall);
liveUpdates.start();
formatTimes(document);
updateCheckboxes();
document.querySelectorAll(".card form").forEach(showTypedChanges); // after navigating back, browsers restore forms
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.(".deny[open]")) event.target.querySelector("input").focus();
}, true);
setInterval(() => formatTimes(document), TIME_REFRESH_MS);
document.addEventListener("input", (event) => {
  const form = event.target.closest?.(".card form");
  if (form) {
    selectTypedValue(event.target);
    showTypedChanges(form);
  }
  if (event.target.matches?.("td input[type=checkbox]")) updateCheckboxes();
});
