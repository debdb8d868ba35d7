package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// ledger is the model: what was committed for each user, in commit order.
type ledger struct {
	mu        sync.Mutex
	committed map[string][]string
}

func (l *ledger) record(user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed[user] = append(l.committed[user], id)
}

func (l *ledger) of(user string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.committed[user])
}

// modelDevice is a device and what its application loaded instead of having it shown.
type modelDevice struct {
	*device
	user    string
	covered map[string]bool
	online  bool
	opened  bool
}

// The promise as a property: whatever users, devices, connections and publishes there are, every
// device shows every event committed since it opened once and in commit order, but for those that it
// loaded when it was told to reload.
func TestPromiseHoldsForRandomHistories(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	var histories atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(t, s, histories.Add(1), rt)
		rt.Repeat(map[string]func(*rapid.T){
			"connect":    h.connect,
			"disconnect": h.disconnect,
			"publish":    h.publish,
			"burst":      h.burst,
		})
		h.finish(rt)
	})
}

type history struct {
	t       *testing.T
	s       *system
	ledger  *ledger
	users   []string
	devices []*modelDevice
}

func newHistory(t *testing.T, s *system, number int64, rt *rapid.T) *history {
	h := &history{t: t, s: s, ledger: &ledger{committed: map[string][]string{}}}
	for i := range rapid.IntRange(1, 3).Draw(rt, "users") {
		user := fmt.Sprintf("h%d-u%d", number, i)
		h.users = append(h.users, user)
		for range rapid.IntRange(1, 2).Draw(rt, "devices of "+user) {
			h.add(user)
		}
	}
	return h
}

func (h *history) add(user string) {
	m := &modelDevice{device: newDevice(h.t, user, h.s.TokenSecret), user: user, covered: map[string]bool{}}
	m.onReload = func() {
		for _, id := range h.ledger.of(user) {
			m.covered[id] = true
		}
	}
	h.devices = append(h.devices, m)
}

func (h *history) connect(rt *rapid.T) {
	m := rapid.SampledFrom(h.devices).Draw(rt, "device")
	m.device.connect(rapid.SampledFrom(h.s.Sockets).Draw(rt, "server"))
	m.online, m.opened = true, true
}

func (h *history) disconnect(rt *rapid.T) {
	m := rapid.SampledFrom(h.devices).Draw(rt, "device")
	m.device.disconnect()
	m.online = false
}

func (h *history) publish(rt *rapid.T) { h.send(rt, 1) }

func (h *history) burst(rt *rapid.T) { h.send(rt, rapid.IntRange(2, 30).Draw(rt, "events")) }

func (h *history) send(rt *rapid.T, count int) {
	events := make([]event, count)
	for i := range events {
		to := rapid.SliceOfNDistinct(rapid.SampledFrom(h.users), 1, len(h.users), rapid.ID).Draw(rt, "to")
		events[i] = event{"to": to, "type": "test", "data": event{"i": i}}
	}
	ids := h.s.publish(h.t, rapid.SampledFrom(h.s.Sockets).Draw(rt, "publisher"), events...)
	for i, id := range ids {
		for _, user := range events[i]["to"].([]string) {
			h.ledger.record(user, id)
		}
	}
}

// finish brings every device that ever opened back and compares what it showed with the ledger.
func (h *history) finish(rt *rapid.T) {
	for _, m := range h.devices {
		if !m.opened {
			continue
		}
		if !m.online {
			m.device.connect(h.s.Sockets[0])
		}
	}
	for _, m := range h.devices {
		if m.opened {
			testkit.Eventually(h.t, 10*time.Second, m.user+" has everything", func() bool { return len(m.missing(h.ledger)) == 0 })
			m.compare(rt, h.ledger)
			m.device.check()
		}
		m.device.disconnect()
	}
}

// missing are the committed events that were neither shown nor covered by a reload.
func (m *modelDevice) missing(l *ledger) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, id := range l.of(m.user) {
		if !m.seen[id] && !m.covered[id] {
			out = append(out, id)
		}
	}
	return out
}

func (m *modelDevice) compare(rt *rapid.T, l *ledger) {
	place := map[string]int{}
	for i, id := range l.of(m.user) {
		place[id] = i
	}
	last := -1
	for _, id := range m.ids() {
		i, known := place[id]
		if !known {
			rt.Fatalf("%s was shown %s, which was not for him", m.user, id)
		}
		if i <= last {
			rt.Fatalf("%s was shown event %d after event %d", m.user, i, last)
		}
		last = i
	}
}
