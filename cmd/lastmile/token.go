package main

import (
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// devTokenSecret signs the tokens of `lastmile dev` and, by default, of `lastmile token`. It is
// published with the source: the server commands refuse it.
const devTokenSecret = "lastmile-dev-secret-that-everybody-knows"

type tokenCommand struct {
	User        string        `required:"" help:"User id (the token's sub)."`
	Expires     time.Duration `default:"1h" help:"How long it is good."`
	Publish     []string      `help:"Event types that its bearer may publish over the socket, e.g. chat.* (repeatable)."`
	TokenSecret string        `default:"${devTokenSecret}" help:"Secret to sign with (HS256); by default the one of lastmile dev."`
}

type publishClaim struct {
	Publish []string `json:"publish"`
}

type tokenClaims struct {
	jwt.RegisteredClaims
	Lastmile *publishClaim `json:"lastmile,omitempty"`
}

func (c tokenCommand) Run(std streams) error {
	user, err := protocol.ParseUserID(c.User)
	if err != nil {
		return fmt.Errorf("--user: %w", err)
	}
	if c.Expires <= 0 {
		return fmt.Errorf("--expires %s: give a positive duration, such as 1h", c.Expires)
	}
	now := time.Now()
	claims := tokenClaims{RegisteredClaims: jwt.RegisteredClaims{
		Subject:   string(user),
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(c.Expires)),
	}}
	if len(c.Publish) > 0 {
		claims.Lastmile = &publishClaim{Publish: c.Publish}
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(c.TokenSecret))
	if err != nil {
		return fmt.Errorf("sign token: %w", err)
	}
	_, err = fmt.Fprintln(std.out, signed)
	return err
}
