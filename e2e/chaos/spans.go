package main

import (
	"sync"
	"time"
)

// span is a time in which something was not well.
type span struct {
	what     string
	from, to time.Time // to is zero while it lasts
}

// spans are those of one thing: a process, a network, Redis.
type spans struct {
	mu   sync.Mutex
	list []*span
}

// begin notes that trouble began.
func (s *spans) begin(what string) *span {
	return s.since(what, time.Now())
}

// since notes trouble that, as it turns out, began earlier.
func (s *spans) since(what string, from time.Time) *span {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &span{what: what, from: from}
	s.list = append(s.list, one)
	return one
}

func (s *spans) end(one *span, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.to = at
}

// touch says whether any trouble lasted at any time from `from` to `to`.
func (s *spans) touch(from, to time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if !one.from.After(to) && (one.to.IsZero() || !one.to.Before(from)) {
			return true
		}
	}
	return false
}
