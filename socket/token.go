package socket

import (
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// identity is what a token says.
type identity struct {
	user    protocol.UserID
	issued  time.Time // zero: not said
	expires time.Time
	publish []string // patterns of event types
}

// mayPublish says whether the token allows events of that type.
func (id *identity) mayPublish(typ string) bool {
	for _, pattern := range id.publish {
		if ok, err := path.Match(pattern, typ); ok && err == nil {
			return true
		}
	}
	return false
}

type claims struct {
	jwt.RegisteredClaims
	Lastmile struct {
		Publish []string `json:"publish"`
	} `json:"lastmile"`
}

// verifier checks tokens.
type verifier struct {
	secret []byte
	parser *jwt.Parser
}

func newVerifier(secret []byte) *verifier {
	return &verifier{secret: secret, parser: jwt.NewParser(
		// The list fixes the family of algorithms: a token can't choose "none", or a public key's.
		jwt.WithValidMethods([]string{"HS256", "HS384", "HS512"}),
		jwt.WithExpirationRequired(),
	)}
}

var errTokenExpired = errors.New("token expired")

// verify returns errTokenExpired for a good token that is too old.
func (v *verifier) verify(token string) (*identity, error) {
	var c claims
	_, err := v.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return v.secret, nil })
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return nil, errTokenExpired
	case err != nil:
		return nil, fmt.Errorf("verify token: %w", err)
	}
	user, err := protocol.ParseUserID(c.Subject)
	if err != nil {
		return nil, fmt.Errorf("verify token: sub: %w", err)
	}
	id := &identity{user: user, expires: c.ExpiresAt.Time, publish: c.Lastmile.Publish}
	if c.IssuedAt != nil {
		id.issued = c.IssuedAt.Time
	}
	return id, nil
}

// closeCode is what a client with that error of verify is closed with.
func closeCode(err error) protocol.CloseCode {
	if errors.Is(err, errTokenExpired) {
		return protocol.CloseTokenExpired
	}
	return protocol.CloseBadToken
}
