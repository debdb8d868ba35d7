package chat

import (
	"context"
	"hash/maphash"
)

// stripes let the transactions of one room follow each other within this process. MongoDB would see to
// that by itself, by having all but one begin again; with a hundred people writing in one room at the same
// moment that is mostly beginning again. Rooms may share a stripe: that costs time only.
type stripes struct {
	seed  maphash.Seed
	locks [64]chan struct{}
}

func newStripes() *stripes {
	s := &stripes{seed: maphash.MakeSeed()}
	for i := range s.locks {
		s.locks[i] = make(chan struct{}, 1)
	}
	return s
}

// hold waits for the room's turn; release ends it.
func (s *stripes) hold(ctx context.Context, room string) (release func(), err error) {
	lock := s.locks[maphash.String(s.seed, room)%uint64(len(s.locks))]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
