// The browser client of lastmile.

export type State = "idle" | "connecting" | "open" | "waiting" | "closed";

/** An event as the server sends it: CloudEvents 1.0. */
export interface CloudEvent<Data = any> {
  specversion: string;
  id: string;
  source: string;
  type: string;
  /** RFC 3339 */
  time: string;
  subject?: string;
  data: Data;
}

/** Where a client stands in its user's log. */
export interface Position {
  epoch: string;
  seq: number;
  /** "" where no event was handled yet */
  id: string;
}

/** What the server says when a connection stands, and again when it changed the client's position. */
export interface Welcome {
  type: "welcome";
  n: number;
  session: string;
  user: string;
  /** The socket server that serves this connection. */
  instance: string;
  epoch: string;
  seq: number;
  id: string;
  recovered: boolean;
  /** ms */
  pingInterval: number;
  /** ms */
  reconnectWithin: number;
  /** bytes: the largest frame that the server takes */
  maxFrame: number;
  tokenExpiresAt?: number | string;
}

/** An event to publish. */
export interface Outgoing {
  /** A UUID in lower case; made when absent. The same id again is the same event. */
  id?: string;
  to: string[];
  type: string;
  subject?: string;
  data?: unknown;
  ephemeral?: boolean;
}

export interface Options {
  /** The socket endpoint, `wss://host/v1/ws`; a function is asked before every attempt. */
  url: string | (() => string | Promise<string>);
  /** Asked when a token is needed. `null`: the user must sign in again, the client closes. */
  getToken: () => string | null | Promise<string | null>;
  /** At most 32 bytes, shown to operators. */
  device?: string;
  /** Closes the client for good. */
  signal?: AbortSignal;
  /** Whose `online`, `offline`, `pageshow` and `visibilitychange` wake the client; default: the globals. */
  page?: { window?: EventTarget; document?: EventTarget & { visibilityState: string } };
  WebSocket?: new (url: string, protocols: string) => WebSocket;
  clock?: {
    now(): number;
    setTimeout(callback: () => void, ms: number): any;
    clearTimeout(timer: any): void;
  };
  /** 0 ≤ x < 1 */
  random?: () => number;
}

export declare class ClientError extends Error {
  constructor(code: number | string, message: string, cause?: unknown);
  /** A close code (number), one of ErrorCode, or `handler`, `connect`, `token`, `timeout`, `late`. */
  code: number | string;
}

declare class WaitableEvent extends Event {
  /** Counts as handled when the promise is settled. Only while the listener runs; async listeners are waited for anyway. */
  waitUntil(promise: PromiseLike<unknown>): void;
}

/** An event for this user: each once, in order, the next one when the listeners of this one are done. */
export declare class DeliveryEvent extends WaitableEvent {
  event: CloudEvent;
  /** Absent for ephemeral events. */
  seq: number | undefined;
  redelivered: boolean;
}

/**
 * Nobody can vouch for what is shown: load it (again), also at the start. Nothing is acknowledged before
 * this is done, so let the listener return the promise of the load. If it fails, `resync` comes again.
 */
export declare class ResyncEvent extends WaitableEvent {
  attempt: number;
}

/** From `open` to `open`: another connection took over, `welcome` is its. */
export declare class StateChangeEvent extends Event {
  state: State;
  previous: State;
  /** In state `waiting`: when the next attempt begins, ms since 1970. */
  retryAt: number | undefined;
}

/** The server leaves; the client moves to another one by itself. */
export declare class GoAwayEvent extends Event {
  reconnectAfter: number;
  reason: string;
}

export declare class ErrorEvent extends Event {
  error: ClientError;
  /** The client has closed itself over this: sign in again, or give up. */
  terminal: boolean;
}

export interface ClientEventMap {
  event: DeliveryEvent;
  resync: ResyncEvent;
  statechange: StateChangeEvent;
  goaway: GoAwayEvent;
  error: ErrorEvent;
}

type Listener<E> = ((event: E) => unknown) | { handleEvent(event: E): unknown } | null;

export declare class Client extends EventTarget {
  constructor(options: Options);
  readonly state: State;
  /** Of the connection in use; null without one. */
  readonly welcome: Readonly<Welcome> | null;
  readonly position: Position | null;
  /** Starts; does nothing where it is started. After `close` it resumes where it was. */
  connect(): void;
  /** Ends, and rejects what is not published. */
  close(): void;
  /**
   * Publishes into the outbox, where the user's token allows it. Resolves with the id once it is committed;
   * sent again, under its id, after a reconnect. Rejects with a ClientError that says why.
   */
  publish(event: Outgoing, options?: { signal?: AbortSignal }): Promise<string>;
  addEventListener<K extends keyof ClientEventMap>(type: K, listener: Listener<ClientEventMap[K]>, options?: boolean | AddEventListenerOptions): void;
  removeEventListener<K extends keyof ClientEventMap>(type: K, listener: Listener<ClientEventMap[K]>, options?: boolean | EventListenerOptions): void;
}

export declare const CloseCode: Readonly<Record<string, number>>;
export declare const ErrorCode: Readonly<Record<string, string>>;
