// Command generate writes the files that are made from the table of codes. It is run by `go generate ./protocol`.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/lastmile-gateway/lastmile/protocol/internal/codes"
)

func main() {
	root := flag.String("root", ".", "the repository's root")
	flag.Parse()
	files, err := codes.Files()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(*root, filepath.FromSlash(f.Path))
		if err := os.WriteFile(path, f.Content, 0o644); err != nil {
			log.Fatalf("write generated file: %v", err)
		}
	}
}
