// Package outboxtest is the conformance suite of package outbox, and the proxy that its fault tests use.
//
// Run has what must be true on every server that an outbox may live in: a MongoDB from 4.4 on, and the embedded
// one. It is called with a function that answers the URL of a database of its own. What only one kind of server
// can show (an oplog of five entries) is tested in package outbox itself.
//
// A Proxy stands between driver and server and sees each command. Rules answer in the server's place, change what
// it answered, or cut the connection: the rest of the way is real.
package outboxtest
