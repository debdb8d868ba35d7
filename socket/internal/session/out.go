package session

import (
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// item is one thing in the send queue: an event, a welcome, or another ready frame.
type item struct {
	env         *protocol.Envelope
	seq         protocol.Seq
	redelivered bool
	raw         []byte
	welcome     int64
}

// sendQueue is the send queue.
type sendQueue struct {
	items  []item
	events int
	bytes  int
}

func (o *sendQueue) add(it item) {
	o.items = append(o.items, it)
	o.events++
	o.bytes += it.size()
}

func (it *item) size() int {
	if it.env != nil {
		return len(it.env.Body)
	}
	return len(it.raw)
}

func (o *sendQueue) pop() {
	o.events--
	o.bytes -= o.items[0].size()
	o.items[0] = item{}
	if o.items = o.items[1:]; len(o.items) == 0 {
		o.items = nil
	}
}

// void drops all that belongs to the welcome before: events, and welcomes that nobody has read, whose
// numbers are free again.
func (o *sendQueue) void(n *int64) (dropped int) {
	old := o.items
	*o = sendQueue{}
	for _, it := range old {
		switch {
		case it.env != nil:
			dropped++
		case it.welcome != 0:
			*n--
		default:
			o.add(it)
		}
	}
	return dropped
}

// Writing is what one frame carries; see Written.
type Writing struct {
	n       int64
	seq     protocol.Seq
	welcome bool
}

// roomy says whether there is room for more of what a client missed.
func (m *Machine) roomy() bool {
	return m.out.events < m.cfg.QueueEvents/16+1 && m.out.bytes < m.cfg.QueueBytes/16+1
}

// full says that a client reads too slowly. One event alone may be of any size.
func (m *Machine) full() bool {
	return m.out.events > m.cfg.QueueEvents || (m.out.bytes > m.cfg.QueueBytes && m.out.events > 1)
}

func (m *Machine) halfFull() bool {
	return 2*(m.out.events+len(m.queue)) >= m.cfg.QueueEvents || 2*m.out.bytes >= m.cfg.QueueBytes
}

// Send queues a ready frame that has nothing to do with positions.
func (m *Machine) Send(frame []byte) {
	if m.phase >= closing {
		return
	}
	m.out.add(item{raw: frame})
	if m.full() {
		m.Close(protocol.CloseSlowConsumer)
	}
}

// Pending says whether Take would return something.
func (m *Machine) Pending() bool { return len(m.out.items) > 0 }

// Take returns the next frame to write, nil if there is none: all events up to the frame's limit
// together, in f, whose bytes it returns.
func (m *Machine) Take(now time.Time, f *protocol.EventsFrame) ([]byte, Writing) {
	w := Writing{n: m.welcome.n}
	f.Reset()
	for len(m.out.items) > 0 {
		it := m.out.items[0]
		if it.env == nil {
			if f.Len() > 0 {
				break
			}
			m.out.pop()
			if it.welcome != 0 {
				w.welcome, w.seq = true, m.welcome.seq
			}
			m.advance(now)
			return it.raw, w
		}
		if it.env.Expired(now) {
			m.out.pop()
			m.expireQueued(it)
			continue
		}
		if !f.Add(it.seq, it.redelivered, it.env.Body) {
			break
		}
		if it.seq > 0 {
			w.seq = it.seq
		}
		m.out.pop()
	}
	m.advance(now)
	if f.Len() == 0 {
		return nil, w
	}
	return f.Bytes(), w
}

// expireQueued makes a seq that expired in the queue one that was skipped.
func (m *Machine) expireQueued(it item) {
	if it.seq == 0 {
		m.cfg.Count(EphemeralDrop, 1)
		return
	}
	m.cfg.Count(Expired, 1)
	m.ids.mark(it.seq, true)
	m.coverSkipped()
}
