package chat

import (
	"embed"
	"io/fs"
)

//go:embed page
var pageFiles embed.FS

// pageFS holds the page: no build step, what is in the folder is what the browser gets.
func pageFS() fs.FS {
	sub, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the folder is in the binary or it doesn't build
	}
	return sub
}
