// The page: signs in, loads on `resync`, follows `event`.

import { Client } from "./client/index.js";
import * as api from "./api.js";
import { Model } from "./model.js";
import { Sender } from "./sender.js";
import { $, MessageList, avatar, showConnection, showRooms } from "./view.js";

/** ?server=1 begins with the first server, else a random one; each further attempt goes to the next one. */
async function chooseServer() {
  const { sockets } = await api.config();
  const first = new URLSearchParams(location.search).get("server") ?? "";
  let i = /^[1-9]\d{0,8}$/.test(first) ? Number(first) - 1 : Math.floor(Math.random() * sockets.length);
  return () => sockets[i++ % sockets.length];
}

async function start() {
  const me = api.user();
  $("login").hidden = me !== null;
  $("app").hidden = me === null;
  if (!me) return $("login-name").focus();

  $("me-name").textContent = me.name;
  avatar($("me-avatar"), me.id, me.name);
  const model = new Model(me);
  const list = new MessageList(me, (message) => sender.retry(message));
  let asked = false;
  /** Once for all events of a frame. */
  const refresh = () => {
    if (asked) return;
    asked = true;
    queueMicrotask(() => {
      asked = false;
      showRooms(model);
      if (model.room) list.show(model.room);
    });
  };
  const sender = new Sender(model, refresh, () => client.close());
  let next;
  const client = new Client({
    url: async () => (next ??= await chooseServer())(),
    getToken: api.token,
    device: /Mobi/.test(navigator.userAgent) ? "phone" : "computer",
  });

  const load = async () => {
    try {
      model.setRooms(await api.rooms());
      const { room } = model;
      if (room.member) room.load(await api.history(room.id));
    } catch (error) {
      if (error.status === 401) client.close();
      throw error;
    }
  };
  let loaded = false;
  client.addEventListener("resync", async () => {
    // A room that is not on the screen loads again when it is opened.
    for (const room of model.rooms.values()) if (room !== model.room) room.loaded = false;
    await load();
    if (!loaded) sender.restore();
    loaded = true;
    refresh();
    showState();
  });
  client.addEventListener("event", ({ event: { type, data } }) => {
    refresh();
    if (type === "chat.message") model.confirm(data);
    else if (type === "chat.room") model.setRoom(data);
    else if (type === "chat.member") {
      const member = data.user === me.id || undefined;
      if (model.rooms.has(data.room)) model.setRoom({ id: data.room, members: data.members, member });
      else return load().then(refresh);
    }
  });

  const showState = () => {
    // Online is who can read and write, not who has a connection only.
    const waiting = !navigator.onLine ? "offline" : loaded ? "reconnecting" : "connecting";
    const online = client.state === "open" && loaded;
    const state = online ? "online" : client.state === "closed" ? "signed-out" : waiting;
    showConnection(state, client.welcome?.instance);
  };
  client.addEventListener("statechange", () => {
    showState();
    if (client.state === "open") sender.hurry();
  });
  client.addEventListener("error", ({ error }) => console.warn(error));
  window.addEventListener("offline", showState);
  window.addEventListener("online", showState);

  const open = async (id) => {
    model.current = id;
    const room = model.room;
    room.unread = 0;
    document.querySelector(".app").classList.remove("rooms-open");
    $("rooms-toggle").setAttribute("aria-expanded", "false");
    refresh();
    if (matchMedia("(pointer: fine)").matches) $("composer").focus();
    if (!room.member) {
      await api.join(id);
      room.member = true;
    }
    if (!room.loaded) room.load(await api.history(id));
    refresh();
  };
  wire(model, list, sender, open, refresh);
  showState();
  client.connect();
}

/** Connects the page's controls; each is used by one sign-in only, since signing out reloads the page. */
function wire(model, list, sender, open, refresh) {
  const problem = (error) => {
    $("room-error").textContent = error.message;
  };
  $("rooms").addEventListener("click", (e) => {
    const id = e.target.closest("[data-room]")?.dataset.room;
    $("room-error").textContent = "";
    if (id) open(id).catch(problem);
  });
  $("new-room").addEventListener("submit", async (e) => {
    e.preventDefault();
    $("room-error").textContent = "";
    try {
      const room = await api.createRoom($("new-room-name").value);
      e.target.reset();
      model.setRoom({ ...room, member: true });
      await open(room.id);
    } catch (error) {
      problem(error);
    }
  });
  $("older").addEventListener("click", async () => {
    const room = model.room;
    try {
      for (const message of await api.history(room.id, room.firstSeq)) room.confirm(message);
    } catch (error) {
      problem(error);
    }
    refresh();
  });
  $("latest").addEventListener("click", () => list.toEnd());

  const composer = $("composer");
  const submit = () => {
    const text = composer.value;
    if (!text.trim() || !model.room?.member) return;
    composer.value = "";
    sender.send(model.current, text);
    composer.focus();
  };
  $("composer-form").addEventListener("submit", (e) => {
    e.preventDefault();
    submit();
  });
  composer.addEventListener("keydown", (e) => {
    // Enter that ends the input of a Japanese or Chinese word sends nothing.
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    submit();
  });

  const app = $("app");
  const toggle = (on) => {
    app.classList.toggle("rooms-open", on);
    $("rooms-toggle").setAttribute("aria-expanded", String(on));
  };
  $("rooms-toggle").addEventListener("click", () => toggle(!app.classList.contains("rooms-open")));
  $("curtain").addEventListener("click", () => toggle(false));
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") toggle(false);
  });
  const signOut = () => {
    api.logout();
    location.reload();
  };
  $("sign-out").addEventListener("click", signOut);
  $("sign-again").addEventListener("click", signOut);
}

$("login-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  $("login-error").textContent = "";
  try {
    await api.login($("login-name").value);
    await start();
  } catch (error) {
    $("login-error").textContent = error.message;
  }
});

await start();
