package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// contentTypes are ours: the tables of the operating system differ, and with nosniff a module of a
// wrong type doesn't run (some tables make video of ".ts").
var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".ico":  "image/x-icon",
	".js":   "text/javascript; charset=utf-8",
	".json": "application/json",
	".png":  "image/png",
	".svg":  "image/svg+xml",
	".ts":   "text/plain; charset=utf-8",
}

type file struct {
	content     []byte
	contentType string
	etag        string
}

// Files returns a handler of the files of fsys, which it reads once; a folder is its index.html. Every
// answer has an ETag of the content and must be revalidated, so a new binary is a new page at the next load.
func Files(fsys fs.FS) (http.Handler, error) {
	files := map[string]file{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		contentType, ok := contentTypes[path.Ext(name)]
		if !ok {
			return fmt.Errorf("serve %s: no content type for its extension", name)
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		served := file{content, contentType, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		files[name] = served
		if folder, is := strings.CutSuffix(name, "index.html"); is {
			files[folder] = served
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read files: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, files)
	}), nil
}

func serve(w http.ResponseWriter, r *http.Request, files map[string]file) {
	found, ok := files[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	header := w.Header()
	header.Set("Content-Type", found.contentType)
	header.Set("ETag", found.etag)
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Content-Type-Options", "nosniff")
	// No time: the files of a binary have none. ServeContent answers If-None-Match by the ETag.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(found.content))
}
