// What the page knows: rooms, their messages in the server's order, and what is still on its way.

/** A sender's id for a message is unique among his own only. */
export function keyOf(message) {
  return `${message.from} ${message.id}`;
}

export class Room {
  constructor(fields) {
    this.update(fields);
    /** By key, so that no message is there twice, whatever way it came. */
    this.byKey = new Map();
    this.loaded = false;
    this.unread = 0;
    this.read = 0;
  }

  update({ id, title, member, members }) {
    this.id = id;
    this.title = title ?? this.title;
    this.member = member ?? this.member ?? false;
    this.members = members ?? this.members ?? 0;
  }

  /** Stored by the server, told by an event, a page of the history, or the answer to a send. */
  confirm(message) {
    this.byKey.set(keyOf(message), { ...message, state: "sent" });
  }

  /**
   * The newest page of the history. What was known before it stays only if it goes on without a hole;
   * what is newer came as events meanwhile.
   */
  load(messages) {
    const first = messages[0]?.seq ?? 1;
    const sent = [...this.byKey].filter(([, m]) => m.state === "sent");
    if (!sent.some(([, m]) => m.seq === first - 1)) {
      for (const [key, m] of sent) if (m.seq < first) this.byKey.delete(key);
    }
    this.loaded = true;
    for (const message of messages) this.confirm(message);
  }

  /** The seqs of a room count from 1 without a gap. */
  get more() {
    return this.loaded && this.firstSeq > 1 && this.firstSeq < Infinity;
  }

  /** By seq; what has none yet comes last, in the order it was written. */
  list() {
    return [...this.byKey.values()].sort((a, b) => (a.seq ?? Infinity) - (b.seq ?? Infinity) || (a.local ?? 0) - (b.local ?? 0));
  }

  get firstSeq() {
    return Math.min(...this.list().flatMap((m) => m.seq ?? []));
  }
}

export class Model {
  rooms = new Map();
  current = "lobby";

  constructor(me) {
    this.me = me;
  }

  get room() {
    return this.rooms.get(this.current);
  }

  setRooms(list) {
    for (const fields of list) this.setRoom(fields);
  }

  setRoom(fields) {
    const known = this.rooms.get(fields.id);
    if (known) known.update(fields);
    else this.rooms.set(fields.id, new Room(fields));
  }

  /** @returns whether the message is new here */
  confirm(message) {
    const room = this.rooms.get(message.room);
    if (!room) return false;
    const isNew = room.byKey.get(keyOf(message))?.state !== "sent" && message.seq > room.read;
    // Also while the room is being loaded: that answer may have been made before this message.
    room.confirm(message);
    if (isNew && message.from !== this.me.id && message.room !== this.current) room.unread++;
    room.read = Math.max(room.read, message.seq);
    return isNew;
  }
}
