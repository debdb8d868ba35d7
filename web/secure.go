package web

import (
	"net/http"
	"strings"
)

// Secure adds the security headers of a page to every answer of next. Scripts, styles and images come
// from the page's own origin and from files only, nothing is framed, no script may turn text into markup.
// connect names the origins besides its own that the page may open connections to ("wss://a.example").
// See https://www.w3.org/TR/CSP3/ and https://www.w3.org/TR/trusted-types/.
func Secure(next http.Handler, connect ...string) http.Handler {
	policy := strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'self'",
		"img-src 'self'",
		"manifest-src 'self'",
		strings.Join(append([]string{"connect-src 'self'"}, connect...), " "),
		"base-uri 'none'",
		"form-action 'self'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
	}, "; ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		next.ServeHTTP(w, r)
	})
}
