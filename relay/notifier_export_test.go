package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
)

// OnConn lets a test put hooks into every connection that a notifier's life opens.
func (n *Notifier) OnConn(each func(redis.UniversalClient)) {
	dial := n.dial
	n.dial = func(onDial func()) redis.UniversalClient {
		conn := dial(onDial)
		each(conn)
		return conn
	}
}

// Sign signs as a webhook does.
func (w *Webhook) Sign(id, at string, body []byte) string { return w.sign(id, at, body) }

// Gate is what stands before a sink.
type Gate struct{ g *gate }

// NewGate makes one.
func NewGate(cfg NotifierConfig) Gate {
	return Gate{newGate(cfg.withDefaults(), prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tries_total", Help: "Tries."}, []string{"result"}))}
}

// Enter asks for admission now.
func (g Gate) Enter(inFlight int) (bool, time.Time) { return g.g.enter(time.Now(), inFlight) }

// Tried tells what came of it.
func (g Gate) Tried(err error) { g.g.tried(err, time.Now()) }

// State is how the sink does.
func (g Gate) State() SinkState { s, _ := g.g.look(); return s }

// Pause is that of one pair.
func (c NotifierConfig) Pause(failures int) time.Duration { return c.withDefaults().pause(failures) }

// GateFailures is exported for tests.
const GateFailures = gateFailures

// ReaderWatch is a relay's look at who reads notifications.
type ReaderWatch struct{ w *readerWatch }

// NewReaderWatch makes one.
func NewReaderWatch(r *Relay) ReaderWatch { return ReaderWatch{newReaderWatch(r, nil)} }

// Looked takes what a look showed, and answers the alarm.
func (w ReaderWatch) Looked(length int64, idle time.Duration) string {
	w.w.looked(inbox.NotificationBacklog{Length: length, Idle: idle}, time.Now())
	return w.w.alarm.text()
}
