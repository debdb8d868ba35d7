// The chat's backend, as the page sees it.

const KEY = "lastmile.chat.session";
const WITHIN = 15_000;

/** An answer that is no success. `passing`: the same request may succeed later. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
    this.passing = status === 0 || status === 429 || status >= 500;
  }
}

/** The session lives in the tab: two tabs can be two people. */
let session = read();

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "null");
  } catch {
    return null;
  }
}

export function user() {
  return session?.user ?? null;
}

export async function login(name) {
  session = await call("POST", "login", { name });
  sessionStorage.setItem(KEY, JSON.stringify(session));
}

export function logout() {
  session = null;
  sessionStorage.removeItem(KEY);
}

/** The socket's token; null when the session has ended. */
export async function token() {
  try {
    return (await call("GET", "token")).token;
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

export const config = () => call("GET", "config");
export const rooms = async () => (await call("GET", "rooms")).rooms;
export const createRoom = async (title) => (await call("POST", "rooms", { title })).room;
export const join = (room) => call("POST", `rooms/${encodeURIComponent(room)}/join`, {});
export const history = async (room, before) =>
  (await call("GET", `rooms/${encodeURIComponent(room)}/messages${before ? `?before=${before}` : ""}`)).messages;
export const send = async (room, { id, text }) =>
  (await call("POST", `rooms/${encodeURIComponent(room)}/messages`, { id, text })).message;

async function call(method, path, body) {
  const headers = { Accept: "application/json" };
  if (session) headers.Authorization = `Bearer ${session.session}`;
  if (body) headers["Content-Type"] = "application/json";
  let response, answer;
  try {
    const signal = AbortSignal.timeout(WITHIN);
    response = await fetch(`api/${path}`, { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" });
    answer = await response.json();
  } catch {
    throw new ApiError(0, "The server can't be reached.");
  }
  if (!response.ok) throw new ApiError(response.status, answer.detail ?? response.statusText);
  return answer;
}
