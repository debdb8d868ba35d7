package web

import (
	"embed"
	"io/fs"
	"net/http"
)

// Named one by one: tests and what only the type checker reads stay out of the binary.
//
//go:embed client/index.js client/index.d.ts client/client.js client/connection.js client/receiver.js
//go:embed client/publisher.js client/tokens.js client/backoff.js client/events.js client/codes.js
var clientFiles embed.FS

// ClientFS returns the modules of the browser client; index.js is the one to import.
func ClientFS() fs.FS {
	sub, err := fs.Sub(clientFiles, "client")
	if err != nil {
		panic(err) // the folder is in the binary or it doesn't build
	}
	return sub
}

// Client returns a handler that serves the browser client at the root of its path:
//
//	mux.Handle("/client/", http.StripPrefix("/client", web.Client()))
func Client() http.Handler {
	handler, err := Files(ClientFS())
	if err != nil {
		panic(err) // as above: nothing of this depends on where it runs
	}
	return handler
}
