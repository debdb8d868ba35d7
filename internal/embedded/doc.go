// Package embedded runs a Redis and a MongoDB inside the process, each over TCP
// and in its real wire protocol, so that everything else talks to an address
// with the official drivers, here as in production.
//
// Redis is miniredis. MongoDB is a server of our own (package wire for the
// protocol, package store for the data), which takes lungo's matching of queries
// and updates, and presents itself as the one member of a replica set.
package embedded
