// Package web owns what browsers load: the browser client (folder client, ES modules without a build
// step) and the pages that ship in the binary, and serves both with the headers they need.
//
// # The browser client
//
// The client is the browser's half of the promise: it keeps the position {epoch, seq, id}, drops what it
// has seen, acks after the application's listeners are done, and comes back by itself. Its states:
//
//	idle ──connect──▶ connecting ──welcome──▶ open
//	                   ▲     │ lost            │ lost
//	              timer│     ▼                 │
//	                  waiting ◀────────────────┘       closed: close(), or a close code from 4500 on
//
// It promises the application each event once and in the user's order, the next one when the listeners of
// the one before are done; what nobody can vouch for is told by `resync`. It promises nothing across a
// reload of the page: a new page has a new client, which begins with `resync`.
//
//   - A listener that throws or rejects counts as having handled its event, and raises `error`.
//   - A `resync` that fails is no reload: nothing is acked, and `resync` comes again, with a pause.
//   - A frame that can't be read ends the connection; the next one resumes before it.
//   - A listener that never ends stops everything behind it: the server closes with 4001, again and again.
//
// # Serving
//
// [Files] serves a file system read once, with an ETag of the content; [Secure] adds the content policy
// (no inline script, no inline style, nothing from elsewhere). A file that is missing is a 404, another
// method than GET and HEAD a 405; there is no other state and no failure.
//
// # Testing against it
//
// The client takes WebSocket, clock, random and page from its options; client/testing.js has fakes of all
// four, for `node --test`. The Go side is plain http.Handlers.
package web
