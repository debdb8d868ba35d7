// The page's elements, and how the model looks in them.

import { keyOf } from "./model.js";
import { fill, hue, initial } from "./text.js";

export const $ = (id) => document.getElementById(id);

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const dayWithYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });
/** Messages of one sender closer than this are one block. */
const BLOCK = 5 * 60_000;
const STATES = {
  connecting: "Connecting…",
  online: "Online",
  reconnecting: "Reconnecting…",
  offline: "Offline",
  "signed-out": "Signed out",
};

export function avatar(element, id, name) {
  element.textContent = initial(name);
  element.style.setProperty("--hue", String(hue(id)));
}

export function showConnection(state, instance) {
  $("connection").dataset.state = state;
  $("connection-text").textContent = STATES[state];
  $("server").textContent = instance ?? "";
  $("server").title = instance ?? "";
  $("sign-again").hidden = state !== "signed-out";
}

export function showRooms(model) {
  const rooms = [...model.rooms.values()];
  $("rooms").replaceChildren(...rooms.map((room) => roomItem(room, room.id === model.current)));
  $("toggle-unread").hidden = !rooms.some((room) => room.unread > 0);
  const { room } = model;
  if (!room) return;
  $("room-title").textContent = room.title;
  $("room-members").textContent = room.members === 1 ? "1 member" : `${room.members} members`;
  document.title = `${room.title} · lastmile chat`;
}

function roomItem(room, current) {
  const item = document.createElement("li");
  const button = item.appendChild(document.createElement("button"));
  button.type = "button";
  button.className = "room-button";
  button.dataset.testid = `room-${room.id}`;
  button.dataset.room = room.id;
  button.setAttribute("aria-current", String(current));
  button.appendChild(document.createElement("bdi")).textContent = room.title;
  if (!room.member) button.append(span("join", "join"));
  if (room.unread > 0) {
    const badge = span("badge", room.unread > 99 ? "99+" : String(room.unread));
    badge.setAttribute("aria-label", `${room.unread} unread`);
    button.append(badge);
  }
  return item;
}

/** Keeps the elements of messages that are there already: focus, selection and screen readers stay where they are. */
export class MessageList {
  #items = new Map();
  #room = "";

  constructor(me, retry) {
    this.me = me;
    this.retry = retry;
    this.scroller = $("scroller");
    this.list = $("messages");
    this.scroller.addEventListener("scroll", () => {
      if (this.atEnd) $("latest").hidden = true;
    }, { passive: true });
  }

  get atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < 80;
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  show(room) {
    const changed = room.id !== this.#room;
    if (changed) {
      this.#room = room.id;
      this.#items.clear();
      this.list.replaceChildren();
      $("latest").hidden = true;
    }
    const messages = room.list();
    const last = messages.at(-1);
    const isNew = last !== undefined && !this.#items.has(keyOf(last));
    const stick = changed || this.atEnd || (isNew && last.from === this.me.id);
    const fromEnd = this.scroller.scrollHeight - this.scroller.scrollTop;
    // A page of history is not news: it isn't read out.
    this.scroller.setAttribute("aria-busy", String(!room.loaded));
    place(this.list, this.#rows(messages));
    $("older").hidden = !room.more;
    $("empty").hidden = !room.loaded || messages.length > 0;
    if (stick) this.toEnd();
    else if (isNew) $("latest").hidden = false;
    else this.scroller.scrollTop = this.scroller.scrollHeight - fromEnd;
  }

  #rows(messages) {
    const rows = [];
    const wanted = new Map();
    let before = null;
    for (const message of messages) {
      const date = dateOf(message);
      const newDay = !before || date.toDateString() !== dateOf(before).toDateString();
      if (newDay) rows.push(this.#row(`day ${keyOf(message)}`, wanted, () => dayRow(date)));
      const next = !newDay && before.from === message.from && date - dateOf(before) < BLOCK;
      const row = this.#row(keyOf(message), wanted, () => messageRow(message, message.from === this.me.id));
      this.#update(row, message, next);
      rows.push(row);
      before = message;
    }
    this.#items = wanted;
    return rows;
  }

  #row(key, wanted, make) {
    const row = this.#items.get(key) ?? make();
    wanted.set(key, row);
    return row;
  }

  #update(row, message, next) {
    row.classList.toggle("next", next);
    const meta = { sent: clock.format(dateOf(message)), pending: "sending…", failed: "not sent" }[message.state];
    if (row.dataset.state === message.state && row.querySelector(".meta").textContent === meta) return;
    row.dataset.state = message.state;
    row.querySelector(".meta").textContent = meta;
    row.querySelector(".failure")?.remove();
    if (message.state !== "failed") return;
    const failure = document.createElement("div");
    failure.className = "failure";
    failure.append(span("", message.problem));
    const again = failure.appendChild(document.createElement("button"));
    again.type = "button";
    again.textContent = "Retry";
    again.addEventListener("click", () => this.retry(message));
    row.querySelector(".content").append(failure);
  }
}

/** What is no date must not stop the whole list. */
function dateOf(message) {
  const date = new Date(message.createdAt);
  return Number.isNaN(date.getTime()) ? new Date(0) : date;
}

function dayRow(date) {
  const row = document.createElement("li");
  row.className = "day";
  row.textContent = (date.getFullYear() === new Date().getFullYear() ? day : dayWithYear).format(date);
  return row;
}

function messageRow(message, mine) {
  const row = document.createElement("li");
  row.className = mine ? "message mine" : "message";
  row.dataset.testid = "message";
  row.dataset.id = message.id;
  const face = span("avatar", "");
  face.setAttribute("aria-hidden", "true");
  avatar(face, message.from, message.name);
  const content = document.createElement("div");
  content.className = "content";
  const name = content.appendChild(document.createElement("bdi"));
  name.className = "name";
  name.textContent = message.name;
  const bubble = content.appendChild(document.createElement("div"));
  bubble.className = "bubble";
  const text = bubble.appendChild(document.createElement("div"));
  text.className = "text";
  text.dir = "auto";
  fill(text, message.text);
  bubble.append(span("meta", ""));
  row.append(face, content);
  return row;
}

/** Brings the children of `list` to `rows` and moves only what is out of place. */
function place(list, rows) {
  const keep = new Set(rows);
  for (const child of [...list.children]) if (!keep.has(child)) child.remove();
  rows.forEach((row, i) => {
    if (list.children[i] !== row) list.insertBefore(row, list.children[i] ?? null);
  });
}

function span(className, text) {
  const element = document.createElement("span");
  element.className = className;
  element.textContent = text;
  return element;
}
