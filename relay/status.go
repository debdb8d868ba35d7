package relay

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// State is what a relay does with a partition.
type State string

// The states of a partition that a relay holds.
const (
	stateTaking    State = "taking"    // takes the lease
	stateWaiting   State = "waiting"   // Redis is empty: waits for the socket servers
	stateNotifying State = "notifying" // hands over again what waited for notification
	stateScanning  State = "scanning"  // reads the outbox by time
	stateRunning   State = "running"   // follows the change stream
)

// Status is what a relay shows of itself.
type Status struct {
	Instance   protocol.InstanceID `json:"instance"`
	Ready      bool                `json:"ready"`
	Reason     string              `json:"reason,omitempty"` // why it is not ready
	Relays     int                 `json:"relays"`           // that run, this one included
	Sockets    int                 `json:"sockets"`          // socket servers that run
	Partitions []PartitionStatus   `json:"partitions"`
}

// PartitionStatus is one partition as this relay sees it.
type PartitionStatus struct {
	Partition int                 `json:"partition"`
	Owner     protocol.InstanceID `json:"owner,omitempty"` // whose lease runs; empty: nobody's
	State     State               `json:"state,omitempty"` // empty: not held by this relay
	Fence     int64               `json:"fence,omitempty"`
	Position  string              `json:"position,omitempty"` // seconds.ordinal.index: routed up to there
	Tick      int64               `json:"tick,omitempty"`
	Lag       float64             `json:"lagSeconds,omitempty"`
	Probe     float64             `json:"probeSeconds,omitempty"` // the last probe's way through MongoDB
	Trouble   string              `json:"trouble,omitempty"`
}

// partitionView is what a partition's own goroutines tell of it.
type partitionView struct {
	mu       sync.Mutex
	state    State
	fence    int64
	marker   outbox.Marker
	tick     int64
	probe    time.Duration
	probeErr error
	probes   int
	err      error
}

func (v *partitionView) set(s State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state = s
	if s == stateRunning {
		v.err = nil
	}
}

func (v *partitionView) took(fence int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fence = fence
}

func (v *partitionView) trouble(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

func (v *partitionView) place(m outbox.Marker, tick int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.marker, v.tick = m, tick
}

func (v *partitionView) probed(after time.Duration, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.probe, v.probeErr = after, err
	v.probes++
}

// ready says why the partition is not served as it should be.
func (v *partitionView) ready() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.state != stateRunning && v.err != nil:
		return fmt.Errorf("%s: %w", v.state, v.err)
	case v.state != stateRunning:
		return errors.New(string(v.state))
	case v.err != nil:
		return v.err
	case v.probes == 0:
		return errors.New("no probe is back yet")
	}
	return v.probeErr
}

func (v *partitionView) status(s *PartitionStatus) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.State, s.Fence, s.Tick, s.Probe = v.state, v.fence, v.tick, v.probe.Seconds()
	if !v.marker.Position.IsZero() {
		s.Position, s.Lag = formatPosition(v.marker.Position), v.lagLocked().Seconds()
	}
	if err := errors.Join(v.err, v.probeErr); err != nil {
		s.Trouble = err.Error()
	}
}

func (v *partitionView) lagLocked() time.Duration {
	if v.marker.Position.IsZero() {
		return 0
	}
	return max(0, time.Since(commitTime(v.marker.Position)))
}

// lag is that of the partition that is furthest behind.
func (r *Relay) lag() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var most time.Duration
	for _, p := range r.held {
		p.view.mu.Lock()
		most = max(most, p.view.lagLocked())
		p.view.mu.Unlock()
	}
	return most
}

// Ready is nil when this relay does its part: it sees Redis and MongoDB, every
// partition that it holds follows its stream and a probe came back there, and no
// partition is without an owner.
func (r *Relay) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readyLocked()
}

func (r *Relay) readyLocked() error {
	switch {
	case r.seen.err != nil:
		return fmt.Errorf("redis: %w", r.seen.err)
	case r.seen.at.IsZero():
		return errors.New("redis: not looked at yet")
	case time.Since(r.seen.at) > max(r.cfg.Lease, 2*r.cfg.Look):
		return fmt.Errorf("redis: no answer since %s", r.seen.at.UTC().Format(time.RFC3339))
	case r.mongo != nil:
		return fmt.Errorf("mongodb: %w", r.mongo)
	case r.waiting != "":
		return errors.New(r.waiting)
	}
	for n, owner := range r.seen.owners {
		p := r.held[n]
		if p == nil && !owner.Running {
			return fmt.Errorf("partition %d: nobody holds it", n)
		}
		if p == nil {
			continue
		}
		if err := p.view.ready(); err != nil {
			return fmt.Errorf("partition %d: %w", n, err)
		}
	}
	return nil
}

// Status shows what this relay does.
func (r *Relay) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Relays: r.seen.relays, Sockets: r.seen.sockets, Ready: true}
	if len(r.ids) > 0 {
		s.Instance = r.ids[0]
	}
	if err := r.readyLocked(); err != nil {
		s.Ready, s.Reason = false, err.Error()
	}
	for n, owner := range r.seen.owners {
		ps := PartitionStatus{Partition: n}
		if owner.Running {
			ps.Owner = owner.ID
		}
		if p := r.held[n]; p != nil {
			p.view.status(&ps)
		}
		s.Partitions = append(s.Partitions, ps)
	}
	return s
}

func (r *Relay) holds(n int) bool { return slices.Contains(r.holding(), n) }
