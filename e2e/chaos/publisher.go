package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const publisherCount = 6

// publishing is all publishers.
type publishing struct {
	world  *world
	client *http.Client
	group  sync.WaitGroup
	enough context.CancelFunc // no new events
	active atomic.Int64
	tries  atomic.Int64 // POSTs beyond the first of a request

	mu     sync.Mutex
	faults []string
}

// startPublishers begins to publish.
func startPublishers(w *world) *publishing {
	p := &publishing{world: w, client: &http.Client{
		Timeout:   3 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: publisherCount},
	}}
	more, enough := context.WithCancel(w.ctx)
	p.enough = enough
	for i := range publisherCount {
		p.active.Add(1)
		p.group.Go(func() {
			defer p.active.Add(-1)
			p.publish(more, draw(w.cfg.Seed, drawPublishers, uint64(i)))
		})
	}
	w.t.Cleanup(func() { enough(); p.group.Wait(); p.client.CloseIdleConnections() })
	return p
}

func (p *publishing) stop()     { p.enough() }
func (p *publishing) wait()     { p.group.Wait() }
func (p *publishing) left() int { return int(p.active.Load()) }

// publish sends one request after the other, the next only when the one before is committed: so each
// publisher's events have an order.
func (p *publishing) publish(more context.Context, random *rand.Rand) {
	pace := float64(publisherCount) / p.world.cfg.Rate
	for {
		batch := 1
		if random.IntN(10) == 0 {
			batch = 2 + random.IntN(4)
		}
		if !pause(more, time.Duration(random.ExpFloat64()*pace*float64(batch)*float64(time.Second))) {
			return
		}
		events := make([]*event, batch)
		for i := range events {
			events[i] = p.invent(random)
		}
		p.world.ledger.begin(events...)
		if p.insist(random, events) {
			p.world.ledger.confirm(events...)
		}
	}
}

// invent makes an event for one user, some, or a room.
func (p *publishing) invent(random *rand.Rand) *event {
	count := 1
	switch r := random.IntN(20); {
	case r == 0:
		count = min(40, len(p.world.people.all)/2)
	case r < 7:
		count = 2 + random.IntN(5)
	}
	e := &event{id: uuid.Must(uuid.NewV7()).String()}
	for _, i := range random.Perm(len(p.world.people.all))[:count] {
		e.to = append(e.to, p.world.people.all[i].name)
	}
	switch random.IntN(40) {
	case 0:
		e.ephemeral = true
	case 1, 2:
		e.quiet = true
	case 3:
		e.expires = true
	}
	return e
}

func encode(events []*event) ([]byte, error) {
	out := make([]map[string]any, len(events))
	for i, e := range events {
		out[i] = map[string]any{"id": e.id, "to": e.to, "type": "chaos.event", "data": map[string]any{"text": "hello", "id": e.id}}
		if e.ephemeral {
			out[i]["ephemeral"] = true
		}
		if e.quiet {
			out[i]["notify"] = false
		}
		if e.expires {
			out[i]["expiresAt"] = time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339Nano)
		}
	}
	return json.Marshal(out)
}

// insist posts until the events are committed, each time to any server, as one behind a balancer does.
func (p *publishing) insist(random *rand.Rand, events []*event) bool {
	body, err := encode(events)
	if err != nil {
		p.fault("encode: %v", err)
		return false
	}
	for try := 0; ; try++ {
		status, answer, err := p.post(random, body)
		switch {
		case err == nil && status == http.StatusAccepted:
			return true
		case err == nil && status != http.StatusServiceUnavailable && status != http.StatusInternalServerError && status != http.StatusTooManyRequests:
			p.fault("publish: %d %s", status, answer)
			return false
		}
		p.tries.Add(1)
		ceiling := min(100*ms<<min(try, 5), 2*time.Second)
		if !pause(p.world.ctx, time.Duration(random.Int64N(int64(ceiling)))) {
			return false
		}
	}
}

func (p *publishing) post(random *rand.Rand, body []byte) (int, []byte, error) {
	network := p.world.networks[random.IntN(len(p.world.networks))]
	proxy := network.proxies[random.IntN(len(network.proxies))]
	request, err := http.NewRequestWithContext(p.world.ctx, http.MethodPost, "http://"+proxy.Addr()+"/v1/events", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+apiKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func (p *publishing) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}
