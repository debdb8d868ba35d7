package outbox

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Codes of MongoDB that mean something here.
const (
	codeAuthenticationFailed = 18
	codeFailedToParse        = 9
	codeUnauthorized         = 13
	codeNamespaceExists      = 48
	codeCommandNotFound      = 59
	codeDuplicateKey         = 11000
	codeCappedPositionLost   = 136
	codeInvalidResumeToken   = 260
	codeFatalChangeStream    = 280
	codeHistoryLost          = 286
	codeBSONTooLarge         = 10334
	codeTokenKeyString       = 50811
	codeTokenShape           = 40647
)

const labelNonResumable = "NonResumableChangeStreamError"

// trouble is what an error of a change stream asks for.
type trouble int

const (
	transient trouble = iota // reopen at the token: network, elections, killed cursors, anything unknown
	lost                     // history is lost: scan
	refused                  // the server can't read the token: it never gets better by itself
	tooLarge                 // an event over 16 MB is next: reopen past it
)

// classify goes by the label first: servers were seen to answer codes that no list had. An open cursor that the
// oplog overtook has 136 and no label. Only the event that is over 16 MB comes before it: that is true of the place
// and stays so, but there is a way past it, and a scan would not end it.
func classify(err error) trouble {
	var cmd mongo.CommandError
	if !errors.As(err, &cmd) {
		return transient
	}
	if cmd.Code == codeBSONTooLarge {
		return tooLarge
	}
	if cmd.HasErrorLabel(labelNonResumable) {
		return lost
	}
	switch cmd.Code {
	case codeHistoryLost, codeFatalChangeStream, codeCappedPositionLost:
		return lost
	case codeInvalidResumeToken, codeTokenKeyString, codeTokenShape, codeFailedToParse:
		return refused
	}
	return transient
}
