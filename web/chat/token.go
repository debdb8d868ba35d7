package chat

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// tokens are of two kinds. A session is what the page shows to this backend; a socket token is what it
// shows to the socket servers. They have different keys, so that a session, which lives for weeks, is
// never taken by a socket server.
type tokens struct {
	session, socket       []byte
	sessionTTL, socketTTL time.Duration
}

func newTokens(cfg Config) tokens {
	mac := hmac.New(sha256.New, cfg.TokenSecret)
	mac.Write([]byte("chat session"))
	return tokens{session: mac.Sum(nil), socket: cfg.TokenSecret, sessionTTL: cfg.SessionTTL, socketTTL: cfg.TokenTTL}
}

type sessionClaims struct {
	Name string `json:"name"`
	jwt.RegisteredClaims
}

func (t tokens) mintSession(u User) (string, error) {
	claims := sessionClaims{u.Name, jwt.RegisteredClaims{
		Subject:   u.ID,
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(t.sessionTTL)),
	}}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(t.session)
}

// mintSocket makes what a socket server asks for: sub and exp, HS256.
func (t tokens) mintSocket(u User) (string, error) {
	claims := jwt.RegisteredClaims{
		Subject:   u.ID,
		IssuedAt:  jwt.NewNumericDate(time.Now()),
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(t.socketTTL)),
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(t.socket)
}

var errNoSession = errors.New("sign in first: Authorization: Bearer <session>")

// authenticate gives the user of a request. The session travels in a header and not in a cookie: two
// tabs may be two users, and no other site can make a browser send it.
func (t tokens) authenticate(r *http.Request) (User, error) {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return User{}, errNoSession
	}
	var claims sessionClaims
	_, err := jwt.ParseWithClaims(bearer, &claims, func(*jwt.Token) (any, error) { return t.session, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	if err != nil || claims.Subject == "" {
		return User{}, errNoSession
	}
	return User{ID: claims.Subject, Name: claims.Name}, nil
}

func (s *Server) getToken(w http.ResponseWriter, r *http.Request, u User) error {
	token, err := s.tokens.mintSocket(u)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, map[string]any{"token": token, "expiresIn": int(s.cfg.TokenTTL.Seconds())})
	return nil
}
