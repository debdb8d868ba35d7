package embedded

import (
	"crypto/sha256"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

const sessionTimeout = 30 * time.Minute

// States of a session's latest transaction.
const (
	txnNone = iota
	txnOpen
	txnCommitted
	txnAborted
	txnRetryable // the latest number was one of a retryable write
)

// session is one logical session. It is used by one command at a time: busy.
type session struct {
	busy chan struct{}

	// owned by who holds busy
	number  int64
	state   int
	txn     *store.Txn
	lastRes bson.D // of the latest retryable write

	// guarded by sessions.mu
	used    time.Time
	started time.Time  // of the open transaction
	open    *store.Txn // the same as txn while it is open, for the sweeper
}

// sessions are all logical sessions, by their id.
type sessions struct {
	mu   sync.Mutex
	byID map[string]*session
}

func newSessions() *sessions { return &sessions{byID: map[string]*session{}} }

func (s *sessions) get(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byID[id]
	if x == nil {
		x = &session{busy: make(chan struct{}, 1), number: -1}
		s.byID[id] = x
	}
	x.used = time.Now()
	return x
}

func (s *sessions) setOpen(x *session, t *store.Txn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.open, x.started = t, time.Now()
}

// end forgets a session and aborts what it left open.
func (s *sessions) end(id string) {
	s.mu.Lock()
	x := s.byID[id]
	var open *store.Txn
	if x != nil {
		open = x.open
	}
	delete(s.byID, id)
	s.mu.Unlock()
	if open != nil {
		open.Abort()
	}
}

// sweep aborts transactions that are open for too long, and forgets sessions
// that nobody uses.
func (s *sessions) sweep(now time.Time, lifetime time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, x := range s.byID {
		if x.open != nil && now.Sub(x.started) > lifetime {
			x.open.Abort()
			x.open = nil
		}
		if now.Sub(x.used) > sessionTimeout {
			delete(s.byID, id)
		}
	}
}

// sessionID is the id in an lsid.
func sessionID(lsid bson.Raw) (string, error) {
	_, id, ok := lsid.Lookup("id").BinaryOK()
	if !ok || len(id) != 16 {
		return "", store.Errorf(store.CodeFailedToParse, "lsid.id must be a UUID")
	}
	return string(id), nil
}

// anonymousUser is the hash of the empty user name, which a server without
// authentication adds to every session id.
var anonymousUser = sha256.Sum256(nil)

// fullLSID is the lsid as events show it.
func fullLSID(lsid bson.Raw) (bson.Raw, error) {
	return bson.Marshal(bson.D{
		{Key: "id", Value: lsid.Lookup("id")},
		{Key: "uid", Value: bson.Binary{Data: anonymousUser[:]}},
	})
}
