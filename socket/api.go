package socket

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// publishTimeout bounds one commit to the outbox.
const publishTimeout = 10 * time.Second

// serveEvents is POST /v1/events: one event, or an array of them, all or nothing.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !s.hasAPIKey(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeProblem(w, problem{Status: http.StatusUnauthorized, Detail: "give an API key as Authorization: Bearer"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, protocol.MaxPublishBody))
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig):
		writeProblem(w, problem{Status: http.StatusRequestEntityTooLarge, Detail: "the body is larger than 16 MiB"})
		return
	case err != nil:
		// Perhaps the client is gone; if not, an answer of nothing would look like success.
		w.Header().Set("Connection", "close")
		writeProblem(w, problem{Status: http.StatusBadRequest, Detail: "the body could not be read to its end"})
		return
	}
	list, err := protocol.DecodeEvents(body) // refuses reserved types too
	if err != nil {
		writeProblem(w, invalidProblem(err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), publishTimeout)
	defer cancel()
	if err := s.store.Publish(ctx, list...); err != nil {
		s.writePublishProblem(w, err)
		return
	}
	s.metrics.published.Add(float64(len(list)))
	ids := make([]protocol.EventID, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	writeJSON(w, http.StatusAccepted, "application/json", map[string]any{"ids": ids})
}

// hasAPIKey compares digests: their length says nothing of the key's, and the time nothing of its bytes.
func (s *Server) hasAPIKey(r *http.Request) bool {
	token, ok := bearer(r)
	given, found := sha256.Sum256([]byte(token)), 0
	for _, key := range s.cfg.APIKeys {
		want := sha256.Sum256([]byte(key))
		found |= subtle.ConstantTimeCompare(given[:], want[:])
	}
	return ok && found == 1
}

func (s *Server) writePublishProblem(w http.ResponseWriter, err error) {
	var invalid *protocol.ValidationError
	if errors.As(err, &invalid) {
		writeProblem(w, invalidProblem(err))
		return
	}
	s.log.Warn("publish meets trouble", slog.Any("error", err))
	w.Header().Set("Retry-After", "1")
	writeProblem(w, problem{Status: http.StatusServiceUnavailable, Detail: "the outbox is away; nothing was said to be committed, try again with the same ids"})
}

// problem is an answer of RFC 9457.
type problem struct {
	Type   string         `json:"type"`
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail,omitempty"`
	Errors []problemFault `json:"errors,omitempty"`
}

type problemFault struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

func invalidProblem(err error) problem {
	p := problem{Status: http.StatusUnprocessableEntity, Detail: "the request is not valid; nothing of it was stored"}
	var invalid *protocol.ValidationError
	if errors.As(err, &invalid) {
		for _, f := range invalid.Faults {
			p.Errors = append(p.Errors, problemFault{Pointer: f.Pointer, Detail: f.Message})
		}
	}
	return p
}

func only(method string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", method)
		writeProblem(w, problem{Status: http.StatusMethodNotAllowed, Detail: "only " + method})
	}
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeProblem(w, problem{Status: http.StatusNotFound, Detail: "no such path"})
}

func writeProblem(w http.ResponseWriter, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	writeJSON(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
