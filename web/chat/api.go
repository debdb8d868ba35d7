package chat

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// maxBody is more than the longest message needs when every character is escaped.
const maxBody = 128 << 10

// problem is an error that the client is told, as RFC 9457 has it.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (p *problem) Error() string { return p.Detail }

func badRequest(detail string) error { return &problem{Status: http.StatusBadRequest, Detail: detail} }
func forbidden(detail string) error  { return &problem{Status: http.StatusForbidden, Detail: detail} }
func notFound(detail string) error   { return &problem{Status: http.StatusNotFound, Detail: detail} }
func conflict(detail string) error   { return &problem{Status: http.StatusConflict, Detail: detail} }

// guard bounds the work on a request and answers its errors.
func (s *Server) guard(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		err := do(w, r.WithContext(ctx))
		if err == nil {
			return
		}
		var told *problem
		if errors.As(err, &told) {
			writeProblem(w, told.Status, told.Detail)
			return
		}
		if r.Context().Err() == nil {
			s.cfg.Logger.ErrorContext(ctx, "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		writeProblem(w, http.StatusServiceUnavailable, "could not be done now: try again")
	}
}

// user is guard for requests of somebody who is signed in.
func (s *Server) user(do func(http.ResponseWriter, *http.Request, User) error) http.HandlerFunc {
	return s.guard(func(w http.ResponseWriter, r *http.Request) error {
		u, err := s.tokens.authenticate(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			return &problem{Status: http.StatusUnauthorized, Detail: err.Error()}
		}
		return do(w, r, u)
	})
}

// readJSON reads the body into v. JSON that is no UTF-8 is refused: the decoder would replace bytes, and
// the same message sent again would not be the same.
func readJSON(r *http.Request, v any) error {
	if t, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(t) != "application/json" {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "Content-Type: want application/json"}
	}
	var raw json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return &problem{Status: http.StatusRequestEntityTooLarge, Detail: "body: too large"}
		}
		return badRequest("body: no JSON")
	}
	if !utf8.Valid(raw) {
		return badRequest("body: no UTF-8")
	}
	if err := json.Unmarshal(raw, v); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return badRequest(wrong.Field + ": want a " + wrong.Type.String())
		}
		return badRequest("body: want an object")
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer is gone: nobody to tell
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem{http.StatusText(status), status, detail})
}
